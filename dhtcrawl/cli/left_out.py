"""What a command that reads a crawl's directory tells of what it could not read there."""

from __future__ import annotations

from pathlib import Path

from dhtcrawl.cli.main import fail
from dhtcrawl.export.form import ProblemReport
from dhtcrawl.storage.outputs.outputs import PAGES_DIR, PAGES_FILE


def tell_left_out(root: Path, report: ProblemReport, *, without_body: int, unreadable_lines: int) -> None:
    """Say on stderr which pages and lines of `root` were left out: a line for each kind, and for each first problem."""
    if without_body:
        fail(f"{without_body} pages have no body in {root}; 'dhtcrawl verify {root}' names them")
    for problem in report.problems:
        fail(problem)
    if report.problems_total > len(report.problems):
        fail(f"and {report.problems_total - len(report.problems)} more records that are damaged")
    if unreadable_lines:
        fail(f"{unreadable_lines} lines of {root}/{PAGES_DIR}/{PAGES_FILE} could not be read and were left out")
