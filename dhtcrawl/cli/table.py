"""Rows and fields as text that fits the terminal, 80 columns where there is none."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dhtcrawl.cli.words import clock
from dhtcrawl.units import size

GAP = "  "
CUT_TO_MIN = 8  # characters of a column that may be cut
ID_CHARS = 12


class Column(NamedTuple):
    """One column. The higher `spare`, the sooner it goes when there is no room; 0 stays."""

    title: str
    cell: Callable[[Mapping[str, Any]], str]
    right: bool = False
    cut: bool = False
    spare: int = 0


def columns_there() -> int:
    """How wide a line may be."""
    return shutil.get_terminal_size((80, 24)).columns


def printable(value: object) -> str:
    """Make text that moves no cursor: some of it comes from other machines."""
    return "".join(char if char.isprintable() else "?" for char in str(value))


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], width: int) -> str:
    """A head and a line for each row, none wider than `width`."""
    cells = {column.title: [printable(column.cell(row)) for row in rows] for column in columns}
    widths = {title: max(map(len, (title, *texts))) for title, texts in cells.items()}
    left = list(columns)
    while (over := _width(left, widths) - width) > 0:
        cuttable = [c for c in left if c.cut and widths[c.title] > max(CUT_TO_MIN, len(c.title))]
        if cuttable:
            widest = max(cuttable, key=lambda c: widths[c.title])
            widths[widest.title] = max(CUT_TO_MIN, len(widest.title), widths[widest.title] - over)
            continue
        spare = max(left, key=lambda c: c.spare)
        if not spare.spare:
            break
        left.remove(spare)
    lines = [[column.title for column in left]]
    lines += [[_cut(cells[column.title][n], widths[column.title]) for column in left] for n in range(len(rows))]
    padded = (
        GAP.join(
            text.rjust(widths[c.title]) if c.right else text.ljust(widths[c.title])
            for c, text in zip(left, line, strict=True)
        ).rstrip()
        for line in lines
    )
    return "\n".join(_cut(line, width) for line in padded)


def _width(columns: Sequence[Column], widths: Mapping[str, int]) -> int:
    return sum(widths[column.title] for column in columns) + len(GAP) * (len(columns) - 1)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def fields(values: Mapping[str, Any], width: int) -> str:
    """One line for each value that says something: its name, and what it is in words."""
    shown = {_name(name): in_words(name, value) for name, value in values.items() if value not in (None, "", [], {})}
    if not shown:
        return ""
    label = max(map(len, shown))
    lines: list[str] = []
    for name, text in shown.items():
        head = f"{name.ljust(label)}{GAP}"
        room = max(20, width - len(head))
        # An address that is broken in two is none.
        pieces = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [head + pieces[0], *(" " * len(head) + piece for piece in pieces[1:])]
    return "\n".join(lines)


def wrapped(head: str, text: str, width: int) -> str:
    """A text behind its head, with its further lines under it, none wider than `width`."""
    room = max(20, width - len(head))
    pieces = textwrap.wrap(printable(text), room, break_long_words=False, break_on_hyphens=False) or [""]
    return f"\n{' ' * len(head)}".join([printable(head) + pieces[0], *pieces[1:]])


def _name(name: str) -> str:
    return printable(name.removesuffix("_s").replace("_", " "))


def in_words(name: str, value: object) -> str:
    """A value by the unit that its name ends in."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_name(str(key))} {in_words(str(key), part)}" for key, part in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return ", ".join(in_words(name, part) for part in value)
    if isinstance(value, int | float):
        if name.endswith(("_s", "seconds")):
            return clock(value) if value >= 1 else f"{value * 1000:.3g} ms"
        if name.endswith("bytes"):
            return size(int(value))
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return printable(value)


def short(value: object) -> str:
    """The start of an id, as people type it."""
    return str(value or "")[:ID_CHARS]
