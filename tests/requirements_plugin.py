"""A pytest plugin: with REQUIRE_ALL_TESTS=1 a test that would skip fails.

On somebody's laptop a test that needs nginx, root or the conformance data may
skip. In continuous integration a skip is a hole nobody sees, so `.ci/run` sets
the variable. A reason that holds everywhere goes into `ALLOWED_REASONS`.

The tests' own options are declared here too: a plugin is loaded before pytest
looks at the command line, a conftest.py after it.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

# A skip is allowed where its reason contains one of these.
ALLOWED_REASONS: tuple[str, ...] = ("needs Python 3.", "needs a free-threaded build")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance-dir",
        metavar="DIR",
        default=None,
        help="where the vectors of robots.txt, URLs, encodings and content codings lie; without it their tests skip",
    )


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


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or os.environ.get("REQUIRE_ALL_TESTS") != "1":
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if any(allowed in reason for allowed in ALLOWED_REASONS):
        return
    report.outcome = "failed"
    report.longrepr = f"REQUIRE_ALL_TESTS=1, but this was skipped: {reason.removeprefix('Skipped: ')}"
