"""What REQUIRE_ALL_TESTS=1 does to skips."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SKIPPING = """
import pytest

@pytest.mark.skipif(True, reason="nginx is missing")
def test_marked(): ...

def test_in_its_body():
    pytest.skip("not root")

def test_on_a_later_python():
    pytest.skip("needs Python 3.99")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_to_fail():
    assert False

def test_that_passes(): ...
"""

MODULE = "import pytest; pytest.importorskip('no_such_module_at_all')"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_ALL_TESTS", raising=False)


def test_skips_stay_skips_by_default(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SKIPPING)
    pytester.runpytest("-p", "requirements_plugin").assert_outcomes(passed=1, skipped=3, xfailed=1)


def test_skips_fail_when_all_is_required(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", "1")
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest("-p", "requirements_plugin", "-rA")
    # A skip by a marker happens in a test's set-up, so its failure is an error.
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(["*this was skipped: nginx is missing*", "*this was skipped: not root*"])


def test_a_module_that_skips_itself_fails_too(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_ALL_TESTS", "1")
    pytester.makepyfile(MODULE)
    pytester.runpytest("-p", "requirements_plugin").assert_outcomes(errors=1)
