"""A pytest plugin that says which tests were skipped and why, and makes a skip a failure where it is told to.

On a laptop a test that needs nginx, root or the conformance data may skip; the
last lines of the run say how many did for each reason. In continuous
integration a skip is a hole that no reader of a green result sees, so `.ci/run`
sets REQUIRE_ALL_TESTS:

    unset, empty, 0     a test may skip
    1                   a skip is a failure
    but-conformance     a skip is a failure, unless the conformance data is what is missing

A reason that holds everywhere goes into `ALLOWED_REASONS`.

The tests' own options are declared here too: a plugin is loaded before pytest
looks at the command line, a conftest.py after it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

# A skip is allowed where its reason contains one of these.
ALLOWED_REASONS: tuple[str, ...] = ("needs Python 3.", "needs a free-threaded build")
NO_CONFORMANCE_DATA = "the data of the conformance suites is missing: --conformance-dir DIR says where it is"

_REASONS_ALLOWED_BY_VALUE: dict[str, tuple[str, ...] | None] = {
    "": None,
    "0": None,
    "1": ALLOWED_REASONS,
    "but-conformance": (*ALLOWED_REASONS, NO_CONFORMANCE_DATA),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance-dir",
        metavar="DIR",
        default=None,
        help="where the vectors of robots.txt, URLs, encodings and content codings lie; without it their tests skip",
    )
    parser.addoption(
        "--mutants",
        metavar="N",
        type=int,
        default=10_000,
        help="how many mutated pages, and how many mutated replies, the tests of hostile input try",
    )


def pytest_configure() -> None:
    """Refuse a value of REQUIRE_ALL_TESTS that means nothing: it would let skips pass.

    Raises:
        pytest.UsageError: the value is none of those above.
    """
    if _required() not in _REASONS_ALLOWED_BY_VALUE:
        raise pytest.UsageError(f"REQUIRE_ALL_TESTS is {_required()!r}; it may be 1, 0 or but-conformance")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test's skip, from a marker, a fixture or its body."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole module's skip (`importorskip`, `allow_module_level`)."""
    report = yield
    _refuse_skip(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason to skip."""
    reasons = Counter(_reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")


def _required() -> str:
    return os.environ.get("REQUIRE_ALL_TESTS", "")


def _reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    allowed = _REASONS_ALLOWED_BY_VALUE.get(_required())
    if not report.skipped or allowed is None:
        return
    reason = _reason_of(report)
    if not any(each in reason for each in allowed):
        report.outcome = "failed"
        report.longrepr = f"REQUIRE_ALL_TESTS={_required()}, but this was skipped: {reason}"
