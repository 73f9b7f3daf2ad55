"""What REQUIRE_ALL_TESTS does to skips, and what is said of those that may be."""

from __future__ import annotations

import pytest
from requirements_plugin import NO_CONFORMANCE_DATA

pytest_plugins = ["pytester"]
# pytest-asyncio warns where its settings are not those of our pyproject.toml, which the runs within do not read.
PLUGINS = ("-p", "requirements_plugin", "-p", "no:asyncio")

SKIPPING = """
import pytest

@pytest.mark.skipif(True, reason="nginx is missing")
def test_marked(): ...

@pytest.mark.parametrize("vector", [1, 2])
def test_against_a_suite(vector):
    pytest.skip("%s")

def test_in_its_body():
    pytest.skip("not root")

def test_on_a_later_python():
    pytest.skip("needs Python 3.99")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_to_fail():
    assert False

def test_that_passes(): ...
""".replace("%s", NO_CONFORMANCE_DATA)

MODULE = "import pytest; pytest.importorskip('no_such_module_at_all')"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    monkeypatch.delenv("REQUIRE_ALL_TESTS", raising=False)
    pytester.makeini("[pytest]")  # or a pyproject.toml in a folder above temporary files would be read


@pytest.mark.parametrize("value", ["", "0"])
def test_skips_stay_skips_by_default(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", value)
    pytester.makepyfile(SKIPPING)
    pytester.runpytest(*PLUGINS).assert_outcomes(passed=1, skipped=5, xfailed=1)


def test_each_reason_to_skip_is_said_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest(*PLUGINS, "-q")
    assert [line for line in result.outlines if line.startswith("skipped ")] == [
        "skipped 1: needs Python 3.99",
        "skipped 1: nginx is missing",
        "skipped 1: not root",
        "skipped 2: the data of the conformance suites is missing: --conformance-dir DIR says where it is",
    ]


def test_skips_fail_when_all_is_required(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", "1")
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest(*PLUGINS, "-rA")
    # A skip by a marker happens in a test's set-up, so its failure is an error.
    result.assert_outcomes(passed=1, skipped=1, failed=3, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(["*this was skipped: nginx is missing*", "*this was skipped: not root*"])


def test_only_the_conformance_data_may_be_missing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", "but-conformance")
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest(*PLUGINS, "-rA")
    result.assert_outcomes(passed=1, skipped=3, failed=1, errors=1, xfailed=1)


def test_a_value_that_means_nothing_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", "yes")
    result = pytester.runpytest(*PLUGINS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*REQUIRE_ALL_TESTS is 'yes'*"])


def test_a_module_that_skips_itself_fails_too(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", "1")
    pytester.makepyfile(MODULE)
    pytester.runpytest(*PLUGINS).assert_outcomes(errors=1)
