"""Figures as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def clock(seconds: float) -> str:
    """`3.2 s`, `4:05`, `1:02:03`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def tally(counts: Mapping[str, int]) -> list[str]:
    """Counts by name, the greatest first: `404 12`, `dns 1`."""
    return [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def for_a_person(skipped: Mapping[str, int]) -> list[str]:
    """A line of a crawl's end on the pages that a person is to decide about; none where there are none."""
    count = skipped.get("recalled", 0)
    pages = "1 page" if count == 1 else f"{count} pages"
    return [f"  MANUAL     {pages} that no node began: decide with 'dhtcrawl crawls --manual'"] if count else []


def some(seeds: Sequence[str], total: int | None = None) -> str:
    """The first of the seeds, and how many more there are."""
    more = (len(seeds) if total is None else total) - 1
    first = seeds[0] if seeds else "nothing"
    return f"{first} and {more} more" if more > 0 else first


def fitting(figures: str, columns: int) -> str:
    """As many of the figures, which two spaces part, as fit on a line."""
    kept = ""
    for part in figures.split("  "):
        longer = f"{kept}  {part}" if kept else part
        if len(longer) > columns:
            break
        kept = longer
    return kept


def with_reason(figures: str, reason: str, columns: int) -> str:
    """A progress line that says why nothing moves: the reason counts more than the figures that do not fit."""
    head = _shortened(f"waiting: {reason}", columns)
    kept = fitting(figures, columns - len(head) - len("  |  "))
    return f"{kept}  |  {head}" if kept else head


def _shortened(reason: str, columns: int) -> str:
    """The reason without its middle where it is too long: the time left, at its end, is what people look for."""
    if len(reason) <= columns:
        return reason
    begin, comma, end = reason.rpartition(", ")
    tail = f"…{comma}{end}" if begin else "…"
    return reason[: max(0, columns - len(tail))] + tail if len(tail) < columns else reason[:columns]
