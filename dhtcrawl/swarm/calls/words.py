"""Kinds of values, and their limits, that calls of several rooms have. No I/O."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.rpc.tasks.schema import WireMap, integer, items, mapping, number, octets, or_nil, text
from dhtcrawl.standing import ABOUT_CHARS_MAX, CAUSE_CHARS_MAX, DETAIL_CHARS_MAX, Obstacle
from dhtcrawl.url import HOST_CHARS_MAX, URL_CHARS_MAX, canonicalize

COUNT_MAX: Final = 2**63 - 1
KEYS_MAX: Final = 500  # of the 512 items that a list on the wire may have
HELD_KEYS_MAX: Final = 8_000  # two thirds of the answer that a newcomer wants to hold, where keys are longest


def is_host(value: str) -> bool:
    """Whether this may be a host: printable ASCII without a slash."""
    return value.isascii() and value.isprintable() and "/" not in value


def is_origin(value: str) -> bool:
    """Whether it is a scheme and a host, as robots.txt has them."""
    scheme, separator, host = value.partition("://")
    return scheme in ("http", "https") and separator != "" and 1 <= len(host) <= HOST_CHARS_MAX and is_host(host)


def _is_canonical(value: str) -> bool:
    return canonicalize(value) == value


_KEY_WIDTHS: Final = (KEY_BYTES, 2 * KEY_BYTES)

Crawl = Annotated[bytes, octets(CRAWL_ID_BYTES), "the crawl's id"]
TaskKey = Annotated[bytes, octets(*_KEY_WIDTHS)]
TaskKeys = Annotated[tuple[bytes, ...], items(octets(*_KEY_WIDTHS), KEYS_MAX, distinct=True)]
Count = Annotated[int, integer(0, COUNT_MAX)]
Host = Annotated[str, text(HOST_CHARS_MAX, 1, made_of=is_host, says="printable ASCII without a slash")]
Url = Annotated[str, text(URL_CHARS_MAX, 1, where=_is_canonical, says="a canonical URL")]
_WORD = text(32, 1, where=re.compile(r"[a-z][a-z0-9_-]*").fullmatch, says="a-z, 0-9, _ and -")
WORDS_MAX: Final = 80
Waiting = Annotated[Mapping[str, int], mapping(_WORD, integer(0, COUNT_MAX), WORDS_MAX)]
Counters = Annotated[Mapping[str, int | float], mapping(_WORD, number(0, COUNT_MAX), WORDS_MAX)]
Figures = Annotated[Mapping[str, int | float], mapping(_WORD, number(-COUNT_MAX, COUNT_MAX), WORDS_MAX)]


NODES_TOLD_MAX: Final = 64  # rows of nodes that are gone, in each wave
SPAN_MS_MAX: Final = 2**53
NodeId = Annotated[bytes, octets(KEY_BYTES)]
SpanMs = Annotated[int, integer(0, SPAN_MS_MAX)]
SpanMsOrNone = Annotated[int | None, or_nil(integer(0, SPAN_MS_MAX))]


class ObstacleRow(NamedTuple):
    """What keeps a crawl from going on: `standing.Obstacle`."""

    cause: Annotated[str, text(CAUSE_CHARS_MAX, 1, where=re.compile(r"[a-z][a-z-]*").fullmatch, says="a-z and -")]
    about: Annotated[str, text(ABOUT_CHARS_MAX)]
    detail: Annotated[str, text(DETAIL_CHARS_MAX)]
    number: Count
    for_ms: SpanMsOrNone
    left_ms: SpanMsOrNone


def obstacle_row(obstacle: Obstacle) -> ObstacleRow:
    """An obstacle as it is sent."""
    return ObstacleRow(
        obstacle.cause,
        obstacle.about[:ABOUT_CHARS_MAX],
        obstacle.detail[:DETAIL_CHARS_MAX],
        obstacle.number,
        _ms(obstacle.for_s),
        _ms(obstacle.left_s),
    )


def row_of(obstacle: Obstacle | None) -> ObstacleRow | None:
    """As `obstacle_row`; None stays None."""
    return None if obstacle is None else obstacle_row(obstacle)


def obstacle_in(row: ObstacleRow | None) -> Obstacle | None:
    """An obstacle that was sent, if one was."""
    return None if row is None else obstacle_of(row)


def obstacle_of(row: ObstacleRow) -> Obstacle:
    """An obstacle that was sent."""
    return Obstacle(row.cause, row.about, row.detail, row.number, _seconds(row.for_ms), _seconds(row.left_ms))


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else min(SPAN_MS_MAX, max(0, round(1000 * seconds)))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


class Done(WireMap):
    """An empty map: the call was carried out."""
