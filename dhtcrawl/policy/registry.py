"""Policies by name: ours, and those that other packages bring under the entry point group `dhtcrawl.policies`.

    [project.entry-points."dhtcrawl.policies"]
    nearest = "my_package:Nearest"

A module is imported when its policy is asked for. A class may be named as module:Class, too, and is then imported where
a node's own configuration allows that very name (decision 0043).
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dhtcrawl.config import pairs, require_class_name
from dhtcrawl.errors import ConfigError, SettingError
from dhtcrawl.policy.guard import said
from dhtcrawl.policy.seam import Policy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dhtcrawl.policies"
OURS = {
    "xor": "dhtcrawl.policy.xor:Xor",
    "balanced": "dhtcrawl.policy.balanced:Balanced",
    "dynamic": "dhtcrawl.policy.dynamic:Dynamic",
    "dspider": "dhtcrawl.policy.dspider:DSpider",
    "bp-pso": "dhtcrawl.policy.bp_pso.policy:BpPso",
    "gnp": "dhtcrawl.policy.gnp.policy:Gnp",
}


@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """What a person reads of a policy before choosing it."""

    name: str
    about: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the default first; empty: any value
    needs: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # of these, what is not installed here
    planned_by: str = "owner"  # or "coordinator"
    source: str = ""  # module:Class
    problem: str = ""  # why it cannot be used here; empty: it can, unless something is missing


def names() -> list[str]:
    """All policies that may be asked for, ours first."""
    return [*OURS, *sorted({point.name for point in _others()} - OURS.keys())]


def is_own(name: str) -> bool:
    """Whether this names a class, module:Class, and no policy by its name."""
    return ":" in name


def load(name: str, allowed: Container[str] = ()) -> type[Policy]:
    """A policy's class. One that is named as module:Class is imported only where it is among those `allowed`.

    Raises:
        SettingError: there is none of this name.
        ConfigError: it cannot be imported, or may not be.
    """
    found: object
    if is_own(name):
        found = _own(name, allowed)
    elif name in OURS:
        module, _, attribute = OURS[name].partition(":")
        found = getattr(import_module(module), attribute)
    else:
        point = next((point for point in _others() if point.name == name), None)
        if point is None:
            raise SettingError("crawl.policy", f": there is no policy {name!r}; there are {', '.join(names())}")
        try:
            found = point.load()
        except (Exception, SystemExit) as error:
            raise ConfigError(f"crawl.policy: {name} ({point.value}) cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ConfigError(f"crawl.policy: {name} is {found!r}, no subclass of dhtcrawl.policy.seam.Policy")
    return found


def check(name: str, options: Sequence[str] = (), allowed: Container[str] = ()) -> None:
    """Whether there is such a policy here, and it has these options: strings NAME=VALUE.

    Of a module:Class that is not `allowed` only the name is looked at: the nodes that crawl with it may know it.

    Raises:
        SettingError: there is none, or an option is not its own.
        ConfigError: it cannot be imported, or says nonsense of its options.
    """
    if is_own(name) and name not in allowed:
        _require_class_name(name)
        return
    known = _options(name, load(name, allowed)) if options or name not in OURS else {}
    for option, value in pairs(options).items():
        if option not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise SettingError("crawl.policy_options", f": {name} has no option {option!r}; {there}")
        if known[option] and value not in known[option]:
            choices = ", ".join(known[option])
            raise SettingError("crawl.policy_options", f": {option} is {value!r}; with {name} use one of {choices}")


def check_needs(name: str, options: Sequence[str] = (), allowed: Container[str] = ()) -> None:
    """Whether what the policy needs with these options, strings NAME=VALUE, is installed here; nothing is imported.

    Raises:
        SettingError: there is no such policy.
        ConfigError: it cannot be imported, or may not be, or says nonsense of what it needs, or something of that is
            missing.
    """
    policy = load(name, allowed)
    try:
        needs = _words(policy.needs_with(pairs(options)))
    except (Exception, SystemExit) as error:  # third-party code may say anything of itself
        raise ConfigError(f"crawl.policy: {name} does not describe itself: {said(error)}") from error
    missing = _missing(needs)
    if missing:
        raise ConfigError(
            f"crawl.policy: {name} needs {', '.join(missing)}, not installed here; "
            f"run 'pip install {' '.join(missing)}' where dhtcrawl is installed, or use another policy"
        )


def describe(name: str) -> PolicyDescription:
    """What to tell of a policy; one that cannot be loaded, or describes itself wrongly, has a `problem`."""
    source = OURS.get(name) or next((point.value for point in _others() if point.name == name), "")
    try:
        policy = load(name)
        needs = _words(policy.needs)
        return PolicyDescription(
            name,
            str(policy.about) or next(iter((policy.__doc__ or "").strip().splitlines()), ""),
            _options(name, policy),
            needs,
            _missing(needs),
            "owner" if policy.planner is None else "coordinator",
            source,
        )
    except ConfigError as error:
        return PolicyDescription(name, source=source, problem=str(error).removeprefix("crawl.policy: "))
    except Exception as error:  # third-party code may say anything of itself
        return PolicyDescription(name, source=source, problem=f"does not describe itself: {said(error)}")


def _options(name: str, policy: type[Policy]) -> dict[str, tuple[str, ...]]:
    """The options of a policy, and the values of each.

    Raises:
        ConfigError: it says nonsense of them.
    """
    try:
        return {str(option): _words(values) for option, values in policy.options.items()}
    except Exception as error:  # third-party code may say anything of itself
        raise ConfigError(f"crawl.policy: {name} does not describe itself: {said(error)}") from error


def _words(said_of_itself: Iterable[object]) -> tuple[str, ...]:
    """The names or values in a list.

    Raises:
        TypeError: it is none; a word by itself would count as a list of its letters.
    """
    if isinstance(said_of_itself, str):
        raise TypeError(f"{said_of_itself!r} is no list; write it as ({said_of_itself!r},)")
    return tuple(map(str, said_of_itself))


def _own(name: str, allowed: Container[str]) -> object:
    _require_class_name(name)
    if name not in allowed:
        raise ConfigError(
            f"crawl.policy: {name} is not among the policies that this node may import; "
            f"start it with --allow-policy {name}, or use another policy"
        )
    module, _, attribute = name.partition(":")
    try:
        return getattr(_module(module), attribute)
    except (Exception, SystemExit) as error:  # third-party code may raise anything
        raise ConfigError(f"crawl.policy: {name} cannot be loaded: {said(error)}") from error


def _require_class_name(name: str) -> None:
    try:
        require_class_name(name)
    except ValueError as error:
        raise SettingError("crawl.policy", f": {error}") from None


def _module(name: str) -> ModuleType:
    """An installed module, or else the file of this name in the working directory."""
    if _is_there(name):
        return import_module(name)
    path = Path(f"{name}.py")
    spec = spec_from_file_location(name, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise ImportError(f"no module {name} is installed, and there is no {path} in {Path.cwd()}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _missing(needs: Sequence[str]) -> tuple[str, ...]:
    return tuple(module for module in needs if not _is_there(module))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # what it is part of is missing; or it is no name
        return False


def _others() -> list[EntryPoint]:
    from importlib.metadata import entry_points  # reads of e-mail come with it, and few commands ask

    return list(entry_points(group=GROUP))
