"""The rules that `make check` holds the package to: breaking each of them fails the check."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import check_structure
import pytest

BIN = Path(sys.executable).parent
LIMITS = {"attributes": 2, "methods": 2, "parameters": 2, "complexity": 2}
PROJECT = Path(__file__).parent.parent


class MadeUp:
    """A project of its own with a package of a few lines, `house`, and limits of two."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.module("__init__", '"""A house."""')

    def module(self, name: str, content: str) -> None:
        path = self.directory / "house" / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", "utf-8")

    def broken(self, *cores: str) -> list[str]:
        found = check_structure.violations(self.directory / "house", LIMITS, cores)
        return [f"{each.rule} {each.at}" for each in found]

    def settings(self, more: str = "", *, exceptions: str = "") -> None:
        limits = "\n".join(f"{rule} = {limit}" for rule, limit in LIMITS.items())
        (self.directory / "pyproject.toml").write_text(
            f"""
[tool.dhtcrawl.structure]
exceptions_max = 1
[tool.dhtcrawl.structure.limits]
{limits}
[tool.dhtcrawl.structure.exceptions]
{exceptions}
[tool.importlinter]
root_package = "house"
include_external_packages = true
[[tool.importlinter.contracts]]
id = "cores"
name = "Cores"
type = "forbidden"
source_modules = ["house.core"]
forbidden_modules = ["asyncio", "socket", "os", "time", "random", "threading"]
{more}
""",
            "utf-8",
        )

    def check(self) -> int:
        return check_structure.main(["--project", str(self.directory)])

    def lint_imports(self) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "lint-imports"), "--config", "pyproject.toml", "--no-cache"]
        environ = os.environ | {"PYTHONPATH": str(self.directory)}
        return subprocess.run(command, cwd=self.directory, env=environ, text=True, capture_output=True, check=False)


@pytest.fixture
def house(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path)


def test_the_package_keeps_its_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    assert check_structure.main([]) == 0


def test_the_architecture_prints_the_layers_as_the_contracts_have_them() -> None:
    printed = (PROJECT / "docs" / "architecture.md").read_text("utf-8")
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    for contract in (each for each in contracts if each["type"] == "layers"):
        lines = [contract["containers"][0].replace(".", "/") + "/", *(f"    {layer}" for layer in contract["layers"])]
        assert "```\n" + "\n".join(lines) + "\n```\n" in printed, f"print in docs/architecture.md: {lines}"


def test_an_attribute_too_many_is_found_wherever_it_is_assigned(house: MadeUp) -> None:
    house.module(
        "m", "class A:\n def f(self):\n  self.a, self.b = 1, 2\n def g(self):\n  self.b += 1\n  self.c: int = 3"
    )
    assert house.broken() == ["attributes house.m.A"]


def test_another_object_s_attributes_and_class_variables_do_not_count(house: MadeUp) -> None:
    house.module(
        "m", "class A:\n x = 1\n def f(self, b):\n  self.a = 1\n  b.c = 2\n  self.a.d = 3\n  print(self.e, self.f)"
    )
    assert house.broken() == []


def test_inherited_attributes_count_once_at_the_class_that_goes_over_the_limit(house: MadeUp) -> None:
    house.module("m", "class A:\n def f(self):\n  self.a = self.b = 1")
    house.module("n", "from house.m import A\nclass B(A):\n def g(self):\n  self.c = 1\nclass C(B):\n pass")
    assert house.broken() == ["attributes house.n.B"]


def test_a_public_method_too_many_is_found_and_private_ones_do_not_count(house: MadeUp) -> None:
    methods = "\n".join(f" def {name}(self): pass" for name in ("a", "b", "_c", "__len__"))
    house.module("m", f"class A:\n{methods}")
    assert house.broken() == []
    house.module("m", f"class A:\n{methods}\n @property\n def d(self): pass")
    assert house.broken() == ["methods house.m.A"]


def test_a_public_function_says_which_errors_its_body_raises(house: MadeUp) -> None:
    house.module("m", "def f(): raise KeyError('x')\nclass A:\n def g(self): raise Odd")
    assert house.broken() == ["raises house.m.A.g", "raises house.m.f"]
    house.module("m", "def f():\n '''F.\n\n Raises:\n  ValueError: no.\n '''\n raise KeyError('x')")
    assert house.broken() == ["raises house.m.f"]
    house.module("m", "def f():\n '''F.\n\n Raises:\n  KeyError: no.\n '''\n raise KeyError('x')")
    assert house.broken() == []


def test_an_error_that_a_helper_makes_needs_a_word_too(house: MadeUp) -> None:
    house.module("m", "def f(): raise odd('x')")
    assert house.broken() == ["raises house.m.f"]
    house.module("m", "def f():\n '''F.\n\n Raises:\n  Odd: no.\n '''\n raise odd('x')")
    assert house.broken() == []


def test_a_class_a_base_or_a_protocol_may_say_what_a_method_raises(house: MadeUp) -> None:
    said = "'''S.\n\n  Raises:\n   Odd: no.\n  '''"
    port = f"class P(Protocol):\n @property\n def x(self): pass\n def f(self):\n  {said}\n"
    base = f"class B:\n def f(self):\n  {said}\n"
    own = "class A:\n def __init__(self): self.x = 1\n def f(self): raise Odd('x')"
    house.module("m", own)
    assert house.broken() == ["raises house.m.A.f"]
    for documented in (own.replace("A:\n", f"A:\n {said}\n"), port + own, base + own.replace("A:", "A(B):")):
        house.module("m", documented)
        assert house.broken() == []
    house.module("m", port.replace("def f", "def g") + own)
    assert house.broken() == ["raises house.m.A.f"]


def test_private_and_inner_functions_commands_and_assertions_need_no_word_about_errors(house: MadeUp) -> None:
    house.module(
        "m",
        "def _f(): raise Odd('x')\nclass _A:\n def f(self): raise Odd('x')\n"
        "@click.command('c')\ndef c(): raise Odd('x')\ndef g():\n def h(): raise Odd('x')\n return h\n"
        "def k(): raise AssertionError('x')\ndef m():\n try: g()\n except Odd as odd: raise",
    )
    assert house.broken() == []


def test_a_constructor_s_parameter_too_many_is_found(house: MadeUp) -> None:
    house.module("m", "class A:\n def __init__(self, a, *, b): pass")
    assert house.broken() == []
    house.module("m", "class A:\n def __init__(self, a, *, b, c=1): pass")
    assert house.broken() == ["parameters house.m.A"]


def test_fields_of_a_dataclass_are_attributes_and_parameters(house: MadeUp) -> None:
    head = "from dataclasses import dataclass, field\nfrom typing import ClassVar\n"
    house.module("m", f"{head}@dataclass(slots=True)\nclass A:\n a: int\n b: int\n c: ClassVar[int] = 1")
    assert house.broken() == []
    house.module("m", f"{head}@dataclass(slots=True)\nclass A:\n a: int\n b: int\n c: int = field(init=False)")
    assert house.broken() == ["attributes house.m.A"]
    house.module("m", f"{head}@dataclass\nclass A:\n a: int\n b: int\n c: int = 1")
    assert house.broken() == ["attributes house.m.A", "parameters house.m.A"]


@pytest.mark.parametrize(
    "head",
    [
        "@dataclass(frozen=True, slots=True)\nclass A:",
        "class A(NamedTuple):",
        "class A(TypedDict):",
        "@dataclass\nclass ASettings:",
        "@dataclass\nclass ACounters:",
    ],
)
def test_values_settings_and_counters_may_be_large(house: MadeUp, head: str) -> None:
    house.module("m", f"{head}\n a: int\n b: int\n c: int")
    assert house.broken() == []


def test_a_function_with_a_branch_too_many_is_found_whatever_noqa_says(house: MadeUp) -> None:
    house.module("m", "class A:\n def f(self, a):  # noqa: C901\n  if a: pass\n  if a: pass")
    assert house.broken() == ["complexity house.m.A.f"]


@pytest.mark.parametrize(
    "line",
    [
        "self.a += await f()",
        "self.a[b] -= 1 + await f()",
        "self.a = self.a + await f()",
        "self.a = await f(self.a)",
        "self.a[b]: int = max(self.a[b], await f())",
        "b, self.a = await f(self.a), 1",
        "self.a = [self.a,\n   await f()]",
    ],
)
def test_what_is_read_before_an_await_and_set_after_it_is_refused(house: MadeUp, line: str) -> None:
    house.module("m", f"class A:\n async def g(self, b, f):\n  {line}")
    assert house.broken() == ["await house.m.A.g"]


@pytest.mark.parametrize(
    "line",
    [
        "self.a = await f()",
        "self.a = await f() + self.a",
        "self.a = await f(self.b, b[0])",
        "c = await f()\n  self.a += c",
        "b += await f()",
        "self.a += b",
    ],
)
def test_what_is_read_after_the_await_or_is_a_variable_may_be_set(house: MadeUp, line: str) -> None:
    house.module("m", f"class A:\n async def g(self, b, f):\n  {line}")
    assert house.broken() == []


@pytest.mark.parametrize(
    "back",
    ["import house.a", "from house.a import X", "from house import a", "def f():\n from house.a import X"],
)
def test_a_cycle_of_files_is_found_wherever_the_import_stands(house: MadeUp, back: str) -> None:
    house.module("a", "from house.b import Y\nX = 1")
    house.module("b", "from house.c import Z\nY = 1")
    house.module("c", back)
    assert house.broken() == ["cycle house.a"]


def test_each_cycle_of_files_is_told_of(house: MadeUp) -> None:
    for one, other in (("a", "b"), ("c", "d")):
        house.module(one, f"import house.{other}")
        house.module(other, f"import house.{one}")
    assert house.broken() == ["cycle house.a", "cycle house.c"]


def test_a_class_name_that_two_modules_define_is_refused(house: MadeUp) -> None:
    house.module("a", "class Lease: pass")
    house.module("b", "class Lease: pass")
    assert house.broken() == ["name house.b.Lease"]


def test_whoever_claims_to_be_without_io_is_marked_and_the_other_way_round(house: MadeUp) -> None:
    house.module("core", '"""What is due, without I/O."""')
    house.module("shell", '"""Sockets."""')
    assert house.broken("house.core") == []
    assert house.broken("house.core", "house.shell") == ["core house.shell"]
    assert house.broken() == ["core house.core"]


@pytest.mark.parametrize("module", ["asyncio", "socket", "os", "time", "random", "threading"])
def test_a_core_that_imports_io_clock_or_chance_fails_the_imports_contract(house: MadeUp, module: str) -> None:
    house.settings()
    house.module("core", "import dataclasses")
    assert house.lint_imports().returncode == 0
    house.module("core", f"import {module}")
    failed = house.lint_imports()
    assert failed.returncode == 1
    assert f"house.core is not allowed to import {module}" in failed.stdout


def test_a_core_that_imports_a_shell_fails_the_imports_contract(house: MadeUp) -> None:
    house.settings()
    house.module("core", "def f():\n from house.shell import g")
    house.module("shell", "import asyncio")
    assert "house.core -> house.shell" in house.lint_imports().stdout


def test_an_import_up_the_house_or_a_room_without_a_layer_fails_the_imports_contract(house: MadeUp) -> None:
    layers = (
        '[[tool.importlinter.contracts]]\nname = "Down"\ntype = "layers"\ncontainers = ["house"]\nexhaustive = true\n'
    )
    house.settings(layers + 'layers = ["upper", "core"]')
    house.module("core", "")
    house.module("upper", "import house.core")
    assert house.lint_imports().returncode == 0
    house.module("core", "import house.upper")
    assert "house.core is not allowed to import house.upper" in house.lint_imports().stdout
    house.module("core", "")
    house.module("attic", "")
    assert "attic" in house.lint_imports().stdout


def test_the_check_fails_at_a_violation_unless_an_exception_says_why(
    house: MadeUp, capsys: pytest.CaptureFixture[str]
) -> None:
    house.module("core", '"""No I/O."""\nclass A:\n def __init__(self, a, b, c): pass')
    house.settings()
    assert house.check() == 1
    assert "parameters house.core.A: 3 parameters, at most 2" in capsys.readouterr().out
    house.settings(exceptions='"parameters house.core.A" = "three are what a triangle has"')
    assert house.check() == 0
    house.settings(exceptions='"parameters house.core.A" = "so"')
    assert house.check() == 1
    assert "say why" in capsys.readouterr().out


def test_an_exception_that_nothing_needs_or_one_too_many_fails_the_check(
    house: MadeUp, capsys: pytest.CaptureFixture[str]
) -> None:
    house.module("core", '"""No I/O."""')
    house.settings(exceptions='"name house.A" = "it was once so"\n"name house.B" = "it was once so"')
    assert house.check() == 1
    printed = capsys.readouterr().out
    assert "exception 'name house.A': nothing needs it" in printed
    assert "2 exceptions, at most 1" in printed
