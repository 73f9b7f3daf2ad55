"""Policies by name, those of other packages among them; and the one that the documentation writes."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from harness.policies import Install

from dhtcrawl.errors import ConfigError
from dhtcrawl.policy import contract
from dhtcrawl.policy.contract import node, nodes, settings
from dhtcrawl.policy.registry import OURS, PolicyDescription, check, check_needs, describe, load, names
from dhtcrawl.policy.seam import Candidate, Outcome, Policy, PolicyTask, TaskResult

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"


def test_ours_are_all_there() -> None:
    assert names()[: len(OURS)] == list(OURS)
    for name in OURS:
        assert load(name).name == name
        check(name)


def test_a_policy_of_another_package_is_found_by_its_name(installed: Install) -> None:
    source = "from dhtcrawl.policy.xor import Xor\nclass Mine(Xor):\n    name = 'mine'\n"
    installed("somebodys_policy", source, mine="somebodys_policy:Mine", xor="somebodys_policy:Mine")
    assert "mine" in names()
    assert names().count("xor") == 1, "a name of ours stays ours"
    assert load("mine").name == "mine"
    assert load("xor").__module__ == "dhtcrawl.policy.xor"
    check("mine")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no licence')", "cannot be loaded: no licence"),
        ("Mine = 3", "no subclass"),
        ("class Mine: pass", "no subclass"),
        ("", "cannot be loaded"),
    ],
)
def test_one_that_is_none_is_a_clear_error(source: str, says: str, installed: Install) -> None:
    installed("broken_policy", source, mine="broken_policy:Mine")
    with pytest.raises(ConfigError, match=says):
        check("mine")


@pytest.mark.parametrize(("name", "module"), [("bp-pso", "scipy"), ("bp-pso", "psutil"), ("gnp", "numpy")])
def test_a_policy_whose_needs_are_missing_is_refused_with_the_remedy(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_needs(name)
    monkeypatch.setitem(sys.modules, module, None)
    assert describe(name).missing == (module,)
    with pytest.raises(ConfigError, match=f"{name} needs {module}, not installed here; run 'pip install {module}'"):
        check_needs(name)
    check_needs("xor")


@pytest.mark.parametrize(
    ("mode", "missing"), [("rates", ["scipy", "psutil"]), ("paper", ["scipy"]), ("net", []), ("auto", [])]
)
def test_a_mode_without_a_net_is_not_refused_for_what_only_the_net_needs(
    mode: str, missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    check_needs("bp-pso", [f"mode={mode}"])
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ConfigError, match="bp-pso needs numpy, not installed here") as refused:
        check_needs("bp-pso", [f"mode={mode}"])
    assert "\n" not in str(refused.value)


def test_what_ours_need_a_default_install_has() -> None:
    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    installed = {re.split(r"[^a-z0-9-]", line)[0] for line in project["dependencies"]}
    assert {module for name in OURS for module in load(name).needs} <= installed


def test_a_name_that_is_none_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="no policy 'fastest'; there are xor, balanced, dynamic, dspider"):
        check("fastest")


# What is told of them


@pytest.mark.parametrize("name", OURS)
def test_each_of_ours_says_what_it_does_and_what_it_needs(name: str) -> None:
    told = describe(name)
    assert (told.name, told.source, told.problem, told.missing) == (name, OURS[name], "", ())
    assert told.about == load(name).about
    assert 20 < len(told.about) < 100
    assert told.needs == tuple(load(name).needs)
    assert (told.planned_by == "coordinator") == (name in ("balanced", "dspider", "bp-pso", "gnp"))


def test_the_first_of_an_options_values_is_its_default() -> None:
    rows = re.findall(r"^\| `(.*?=.*?)`.*: the default", PAGE.read_text("utf-8"), re.MULTILINE)
    rows += re.findall(r"^\| `(rtt=.*?)`.*\(the default\)", PAGE.read_text("utf-8"), re.MULTILINE)
    told = {f"{option}={values[0]}" for name in OURS for option, values in describe(name).options.items() if values}
    assert told == set(rows)


MINE = """
from dhtcrawl.policy.balanced import Rates
from dhtcrawl.policy.xor import Xor

class Mine(Xor):
    name, about, needs, planner = "mine", "by hand", ("json", "no_such.thing"), Rates
    options = {"hand": ("left", "right"), "of": ()}

class Quiet(Xor):
    '''Says little.

    And more.
    '''

    about = ""
