"""What all benchmarks share: the rows of their reports, the table for people, the JSON for programs, the exit code.

    {"rows": [{"name", "claim", "target", "measured", "unit", "samples", "ok", "by"}]}

`measured` is a number, a median where there are several samples; `samples` is
how many there are, and `values` has them where a benchmark keeps them. `by`
says what was at work. A row without a target is information, and `ok`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from dhtcrawl import __version__

Row = dict[str, Any]
FIELDS = ("name", "claim", "target", "measured", "unit", "samples", "ok", "by")
OURS = f"dhtcrawl {__version__} on CPython {platform.python_version()}"
SIMULATED = f"the simulator of {OURS}"


def row(
    name: str,
    measured: float,
    unit: str,
    samples: int | Sequence[float],
    *,
    by: str = OURS,
    claim: str = "",
    target: float | str | None = None,
    ok: bool = True,
    digits: int = 3,
) -> Row:
    """One row; `samples` are values, which are kept, or their number."""
    values = {} if isinstance(samples, int) else {"values": [round(value, digits) for value in samples]}
    count = samples if isinstance(samples, int) else len(samples)
    return {
        "name": name, "claim": claim, "target": target, "measured": round(measured, digits), "unit": unit,
        "samples": count, "ok": ok, "by": by,
    } | values  # fmt: skip


def add_options(parser: argparse.ArgumentParser, quick: str) -> None:
    """`--quick`, which does what `quick` says, and `--json`."""
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=output, metavar="FILE", help="write the rows there; - for stdout")


def output(name: str) -> str:
    """A file that an option of argparse names, in which something is written once all is measured, hours later.

    Raises:
        ArgumentTypeError: it cannot be written.
    """
    path = Path(name)
    place = path if path.exists() else path.parent
    if name != "-" and (path.is_dir() or not (path.exists() or place.is_dir()) or not os.access(place, os.W_OK)):
        raise argparse.ArgumentTypeError(f"{name} cannot be written; name another file")
    return name


def command(name: str) -> str:
    """A command that an option of argparse names, by a path that leads to it from anywhere.

    Raises:
        ArgumentTypeError: there is none.
    """
    found = shutil.which(name)
    if found is None:
        raise argparse.ArgumentTypeError(f"{name} is no command that can be run; name it by its path")
    return str(Path(found).absolute())


def count(text: str) -> int:
    """A number of something that an option of argparse gives.

    Raises:
        ArgumentTypeError: it is none, or less than 1.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number that can be used here; use 1 or more")
    return int(text)


def counts(text: str) -> list[int]:
    """Several of them, with commas.

    Raises:
        ArgumentTypeError: one of them is none, or less than 1.
    """
    return [count(each.strip()) for each in text.split(",")]


def table(rows: Iterable[Row]) -> str:
    """A line for each row, for people."""
    rows = list(rows)
    width = max((len(item["name"]) for item in rows), default=0)
    lines = [f"{'':{width}}{'measured':>14} {'unit':14}{'target':>10}  {'':8}"]
    for item in rows:
        target = item["target"]
        shown = "" if target is None else f"{target:,g}" if isinstance(target, int | float) else target
        verdict = "" if target is None else ("ok" if item["ok"] else "NOT OK")
        line = f"{item['name']:{width}}{item['measured']:>14,} {item['unit']:14}{shown:>10}  {verdict:8}{item['claim']}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def print_table(rows: Iterable[Row], heading: str = "") -> None:
    """The table on stderr: stdout may be the JSON's."""
    print(f"\n{heading}\n{table(rows)}" if heading else table(rows), file=sys.stderr)


def json_text(rows: Iterable[Row], **more: object) -> str:
    """The rows for programs, and `more` beside them."""
    return json.dumps({"rows": list(rows)} | more, indent=2, ensure_ascii=False) + "\n"


def finish(rows: Sequence[Row], json_file: str | None, **more: object) -> int:
    """Write the rows where they were asked for; the exit code: 0 only when every row with a target is ok."""
    text, good = json_text(rows, **more), all(item["ok"] for item in rows)
    if json_file and json_file != "-":
        try:
            Path(json_file).write_text(text, "utf-8")
            return 0 if good else 1
        except OSError as error:
            # What was measured for hours is not lost.
            print(f"bench: {json_file} cannot be written ({error.strerror}); stdout has it", file=sys.stderr)
            good = False
    if json_file:
        print(text, end="")
    return 0 if good else 1
