"""The words for where hosts and crawls stand, and for why nothing moves. Pure; the one place that has them.

A crawl is *running*, *paused*, *stopping* or *ended*. What keeps a crawl, or a host, from going on is an `Obstacle`: a
word of `CAUSES`, what it is about, and how long it has lasted and will last. Commands, progress lines, the API and the
dashboard show `sentence` of it; programs read the word.

    ready     a request may begin now, or one is under way
    waiting   until the delay since its last answer is over, or its robots.txt is read, or the lease comes
    snoozed   it asked for a pause: 429 or 503, with or without Retry-After
    asleep    it does not answer, and is tried again later
    dead      it was given up: its pages are not fetched
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Final, NamedTuple

CAUSE_CHARS_MAX: Final = 32
ABOUT_CHARS_MAX: Final = 300
DETAIL_CHARS_MAX: Final = 200
# A shorter wait is the crawl's pace, and not what keeps it from going on.
PACE_S: Final = 2.0


class HostCondition(StrEnum):
    """Where a host stands at one node; see the top of this file."""

    READY = "ready"
    WAITING = "waiting"
    SNOOZED = "snoozed"
    ASLEEP = "asleep"
    DEAD = "dead"


class Cause:
    """The words of `CAUSES`."""

    PAUSED = "paused"
    STOPPING = "stopping"
    PAGE_LIMIT = "page-limit"
    JOINING = "joining"
    ALONE = "alone"
    SILENT = "silent"
    HOLDER_GONE = "holder-gone"
    RETRY_AFTER = "retry-after"
    LINE = "line"
    FAILING = "failing"
    RESTART = "restart"
    GATEKEEPER = "gatekeeper"
    CRAWL_DELAY = "crawl-delay"
    DELAY = "delay"
    ROBOTS = "robots"
    LEASE = "lease"
    RETRY = "retry"
    OWED = "owed"


class Obstacle(NamedTuple):
    """What keeps a crawl or a host from going on, or did when it was told; times in seconds, None where unknown."""

    cause: str
    about: str = ""  # a host, or a node's id in hex
    detail: str = ""
    number: int = 0  # pages, tasks or records that wait for it; of nodes without contact, how many there are
    for_s: float | None = None
    left_s: float | None = None


class _CauseRow(NamedTuple):
    says: str  # {about}, {detail} and {number} are filled in
    host: HostCondition | None = None  # the state of a host that it keeps back


# In the order in which a crawl names them: the first that holds at any of its nodes is the one that people are told.
CAUSES: Final = {
    Cause.PAUSED: _CauseRow("it is paused, until it is resumed"),
    Cause.STOPPING: _CauseRow("it is being stopped, and what is under way is written"),
    Cause.PAGE_LIMIT: _CauseRow("the page limit is reached"),
    Cause.JOINING: _CauseRow("{about} is joining: it copies its part of the records first"),
    Cause.ALONE: _CauseRow("{about} has no contact with its swarm ({number} other nodes are known); {detail}"),
    Cause.SILENT: _CauseRow("{about} does not answer"),
    Cause.HOLDER_GONE: _CauseRow("{number} pages lie only at {about}, which is gone; they are fetched again"),
    Cause.RETRY_AFTER: _CauseRow("{about} asked for a pause ({detail})", HostCondition.SNOOZED),
    Cause.LINE: _CauseRow(
        "no host is reached, {about} the last ({detail}): the line of this machine may be down", HostCondition.ASLEEP
    ),
    Cause.FAILING: _CauseRow("{about} does not answer ({detail}), and is tried again", HostCondition.ASLEEP),
    Cause.RESTART: _CauseRow("{about} is left alone, as it was asked before the restart", HostCondition.SNOOZED),
    Cause.GATEKEEPER: _CauseRow("the gatekeeper of {about} {detail}", HostCondition.WAITING),
    Cause.CRAWL_DELAY: _CauseRow("the Crawl-delay in the robots.txt of {about}", HostCondition.WAITING),
    Cause.DELAY: _CauseRow("the delay between requests to {about}", HostCondition.WAITING),
    Cause.ROBOTS: _CauseRow("the robots.txt of {about} is being read", HostCondition.WAITING),
    Cause.LEASE: _CauseRow("it is not this node's turn at {about}, as its gatekeeper says", HostCondition.WAITING),
    Cause.RETRY: _CauseRow("pages of {about} are tried again later", HostCondition.WAITING),
    Cause.OWED: _CauseRow("{number} {detail} at {about}"),
}
# Of a host's gatekeeper, while nodes wait for the host because of it.
GATEKEEPER_SILENT: Final = "does not answer"
GATEKEEPER_NEW: Final = "is new, and lets the last lease of the former one end"

_RANKS: Final = {cause: rank for rank, cause in enumerate(CAUSES)}

FROZEN: Final = "frozen"
# What keeps a crawl from its end at a node, in words for people. A word of a later version is printed as it is.
OWED: Final = {
    FROZEN: "tasks that another node has begun, or that may not be started",
    "queued": "tasks to fetch",
    "held": "tasks that a former owner is fetching",
    "in_flight": "pages in flight",
    "unwritten": "results not on disk",
    "unsettled": "pages whose links are not all stored",
    "copies": "pages to copy to further nodes",
    "links": "links under way to their owners",
    "hand_over": "records to hand over",
    "backups": "records with too few backups",
    "repair": "key ranges to repair",
    "bodies": "pages without a body",
    "joining": "key ranges to pull before joining",
}

# Why a URL was not fetched: the words of reports/skipped.jsonl (`SkipReason`), and what they mean.
SKIPPED: Final = {
    "out-of-scope": "the crawl's scope does not reach it",
    "excluded": "a pattern of the crawl excludes it",
    "depth": "it lies deeper than the crawl goes",
    "nofollow": "the link, or the page it is on, says nofollow",
    "rules": "the rules for the page it is on follow other links only",
    "robots": "its site's robots.txt disallows it",
    "failed": "no attempt brought a page",
    "recalled": "nodes took it and did not begin it in time; it waits for a person",
    "private-address": "its host has a private address",
    "redirect-limit": "too many redirects in a row led to it",
    "not-a-url": "it is no web address",
    "page-limit": "the crawl ended at its page limit before",
    "time-limit": "the crawl ended at its time limit before",
    "size-limit": "the crawl ended at its size limit before",
    "disk-limit": "the crawl ended at its disk limit before",
    "dropped": "a user took it off the list",
}


def host_state(obstacle: Obstacle | None) -> HostCondition:
    """The state of a host with this obstacle, or with none."""
    row = None if obstacle is None else CAUSES.get(obstacle.cause)
    return HostCondition.READY if row is None or row.host is None else row.host


def first(obstacles: list[Obstacle]) -> Obstacle | None:
    """The one that people are told: by the order of `CAUSES`, then the one that is over first."""
    return min(obstacles, key=_rank, default=None)


def _rank(obstacle: Obstacle) -> tuple[int, float, str]:
    left_s = math.inf if obstacle.left_s is None else obstacle.left_s
    return _RANKS.get(obstacle.cause, len(_RANKS)), left_s, obstacle.about


def out_of_contact(others: int, for_s: float) -> str:
    """That none of the `others` that a node knows answers, where that is told of the node and not of a crawl."""
    return f"none, for {span(for_s)}; it knows {others} other{'' if others == 1 else 's'}"


def sentence(obstacle: Obstacle) -> str:
    """What it is in words, with the time left: `example.org asked for a pause (429), 27 s left`."""
    text = without_time(obstacle)
    if obstacle.left_s is not None:
        return f"{text}, {span(obstacle.left_s)} left"
    return text if obstacle.for_s is None else f"{text}, for {span(obstacle.for_s)}"


def without_time(obstacle: Obstacle) -> str:
    """The sentence without the time left, where that is shown beside it."""
    row = CAUSES.get(obstacle.cause)
    said = row.says if row is not None else "{about} {detail}: " + obstacle.cause
    return said.format(
        about=obstacle.about or "it", detail=obstacle.detail or "no reason is known", number=obstacle.number
    )


def span(seconds: float) -> str:
    """`0.4 s`, `27 s`, `9 min 18 s`, `2 h 5 min`, `3 d 4 h`: two units, the smaller one left out where it is 0."""
    if seconds < 1:
        return f"{max(0.0, seconds):.1f} s"
    whole = math.ceil(seconds)
    for unit, size, smaller, small in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


_ENDS: Final = {
    "complete": "it is complete: every page in its scope was tried",
    "failed": "it ended, and no page was fetched",
    "stopped": "it was stopped by a user; what was left is not fetched",
}


def crawl_standing(state: str, ended: str, obstacle: Obstacle | None, *, because: str = "") -> dict[str, Any]:
    """How a crawl stands, as the API tells it, in JSON's types; `because` says why one that ended did.

    state (running, waiting, paused, stopping, ended), reason (a word of `CAUSES`, how it ended, or ""), text (a
    sentence, or ""), says (the same without the times), about (a host, or a node's id, or ""), for_s and left_s
    (seconds, or None).
    """
    told: dict[str, Any] = {"state": state, "reason": "", "text": "", "says": "", "about": "", "for_s": None}
    told["left_s"] = None
    if ended:
        text = _ENDS.get(ended, f"it ended at its {ended}; what was left is not fetched")
        text += f": {because}" if because else ""
        return told | {"state": "ended", "reason": ended, "text": text, "says": text}
    if obstacle is None:
        return told
    return told | {
        "state": "waiting" if state == "running" else state,
        "reason": obstacle.cause,
        "text": sentence(obstacle),
        "says": without_time(obstacle),
        "about": obstacle.about,
        "for_s": obstacle.for_s,
        "left_s": obstacle.left_s,
    }