"""


def test_a_policy_of_another_package_is_described_by_what_it_says_of_itself(installed: Install) -> None:
    installed("told_policy", MINE, mine="told_policy:Mine", quiet="told_policy:Quiet")
    assert describe("mine") == PolicyDescription(
        name="mine",
        about="by hand",
        options={"hand": ("left", "right"), "of": ()},
        needs=("json", "no_such.thing"),
        missing=("no_such.thing",),
        planned_by="coordinator",
        source="told_policy:Mine",
    )
    assert describe("quiet").about == "Says little."


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no licence')", "mine (odd_policy:Mine) cannot be loaded: no licence"),
        ("raise SystemExit(3)", "mine (odd_policy:Mine) cannot be loaded: 3"),
        ("Mine = 3", "mine is 3, no subclass of dhtcrawl.policy.seam.Policy"),
        ("class Mine(Xor): options = 7", "does not describe itself: AttributeError: 'int' object has no attribute"),
        ("class Mine(Xor): needs = 7", "does not describe itself: TypeError: 'int' object is not iterable"),
    ],
)
def test_one_that_cannot_be_described_is_told_of_with_the_reason(source: str, says: str, installed: Install) -> None:
    installed("odd_policy", f"from dhtcrawl.policy.xor import Xor\n{source}\n", mine="odd_policy:Mine")
    told = describe("mine")
    assert says in told.problem
    assert (told.name, told.source) == ("mine", "odd_policy:Mine")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("options = 7", "AttributeError: 'int' object has no attribute 'items'"),
        ("options = {'hand': None}", "TypeError: 'NoneType' object is not iterable"),
        ("options = {'hand': 'left'}", r"TypeError: 'left' is no list; write it as \('left',\)"),
        ("needs = 'json'", r"TypeError: 'json' is no list; write it as \('json',\)"),
        ("needs_with = classmethod(lambda cls, options: options['hand'].no_such)", "AttributeError: 'str' object has"),
    ],
)
def test_one_that_describes_itself_wrongly_is_refused_with_the_reason(
    source: str, says: str, installed: Install
) -> None:
    source = f"class Mine(Xor):\n    options = {{'hand': ('left',)}}\n    {source}"
    installed("wrong_policy", f"from dhtcrawl.policy.xor import Xor\n{source}\n", mine="wrong_policy:Mine")
    checks = check_needs if "needs" in source else check
    with pytest.raises(ConfigError, match=f"crawl.policy: mine does not describe itself: {says}"):
        checks("mine", ["hand=left"])


def test_the_values_of_an_option_are_words_whatever_a_policy_has_them_as(installed: Install) -> None:
    source = "class Mine(Xor):\n    options = {'hands': (1, 2)}"
    installed("counting_policy", f"from dhtcrawl.policy.xor import Xor\n{source}\n", mine="counting_policy:Mine")
    check("mine", ["hands=2"])
    with pytest.raises(ConfigError, match="hands is '3'; with mine use one of 1, 2"):
        check("mine", ["hands=3"])


# What the documentation says


def written() -> type[Policy]:
    """The policy that docs/policies.md writes."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(source.splitlines()) <= 40
    found: dict[str, Any] = {}
    exec(source, found)
    made: type[Policy] = found["OwnCountry"]
    return made


def test_the_documented_policy_keeps_the_contract_and_does_what_it_says() -> None:
    contract.check(lambda: written()(settings()))
    policy = written()(settings())
    home = bytes.fromhex("5c1d9a7e") + bytes(16)
    candidates = [*nodes(5), Candidate(home)]
    for number in range(50):
        assert policy.rank(PolicyTask(contract.task(number).key, "example.de:8080"), candidates, 0.0)[0] == home
    assert policy.terms(node(1), "a.test").batch == 100
    policy.heard(Outcome(node(1), "a.test", TaskResult.PAGE, 9.0), 0.0)
    assert policy.terms(node(1), "a.test").batch == 10


def test_a_class_in_a_file_is_imported_where_it_is_allowed_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    name = "own_country_of_a_test:OwnCountry"
    file = tmp_path / "own_country_of_a_test.py"
    file.write_text(f"{source}\nopen('imported', 'x')\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    check(name, ["mode=any"])
    for allowed in ((), ("own_country_of_a_test:Other",), ("own_country_of_a_test",)):
        with pytest.raises(ConfigError, match=f"may import; start it with --allow-policy {name}"):
            load(name, allowed)
    assert not (tmp_path / "imported").exists()
    contract.check(lambda: load(name, (name,))(settings()))
    assert (tmp_path / "imported").exists()
    assert load(name, (name,)) is load(name, (name,)), "it is imported once"
    check(name, [], (name,))
    check_needs(name, allowed=(name,))
    with pytest.raises(ConfigError, match="has no option 'mode'"):
        check(name, ["mode=any"], (name,))
    monkeypatch.delitem(sys.modules, "own_country_of_a_test")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("ending_policy:X", "raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("empty_policy:X", "", "cannot be loaded: AttributeError"),
        ("no_policy:X", "X = 3", "no_policy:X is 3, no subclass"),
        ("missing_policy:X", None, "no module missing_policy is installed, and there is no missing_policy.py in"),
    ],
)
def test_a_class_that_is_allowed_and_is_no_policy_is_told_with_what_is_wrong(
    name: str, text: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / f"{name.partition(':')[0]}.py").write_text(text)
    with pytest.raises(ConfigError) as error:
        load(name, (name,))
    assert says in str(error.value)
    sys.modules.pop(name.partition(":")[0], None)


@pytest.mark.parametrize(
    "name", ["a:", ":B", "a:b:c", "../a:B", "a/b:C", "__main__:X", "a b:C", "a:B.c", "a" * 200 + ":B", "\u00e4:B"]
)
def test_a_name_that_is_no_class_is_refused_before_anything_is_looked_for(name: str) -> None:
    for allowed in ((), (name,)):
        with pytest.raises(ConfigError, match="is no module:Class"):
            load(name, allowed)


def test_the_documentation_names_every_policy() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == list(OURS)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("bp-pso", ["mode=fast"], "mode is 'fast'; with bp-pso use one of auto, rates, net, paper, exact, pso"),
        ("bp-pso", ["speed=1"], "bp-pso has no option 'speed'; it has mode"),
        ("xor", ["mode=pso"], "xor has no option 'mode'; it has none"),
    ],
)
def test_an_option_that_is_not_the_policys_is_refused(name: str, options: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        check(name, options)
    check("bp-pso", ["mode=pso"])
    check("dynamic", ["type=anything"])
