"""Hold the package to `[tool.dhtcrawl.structure]` in pyproject.toml: part of `make check`.

    attributes   a class has at most so many instance attributes
    methods      a class has at most so many public methods and properties
    parameters   a constructor takes at most so many parameters, `self` left out
    complexity   a function branches at most so often (McCabe 1976, as ruff's C901 counts)
    cycle        no module imports itself by way of others, not even for types or within a function
    name         no two modules define a class of one name
    await        no attribute or item is set from what it was before an await (`self.x += await …`): changes get lost
    raises       a public function names what its own body raises under `Raises:` in its docstring
    core         the import contract `cores` lists the modules whose docstring claims to be without I/O, and no others

`Raises:` may also stand in the docstring of a method's class, of its base or of the Protocol that it fulfils. For an
error that a helper makes, such as `refusal(…)`, any `Raises:` will do. Commands, whose docstring is their help, and
assertions are left out.

Inherited members count; where the base is over the limit already, the base alone is told of. Values are exempt from the
first three: frozen dataclasses, NamedTuples, Enums and TypedDicts, and classes named `…Settings` or `…Counters`.
What cores and layers may import is import-linter's to check.

An exception is a line `"rule place" = "reason"`. One that nothing needs any more is an error, and so is one too many.
"""

from __future__ import annotations

import argparse
import ast
import graphlib
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

CLAIM: Final = re.compile(r"\b([Pp]ure|[Nn]o I/O|without I/O)\b")
VALUES: Final = frozenset({"NamedTuple", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "TypedDict"})
EXEMPT_ENDINGS: Final = ("Settings", "Counters")
OUR_BUGS: Final = frozenset({"AssertionError", "NotImplementedError"})

