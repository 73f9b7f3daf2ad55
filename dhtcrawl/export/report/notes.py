"""What a reader should know of a crawl before the figures: a sentence each, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from dhtcrawl.export.report.tally import Fields, Tally, count_of
from dhtcrawl.export.report.words import counted, many, share

MANY_FAILED: Final = 0.05  # of what was asked for

_LIMITS: Final = {
    "page-limit": "the page limit was reached",
    "time-limit": "the time limit was reached",
    "size-limit": "the size limit was reached",
    "disk-limit": "the disk limit was reached",
}
_MUST_BE_NONE: Final = {
    "lost": ("link of fetched pages has no record", "links of fetched pages have no record"),
    "pages_missing": ("page has no body in the archive", "pages have no body in the archive"),
    "politeness_violations": (
        "request began sooner than its host's delay",
        "requests began sooner than their hosts' delays",
    ),
}


class Weight(StrEnum):
    """How much a note matters; also the class of its box."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class Note(NamedTuple):
    """A sentence or two, and how much they matter."""

    weight: Weight
    text: str


def notes(tally: Tally, summary: Fields | None) -> list[Note]:
    """The notes on a crawl, the gravest first; `summary` is that of its summary.json, None where that is damaged."""
    if summary is None:
        return [Note(Weight.BAD, "summary.json cannot be read: how the crawl ended is not known.")]
    found = [*_of_the_end(tally, summary), *_of_promises(summary), *_of_failures(tally), *_of_robots(tally)]
    return sorted(found, key=lambda note: list(Weight).index(note.weight), reverse=True)


def _of_the_end(tally: Tally, summary: Fields) -> Iterator[Note]:
    if not summary:
        yield Note(
            Weight.WARN,
            "The crawl has not ended: what stands here is what was written until now. "
            "The same command goes on with a crawl that was stopped.",
        )
        return
    if not any(status.startswith("2") for status, _ in tally.answers.by_name()):
        yield Note(Weight.BAD, "Nothing but redirects and errors was fetched, if anything.")
    if summary.get("complete") is True:
        yield Note(Weight.GOOD, "The crawl is complete: nothing was left to do, and every link is accounted for.")
        return
    skipped = summary.get("skipped")
    reasons = skipped if isinstance(skipped, dict) else {}
    limits = [text for reason, text in _LIMITS.items() if count_of(reasons.get(reason))]
    if limits:
        yield Note(Weight.WARN, f"The crawl is not complete: {' and '.join(limits)}. With a higher one it goes on.")
    else:
        yield Note(
            Weight.WARN,
            "The crawl is not complete: it was interrupted or stopped, or what a node has is not here. "
            "The command that wrote it goes on with it.",
        )


def _of_promises(summary: Fields) -> Iterator[Note]:
    for field, (one, several) in _MUST_BE_NONE.items():
        count = count_of(summary.get(field))
        if count:
            yield Note(Weight.BAD, f"{counted(count, one, several)}; dhtcrawl verify DIR says which and why.")


def _of_failures(tally: Tally) -> Iterator[Note]:
    asked = tally.pages.count + tally.skipped.count("failed")
    failed = tally.broken.total
    if failed and failed >= MANY_FAILED * asked:
        urls = counted(asked, "URL that was", "URLs that were")
        yield Note(Weight.WARN, f"{many(failed)} of {urls} asked for failed ({share(failed, asked)}): see below which.")


def _of_robots(tally: Tally) -> Iterator[Note]:
    kept_out = tally.skipped.count("robots")
    if kept_out and kept_out > tally.pages.count:
        yield Note(
            Weight.WARN,
            f"robots.txt kept the crawl out of {counted(kept_out, 'URL', 'URLs')}, more than it brought pages.",
        )
