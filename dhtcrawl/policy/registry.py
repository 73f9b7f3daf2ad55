"""Policies by name: ours, and those that other packages bring under the entry point group `dhtcrawl.policies`.

    [project.entry-points."dhtcrawl.policies"]
    nearest = "my_package:Nearest"

A module is imported when its policy is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dhtcrawl.config import pairs
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


def load(name: str) -> type[Policy]:
    """A policy's class.

    Raises:
        SettingError: there is none of this name.
        ConfigError: it cannot be imported.
    """
    if name in OURS:
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


def check(name: str, options: Sequence[str] = ()) -> None:
    """Whether there is such a policy here, and it has these options: strings NAME=VALUE.

    Raises:
        SettingError: there is none, or an option is not its own.
        ConfigError: it cannot be imported.
    """
    known = load(name).options if options or name not in OURS else {}
    for option, value in pairs(options).items():
        if option not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise SettingError("crawl.policy_options", f": {name} has no option {option!r}; {there}")
        if known[option] and value not in known[option]:
            choices = ", ".join(known[option])
            raise SettingError("crawl.policy_options", f": {option} is {value!r}; with {name} use one of {choices}")


def check_needs(name: str) -> None:
    """Whether what the policy needs is installed here; nothing of it is imported.

    Raises:
        SettingError: there is no such policy.
        ConfigError: it cannot be imported, or something that it needs is missing.
    """
    missing = _missing(load(name).needs)
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
        needs = tuple(map(str, policy.needs))
        return PolicyDescription(
            name,
            str(policy.about) or next(iter((policy.__doc__ or "").strip().splitlines()), ""),
            {str(option): tuple(map(str, values)) for option, values in policy.options.items()},
            needs,
            _missing(needs),
            "owner" if policy.planner is None else "coordinator",
            source,
        )
    except ConfigError as error:
        return PolicyDescription(name, source=source, problem=str(error).removeprefix("crawl.policy: "))
    except Exception as error:  # third-party code may say anything of itself
        return PolicyDescription(name, source=source, problem=f"does not describe itself: {said(error)}")


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