Modules = Mapping[str, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Violation(NamedTuple):
    """A rule that a module, class or function breaks, and how."""

    rule: str
    at: str
    detail: str


class _Class(NamedTuple):
    at: str
    bases: list[str]
    exempt: bool
    members: dict[str, set[str]]  # by rule


def violations(root: Path, limits: Mapping[str, int], cores: Iterable[str]) -> list[Violation]:
    """All that the package in directory `root` breaks, sorted; exceptions are not taken off.

    Raises:
        SyntaxError: a file is not Python.
    """
    modules = {_module(root, path): ast.parse(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    classes = [_read_class(n, at) for at, tree in modules.items() for n in tree.body if isinstance(n, ast.ClassDef)]
    found = [
        *_names(classes),
        *_sizes(classes, limits),
        *_cycles(modules),
        *_cores(modules, set(cores)),
        *_raises(modules),
        *_lost_updates(modules),
    ]
    return sorted([*found, *_complexity(root, modules, limits["complexity"])])


def _module(root: Path, path: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _read_class(node: ast.ClassDef, module: str) -> _Class:
    decorator = next((ast.unparse(each) for each in node.decorator_list if _name(each) == "dataclass"), "")
    bases = [_name(base) for base in node.bases]
    exempt = "frozen=True" in decorator or not VALUES.isdisjoint(bases) or node.name.endswith(EXEMPT_ENDINGS)
    members: dict[str, set[str]] = {"attributes": set(), "methods": set(), "parameters": set()}
    for each in node.body:
        if isinstance(each, Function):
            _read_method(each, members)
        elif isinstance(each, ast.AnnAssign) and decorator and _name(each.annotation) != "ClassVar":
            members["attributes"].add(_name(each.target))
            if "init=False" not in ast.unparse(each):
                members["parameters"].add(_name(each.target))
    return _Class(f"{module}.{node.name}", bases, exempt, members)


def _read_method(method: Function, members: dict[str, set[str]]) -> None:
    if not method.name.startswith("_"):
        members["methods"].add(method.name)
    if method.name == "__init__":
        arguments = method.args.posonlyargs + method.args.args
        members["parameters"] |= {each.arg for each in arguments[1:] + method.args.kwonlyargs}
    members["attributes"] |= {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _name(node.value) == "self"
    }


def _names(classes: Iterable[_Class]) -> Iterator[Violation]:
    first: dict[str, str] = {}
    for each in classes:
        other = first.setdefault(each.at.rpartition(".")[2], each.at)
        if other != each.at:
            yield Violation("name", each.at, f"is also the name of {other}")


def _sizes(classes: Sequence[_Class], limits: Mapping[str, int]) -> Iterator[Violation]:
    by_name = {each.at.rpartition(".")[2]: each for each in classes}

    def members(name: str, rule: str) -> set[str]:
        if name not in by_name or (rule == "parameters" and by_name[name].members[rule]):
            return by_name[name].members[rule] if name in by_name else set()
        return by_name[name].members[rule].union(*(members(base, rule) for base in by_name[name].bases))

    for name, each in by_name.items():
        for rule in each.members if not each.exempt else ():
            size, in_bases = len(members(name, rule)), max((len(members(b, rule)) for b in each.bases), default=0)
            if size > limits[rule] >= in_bases:
                yield Violation(rule, each.at, f"{size} {rule}, at most {limits[rule]}")


def _cycles(modules: Modules) -> Iterator[Violation]:
    graph = {name: _imports(name, tree, modules) for name, tree in modules.items()}
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            cycle = error.args[1]
            yield Violation("cycle", min(cycle), " <- ".join(cycle))
            graph[cycle[1]].discard(cycle[0])  # so that the next one is found
        else:
            return


def _imports(name: str, tree: ast.Module, modules: Modules) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            paths = [f"{node.module}.{each.name}" for each in node.names]
            found |= {path if path in modules else node.module for path in paths}
    return (found & set(modules)) - {name}


def _cores(modules: Modules, marked: set[str]) -> Iterator[Violation]:
    claiming = {name for name, tree in modules.items() if CLAIM.search(ast.get_docstring(tree) or "")}
    for name in claiming - marked:
        yield Violation("core", name, "claims to be without I/O: add it to the contract `cores` in pyproject.toml")
    for name in marked - claiming:
        yield Violation("core", name, "is in the contract `cores`: its docstring has to say `without I/O`")


def _raises(modules: Modules) -> Iterator[Violation]:
    classes = [(at, node) for at, tree in modules.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    for at, tree in modules.items():
        for node in filter(_is_public, tree.body):
            yield from _undocumented(f"{at}.{node.name}", node, [node])
    for at, owner in classes:
        for method in filter(_is_public, owner.body if not owner.name.startswith("_") else ()):
            said_by = [method, owner, *_interfaces(method.name, owner, [each for _, each in classes])]
            yield from _undocumented(f"{at}.{owner.name}.{method.name}", method, said_by)


def _is_public(node: ast.stmt) -> TypeGuard[Function]:
    if not isinstance(node, Function) or node.name.startswith("_"):
        return False
    return not any(_name(each) in ("command", "group") for each in node.decorator_list)


def _interfaces(name: str, node: ast.ClassDef, classes: Iterable[ast.ClassDef]) -> Iterator[ast.ClassDef | Function]:
    """The bases of a class and the Protocols whose methods it has, and the method of that name in each."""
    bases, own = {_name(base) for base in node.bases}, _methods(node)
    for each in classes:
        is_protocol = (
            "Protocol" in map(_name, each.bases) and name in _methods(each) and _methods(each).keys() <= own.keys()
        )
        if each.name in bases or is_protocol:
            yield from (each, _methods(each).get(name, each))


def _methods(node: ast.ClassDef) -> dict[str, Function]:
    """By name; without properties, for which an attribute will do."""
    methods = [each for each in node.body if isinstance(each, Function)]
    return {each.name: each for each in methods if "property" not in map(_name, each.decorator_list)}


def _undocumented(at: str, function: Function, said_by: Iterable[ast.ClassDef | Function]) -> Iterator[Violation]:
    said = "".join((ast.get_docstring(each) or "").partition("Raises:")[2] for each in said_by)
    raised = [node.exc for node in _own(function) if isinstance(node, ast.Raise) and node.exc]
    for error in sorted({_name(each) for each in raised if isinstance(each, ast.Call) or _name(each)[:1].isupper()}):
        is_said = re.search(rf"\b{error}\b", said) if error[:1].isupper() else said
        if not is_said and error not in OUR_BUGS:
            yield Violation("raises", at, f"raises {error}: say so in its docstring, under `Raises:`")


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, but not in functions and classes within it."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, Function | ast.Lambda | ast.ClassDef):
            yield each
            yield from _own(each)


def _lost_updates(modules: Modules) -> Iterator[Violation]:
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.AugAssign | ast.Assign | ast.AnnAssign) and (lost := _read_before_await(node)):
                at = _enclosing(tree, node.lineno, name)
                yield Violation("await", at, f"{lost} is read before an await and set after it")


def _read_before_await(node: ast.AugAssign | ast.Assign | ast.AnnAssign) -> str | None:
    """The attribute or item that is set to a value for which it was read before an await was over."""
    awaits = [each for each in ast.walk(node.value) if isinstance(each, ast.Await)] if node.value else []
    over_at = max(((each.end_lineno or 0, each.end_col_offset or 0) for each in awaits), default=(0, 0))
    before = [each for each in ast.walk(node.value) if _position(each) < over_at] if node.value else []
    read = {ast.unparse(each) for each in before if isinstance(each, ast.Attribute | ast.Subscript)}
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for each in ast.walk(target):
            if isinstance(each, ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Store):
                text = ast.unparse(each)
                if text in read or (awaits and isinstance(node, ast.AugAssign)):
                    return text
    return None


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", sys.maxsize), getattr(node, "col_offset", 0)


def _complexity(root: Path, modules: Modules, limit: int) -> Iterator[Violation]:
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--ignore-noqa", "--exit-zero"]
    rule = ["--select=C901", "--output-format=json", f"--config=lint.mccabe.max-complexity={limit}"]
    printed = subprocess.run([*ruff, *rule, str(root)], stdout=subprocess.PIPE, check=True).stdout
    for found in json.loads(printed):
        module = _module(root.resolve(), Path(found["filename"]))
        at = _enclosing(modules[module], found["location"]["row"], module)
        yield Violation("complexity", at, found["message"])


def _enclosing(tree: ast.AST, row: int, name: str) -> str:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and node.lineno <= row <= (node.end_lineno or row):
            return _enclosing(node, row, f"{name}.{node.name}" if isinstance(node, ast.ClassDef | Function) else name)
    return name


def verdict(found: Iterable[Violation], exceptions: Mapping[str, str], exceptions_max: int) -> list[str]:
    """A line for each violation that no exception allows, and for what is wrong with the exceptions."""
    by_key: dict[str, list[Violation]] = defaultdict(list)
    for each in found:
        by_key[f"{each.rule} {each.at}"].append(each)
    lines = [f"{key}: {each.detail}" for key in by_key if key not in exceptions for each in by_key[key]]
    lines += [f"exception {key!r}: nothing needs it; delete it" for key in exceptions if key not in by_key]
    lines += [f"exception {key!r}: say why" for key, reason in exceptions.items() if len(reason.split()) < 3]
    if len(exceptions) > exceptions_max:
        lines.append(f"{len(exceptions)} exceptions, at most {exceptions_max}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the tree that `--project` names; 1 if a rule is broken."""
    parser = argparse.ArgumentParser(description="Check the rules of [tool.dhtcrawl.structure].")
    parser.add_argument("--project", type=Path, default=Path(), help="the directory of pyproject.toml")
    project: Path = parser.parse_args(arguments).project
    tool: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["tool"]
    settings = tool["dhtcrawl"]["structure"]
    cores = next(each for each in tool["importlinter"]["contracts"] if each.get("id") == "cores")["source_modules"]
    found = violations(project / tool["importlinter"]["root_package"], settings["limits"], cores)
    lines = verdict(found, settings["exceptions"], settings["exceptions_max"])
    print(*lines, f"structure: {len(lines)} violations, {len(settings['exceptions'])} exceptions", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
