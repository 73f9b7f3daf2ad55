"""What answers and failures come to: kinds of errors, what is content, how a crawl ends that has nothing left. Pure.

Kinds of errors are a fixed list, so that their counters are bounded, and those of several nodes add up. Where a page
record or a task record says what happened, one function reads it, for a node's own counters as for the outputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dhtcrawl.standing import SKIPPED
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED

# RFC 9110, 15.5 and 15.6; 429 of RFC 6585, 451 of RFC 7725. Those that a crawler meets; any other has its class.
_STATUSES: Final = frozenset((400, 401, 403, 404, 405, 406, 408, 410, 429, 451, 500, 501, 502, 503, 504))
_CLASSES: Final = {4: "4xx", 5: "5xx"}
# Of `dhtcrawl.fetch.http.FetchFailureKind`, those for which a URL is given up as failed; a test holds them together.
_FAILURES: Final = frozenset(("dns", "connect", "tls", "timeout", "disconnected", "protocol", "headers"))
_REACHED: Final = frozenset(("timeout", "disconnected", "protocol", "headers"))  # of these: a connection was made
OTHER: Final = "other"  # of no known kind: an unheard-of status, or counted by a version that knew no kinds
ERROR_KINDS: Final = tuple(sorted((*map(str, _STATUSES), *_CLASSES.values(), *_FAILURES, OTHER)))
_KNOWN: Final = frozenset(ERROR_KINDS)
_ANSWERS: Final = "answers "
_TOO_OFTEN: Final = ", again and again"
_OF_A_NODE: Final = re.compile(r"[0-9a-f]{8}: ")  # as `swarm/assignment/assigner_state.py` writes it
_PREFIX: Final = "errors_"
_SKIPPED_PREFIX: Final = "skipped_"
# Each round of a crawl asks for all of them.
_SKIP_COUNTERS: Final = {reason: _SKIPPED_PREFIX + reason.replace("-", "_") for reason in SKIPPED}


def is_content(status: int) -> bool:
    """Whether an answer with this status is what a crawl is for: neither a redirect nor an error."""
    return status < 300


def kind_of_status(status: int) -> str:
    """The kind of an answer with a status of 400 or more."""
    return str(status) if status in _STATUSES else _CLASSES.get(status // 100, OTHER)


def answers_only(status: int) -> str:
    """Why a task failed whose origin gives no other answer, for its record."""
    return f"{_ANSWERS}{status} to everything"


def again_and_again(detail: str) -> str:
    """Why a task failed whose origin has failed others too often in this way, for its record."""
    return f"{detail}{_TOO_OFTEN}"


def may_have_reached(detail: str) -> bool:
    """Whether a task that failed was asked for to the end, and its site may have seen that, from its `detail`.

    One whose origin was given up meanwhile was not asked for any more: its requests, if any, were to be tried again.
    """
    return kind_of_detail(detail) in _REACHED and not detail.endswith(_TOO_OFTEN)


def kind_of_detail(detail: str) -> str:
    """The kind of a failure, from the `detail` of a task that failed: `dns: …`, `answers 503 to everything`.

    Where several nodes tried, each one's words follow its id, and those of the first count.
    """
    by_node = _OF_A_NODE.match(detail)
    detail = detail if by_node is None else detail[by_node.end() :]
    if detail.startswith(_ANSWERS):
        status = detail[len(_ANSWERS) :].partition(" ")[0]
        return kind_of_status(int(status)) if len(status) == 3 and status.isascii() and status.isdigit() else OTHER
    kind = detail.partition(":")[0]
    return kind if kind in _FAILURES else OTHER


def counter_of(kind: str) -> str:
    """The name of the counter of an error kind, among a node's counters."""
    return _PREFIX + kind


def counts_a_kind(name: str) -> bool:
    """Whether a counter with this name is that of an error kind, or of a reason for which URLs are not fetched."""
    return name.startswith((_PREFIX, _SKIPPED_PREFIX))


def skip_counter_of(reason: str) -> str:
    """The name of the counter of URLs that a node does not fetch for a reason, among its counters."""
    return _SKIP_COUNTERS.get(reason) or _SKIPPED_PREFIX + reason.replace("-", "_")


def skipped_by_reason(counters: Mapping[str, int | float]) -> dict[str, int]:
    """How many URLs were not followed or given up, by reason, among a node's counters; unknown reasons are left out.

    A URL that links on pages of several nodes lead to counts at each of them.
    """
    there = ((reason, name) for reason, name in _SKIP_COUNTERS.items() if name in counters)
    return {reason: int(counters[name]) for reason, name in there if counters[name]}


def errors_by_kind(counters: Mapping[str, int | float]) -> dict[str, int]:
    """The errors among a node's counters, by kind; a kind that this version does not know counts as `OTHER`."""
    found: dict[str, int] = {}
    for name, count in counters.items():
        if name.startswith(_PREFIX) and count:
            kind = name[len(_PREFIX) :]
            kind = kind if kind in _KNOWN else OTHER
            found[kind] = found.get(kind, 0) + int(count)
    return found


def end_of(pages_ok: float) -> str:
    """How a crawl ends of which nothing is left: it has failed if it brought nothing but redirects and errors."""
    return COMPLETE if pages_ok else FAILED


def ok_pages(counters: Mapping[str, int | float]) -> int | float:
    """How many pages with content a node has, by its counters; one of a version that counts none says how many pages.

    Such pages may all be errors. To call a crawl complete that is not hides a cause; to call one failed that has
    content would have it begin anew.
    """
    return counters.get("pages_ok", counters.get("pages", 0) - counters.get("redirects", 0))
