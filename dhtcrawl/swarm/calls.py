"""Every call that nodes answer: its name, its arguments, its answer and their limits. No I/O.

A call is a subclass of `CallArgs`, named after what is asked; the class in
brackets is the answer. A node serves it with `CallRegistry.serve` in one room,
and asks it with `Peers.call`. `CALLS` is the table of all of them, and
`docs/protocol-calls.md` is made of it by `scripts/protocol_tables.py`. Links,
records and tombstones do not travel in calls but in messages of their own,
`FRAMES`.

To add one: write the class, add it to `CALLS`, serve it, run the script. Where
a call changes so that an earlier version would misread it, raise `VERSION` in
`dhtcrawl.rpc.tasks.signals`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from dhtcrawl.fetch.robots import PARSED_BYTES_MAX, RobotsVerdict
from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX, LIST_ITEMS_MAX
from dhtcrawl.rpc.tasks.messages import DeleteBackup, RefreshTask, StoreBackup, StoreTask
from dhtcrawl.rpc.tasks.rows import ITEMS_MAX
from dhtcrawl.rpc.tasks.schema import (
    CallArgs,
    CallTerms,
    WireMap,
    flag,
    integer,
    items,
    mapping,
    number,
    octets,
    octets_up_to,
    or_nil,
    row,
    rows,
    text,
    variants,
    word,
)
from dhtcrawl.rpc.tasks.signals import INCARNATION_MAX
from dhtcrawl.storage.store.crawl_record import DIGEST_BYTES, WIRE_BYTES_MAX
from dhtcrawl.url import URL_CHARS_MAX, canonicalize

COUNT_MAX: Final = 2**63 - 1
KEYS_MAX: Final = 500  # of the 512 items that a list on the wire may have
HELD_KEYS_MAX: Final = 8_000  # two thirds of the answer that a newcomer wants to hold, where keys are longest

# -- words that several calls use --


def is_host(value: str) -> bool:
    """Whether this may be a host: printable ASCII without a slash."""
    return value.isascii() and value.isprintable() and "/" not in value


def _is_origin(value: str) -> bool:
    scheme, separator, host = value.partition("://")
    return scheme in ("http", "https") and separator != "" and 1 <= len(host) <= HOST_CHARS_MAX and is_host(host)


def _is_canonical(value: str) -> bool:
    return canonicalize(value) == value


HOST_CHARS_MAX: Final = 261  # 255 octets of a name (RFC 1035, 2.3.4), a colon, a port
_KEY_WIDTHS: Final = (KEY_BYTES, 2 * KEY_BYTES)

Crawl = Annotated[bytes, octets(CRAWL_ID_BYTES), "the crawl's id"]
TaskKey = Annotated[bytes, octets(*_KEY_WIDTHS)]
TaskKeys = Annotated[tuple[bytes, ...], items(octets(*_KEY_WIDTHS), KEYS_MAX, distinct=True)]
Count = Annotated[int, integer(0, COUNT_MAX)]
Host = Annotated[str, text(HOST_CHARS_MAX, 1, made_of=is_host, says="printable ASCII without a slash")]
Url = Annotated[str, text(URL_CHARS_MAX, 1, where=_is_canonical, says="a canonical URL")]
_WORD = text(32, 1, where=lambda value: re.fullmatch(r"[a-z][a-z_-]*", value) is not None, says="a-z, _ and -")
WORDS_MAX: Final = 64
Waiting = Annotated[Mapping[str, int], mapping(_WORD, integer(0, COUNT_MAX), WORDS_MAX)]
Counters = Annotated[Mapping[str, int | float], mapping(_WORD, number(0, COUNT_MAX), WORDS_MAX)]
Figures = Annotated[Mapping[str, int | float], mapping(_WORD, number(-COUNT_MAX, COUNT_MAX), WORDS_MAX)]


@dataclass(frozen=True, slots=True)
class Done(WireMap):
    """An empty map: the call was carried out."""


# -- a crawl's record, waves and audit (`swarm/lifecycle`) --

CRAWLS_A_LIST: Final = 256
VIEW_BYTES: Final = 16
STILL_BYTES: Final = 16
WAVE_TIMEOUT_S: Final = 5.0

ViewPrint = Annotated[bytes, octets(VIEW_BYTES)]
RecordDigest = Annotated[bytes, octets(DIGEST_BYTES)]
RecordBytes = Annotated[bytes, octets_up_to(WIRE_BYTES_MAX)]


class ListedCrawl(NamedTuple):
    """A crawl that a node knows."""

    crawl: Annotated[bytes, octets(CRAWL_ID_BYTES)]
    digest: RecordDigest


@dataclass(frozen=True, slots=True)
class KnownCrawls(WireMap):
    """Answer to `crawl_list`."""

    crawls: Annotated[tuple[ListedCrawl, ...], rows(ListedCrawl, CRAWLS_A_LIST), "by id; fewer than 256 are the last"]


@dataclass(frozen=True, slots=True)
class ListCrawls(CallArgs[KnownCrawls]):
    """A newcomer asks which crawls a node knows."""

    terms: ClassVar[CallTerms] = CallTerms("crawl_list", reply_bytes_max=64 * 1024)
    after: Annotated[bytes, octets(0, CRAWL_ID_BYTES), "the crawl id to go on behind; empty begins"]


@dataclass(frozen=True, slots=True)
class KnownRecord(WireMap):
    """Answer to `crawl_get`."""

    record: Annotated[RecordBytes, "the record, whole"]


@dataclass(frozen=True, slots=True)
class GetCrawl(CallArgs[KnownRecord]):
    """A node that lacks a crawl's record, or has another version of it, asks for it. Refused: `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("crawl_get", reply_bytes_max=WIRE_BYTES_MAX + 1024)
    crawl: Crawl


@dataclass(frozen=True, slots=True)
class TellCrawl(CallArgs[Done]):
    """A node sends another a crawl's record; answered once it is merged, on disk. Refused: `full`."""

    terms: ClassVar[CallTerms] = CallTerms("crawl_tell", WAVE_TIMEOUT_S)
    record: RecordBytes
    crawl: Annotated[
        bytes | None,
        octets(CRAWL_ID_BYTES),
        "where `record` is only what is new in the one that the asker last heard of from this node",
    ] = None
    view: Annotated[
        bytes | None, octets(VIEW_BYTES), "fingerprint of the asker's view, where the record has `places`"
    ] = None


@dataclass(frozen=True, slots=True)
class CrawlStanding(WireMap):
    """Answer to `crawl_report`: how a crawl stands on one node at one moment."""

    incarnation: Annotated[int, integer(0, INCARNATION_MAX), "how often the node has started"]
    knows: Annotated[bool, flag(), "it has the crawl's record; if not, nothing else counts, and it is told"]
    idle: Annotated[bool, flag(), "nothing is left to do there"]
    activity: Annotated[Count, "grows with all that could be, or bring, work, and with every change of the node's view"]
    view: Annotated[ViewPrint, "a digest of the members, and of which of them own"]
    record: Annotated[RecordDigest, "a digest of the record, `spec` and `nonce` left out"]
    state_version: Annotated[Count, "the record's `version`"]
    waiting: Annotated[Waiting, "what makes it not idle: word → count"]
    counters: Annotated[
        Counters,
        "for limits and for people; `seconds`, `bytes` and `pages` among them, with a page limit `pages_out` and "
        "`pages_used`",
    ]


@dataclass(frozen=True, slots=True)
class ReportCrawl(CallArgs[CrawlStanding]):
    """The coordinator asks every member in every wave."""

    terms: ClassVar[CallTerms] = CallTerms("crawl_report", WAVE_TIMEOUT_S)
    crawl: Crawl


@dataclass(frozen=True, slots=True)
class CrawlFigures(WireMap):
    """Answer to `crawl_progress`."""

    counters: Figures
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class AskProgress(CallArgs[CrawlFigures]):
    """Commands ask how a crawl stands on a node. Refused: `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("crawl_progress", WAVE_TIMEOUT_S)
    crawl: Crawl


@dataclass(frozen=True, slots=True)
class AuditResult(WireMap):
    """Answer to `crawl_audit`: both numbers, or that the audit still runs."""

    missing: Annotated[int | None, integer(0, 2**62), "links that no owner knows"] = None
    resent: Annotated[int | None, integer(0, 2**62), "pages that send their links again"] = None
    running: Annotated[bool, flag(), "ask again with the same `still`"] = False

    def wrong(self) -> str:
        if self.running:
            return ""
        return "missing" if self.missing is None else "resent" if self.resent is None else ""


@dataclass(frozen=True, slots=True)
class AuditCrawl(CallArgs[AuditResult]):
    """The coordinator has every member look for lost links.

    Refused: `not-coordinator`, `not-ready`, `unknown-crawl`.
    """

    terms: ClassVar[CallTerms] = CallTerms("crawl_audit", WAVE_TIMEOUT_S)
    crawl: Crawl
    still: Annotated[bytes, octets(STILL_BYTES), "names the state that is audited"]


@dataclass(frozen=True, slots=True)
class MissingKeys(WireMap):
    """Answer to `audit_keys`."""

    missing: Annotated[TaskKeys, "those without a record there"]


@dataclass(frozen=True, slots=True)
class AuditKeys(CallArgs[MissingKeys]):
    """A node that audits its pages asks owners for the tasks of their links."""

    terms: ClassVar[CallTerms] = CallTerms("audit_keys", reply_bytes_max=64 * 1024)
    crawl: Crawl
    keys: TaskKeys

    def misfit(self, reply: MissingKeys) -> str:
        return "" if set(reply.missing) <= set(self.keys) else "missing"


# -- page blocks (`swarm/lifecycle`) --

PAGES_MAX: Final = 2**62
EPOCH_MAX: Final = 2**63 - 1
BOOK_NODES_MAX: Final = 4_096
BOOK_ROW_BYTES: Final = KEY_BYTES + 24  # node id, epoch, number, out
BOOK_BYTES_MAX: Final = BOOK_NODES_MAX * BOOK_ROW_BYTES

BookRows = Annotated[bytes, octets_up_to(BOOK_BYTES_MAX, in_rows_of=BOOK_ROW_BYTES)]


@dataclass(frozen=True, slots=True)
class PagesClaimed(WireMap):
    """Answer to `pages_claim`; only `epoch` where a later coordinator has claimed before."""

    epoch: Annotated[int, integer(0, EPOCH_MAX), "the latest claim that the node has heard of"]
    out: Annotated[int | None, integer(0, PAGES_MAX), "pages that are out at the node"] = None
    serial: Annotated[int | None, integer(0, COUNT_MAX), "of its last ask"] = None
    book: Annotated[bytes | None, octets_up_to(BOOK_BYTES_MAX, in_rows_of=BOOK_ROW_BYTES), "the book it has"] = None

    def wrong(self) -> str:
        given = [self.out is not None, self.serial is not None, self.book is not None]
        return "" if all(given) or not any(given) else "out"


@dataclass(frozen=True, slots=True)
class ClaimPages(CallArgs[PagesClaimed]):
    """A new coordinator takes over the page blocks of a member. Refused: `not-coordinator`, `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("pages_claim", WAVE_TIMEOUT_S, BOOK_BYTES_MAX + 1024)
    crawl: Crawl
    epoch: Annotated[int, integer(1, EPOCH_MAX), "no answer of an earlier epoch is taken from now on"]

    def misfit(self, reply: PagesClaimed) -> str:
        sound = reply.epoch == self.epoch if reply.out is not None else reply.epoch > self.epoch
        return "" if sound else "epoch"


@dataclass(frozen=True, slots=True)
class PagesNoted(WireMap):
    """Answer to `pages_note`."""

    rows: Annotated[Count, "how many the book has now"]


@dataclass(frozen=True, slots=True)
class NotePages(CallArgs[PagesNoted]):
    """The coordinator sends its book to its possible successors. Refused: `not-coordinator`, `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("pages_note", WAVE_TIMEOUT_S, 1024)
    crawl: Crawl
    rows: BookRows


@dataclass(frozen=True, slots=True)
class PagesOut(WireMap):
    """Answer to `pages_ask`."""

    out: Annotated[int, integer(0, PAGES_MAX), "pages that are out at the asker from now on"]


@dataclass(frozen=True, slots=True)
class AskPages(CallArgs[PagesOut]):
    """A member asks the coordinator for pages, or gives some back.

    Refused: `not-coordinator`; `not-ready`, while members are to be claimed or too few successors have the book.
    """

    terms: ClassVar[CallTerms] = CallTerms("pages_ask", WAVE_TIMEOUT_S, 1024)
    crawl: Crawl
    epoch: Annotated[int, integer(0, EPOCH_MAX), "the last claim's"]
    serial: Annotated[Count, "grows with every ask"]
    out: Annotated[int, integer(0, PAGES_MAX), "pages that are out here"]
    want: Annotated[int, integer(0, PAGES_MAX), "so many more; 0 gives back"]


# -- who fetches (`swarm/assignment`) --

PLAN_EPOCH_MAX: Final = 2**53
PLAN_REPORT_BYTES_MAX: Final = 64 << 10
PLAN_TABLE_BYTES_MAX: Final = 256 << 10
CONNECT_S_MIN, CONNECT_S_MAX = 0.001, 3_600.0
DETAIL_CHARS_MAX: Final = 200

PlanEpoch = Annotated[int, integer(0, PLAN_EPOCH_MAX)]


@dataclass(frozen=True, slots=True)
class Lend(CallArgs[Done]):
    """An owner assigns tasks to a worker, after STORE_BACKUP of their records.

    Refused: `not-owner`, `not-ready`, `full`, `unknown-crawl`.
    """

    terms: ClassVar[CallTerms] = CallTerms("lend")
    crawl: Crawl
    keys: TaskKeys
    patient: Annotated[TaskKeys, "those for which no other node is left"]
    connect_s: Annotated[
        Mapping[str, float],
        mapping(text(HOST_CHARS_MAX), number(CONNECT_S_MIN, CONNECT_S_MAX), LIST_ITEMS_MAX),
        "how many seconds each host may take to connect",
    ]
    epoch: Annotated[PlanEpoch, "of the owner's plan"] = 0


@dataclass(frozen=True, slots=True)
class LetGo(WireMap):
    """Answer to `recall`."""

    keys: Annotated[TaskKeys, "those that were not tried, are not over, and are forgotten"]


@dataclass(frozen=True, slots=True)
class Recall(CallArgs[LetGo]):
    """An owner, also a new one, takes tasks back from a worker. Refused: `not-owner`, `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("recall")
    crawl: Crawl
    keys: Annotated[TaskKeys, "none: all that the worker had of this owner is forgotten"]

    def misfit(self, reply: LetGo) -> str:
        return "" if set(reply.keys) <= set(self.keys) else "keys"


@dataclass(frozen=True, slots=True)
class InHand(CallArgs[Done]):
    """A worker tells a new owner which of its tasks are in flight there for the former one.

    Refused: `unknown-crawl`.
    """

    terms: ClassVar[CallTerms] = CallTerms("in_hand")
    crawl: Crawl
    keys: TaskKeys


@dataclass(frozen=True, slots=True)
class Release(CallArgs[Done]):
    """A worker gives back, without an outcome, tasks that were in flight there when their owner changed."""

    terms: ClassVar[CallTerms] = CallTerms("release")
    crawl: Crawl
    keys: TaskKeys


class OutcomeRow(NamedTuple):
    """The outcome of an assigned task."""

    key: TaskKey
    host: Annotated[str, text(HOST_CHARS_MAX)]
    result: Annotated[int, integer(0, len(TaskResult) - 1)]
    ms: Count
    connect_ms: Annotated[int | None, or_nil(integer(0, COUNT_MAX))]
    bytes: Count
    detail: Annotated[str, text(DETAIL_CHARS_MAX)]


@dataclass(frozen=True, slots=True)
class ReportLent(CallArgs[Done]):
    """A worker reports the outcomes of an owner's tasks; without rows, that it is alive. Refused: `no-policy`."""

    terms: ClassVar[CallTerms] = CallTerms("lent_report")
    crawl: Crawl
    given: Annotated[
        tuple[OutcomeRow, ...],
        rows(OutcomeRow, KEYS_MAX),
        "result 0 page, 1 failed, 2 cannot connect, 3 not begun",
    ]


@dataclass(frozen=True, slots=True)
class PlanTable(WireMap):
    """Answer to `crawl_plan`."""

    epoch: Annotated[PlanEpoch, "of the coordinator's plan; 0: none"]
    table: Annotated[bytes | None, octets_up_to(PLAN_TABLE_BYTES_MAX), "a packed map, where it is newer"] = None


@dataclass(frozen=True, slots=True)
class ReportPlan(CallArgs[PlanTable]):
    """A member tells the crawl's coordinator what its policy's planner wants, and asks for the plan.

    Refused: `no-policy`, `unknown-crawl`.
    """

    terms: ClassVar[CallTerms] = CallTerms("crawl_plan", reply_bytes_max=PLAN_TABLE_BYTES_MAX + 1024)
    crawl: Crawl
    epoch: Annotated[PlanEpoch, "of the asker's plan; 0: none"]
    report: Annotated[bytes, octets_up_to(PLAN_REPORT_BYTES_MAX), "a packed map"]


# -- hosts and robots.txt (`swarm/hosts`) --

HOST_ROWS_MAX: Final = 256  # with the longest hosts 80 KB
AGENT_CHARS_MAX: Final = 256
SPAN_MS_MAX: Final = 86_400_000  # a longer delay or hold is told as a day
TTL_MS_MAX: Final = 3_600_000
REQUESTS_MAX: Final = 1_000_000
LEASE_ID_BYTES: Final = 8
ROBOTS_BYTES_MAX: Final = PARSED_BYTES_MAX  # what follows is never read
ROBOTS_HEAD_BYTES: Final = 1024  # what an answer has besides the body

Span = Annotated[int, integer(0, SPAN_MS_MAX)]
LeaseId = Annotated[bytes, octets(LEASE_ID_BYTES)]
LeaseIdOrNone = Annotated[bytes, octets(0, LEASE_ID_BYTES)]
_HOST_TIMEOUT_S: Final = 2.0  # a grant's time counts from the asking: an older answer is worth little
_ROBOTS_TIMEOUT_S: Final = 10.0


class AskRow(NamedTuple):
    """An ask for a host, or for a lease to be renewed."""

    host: Host
    delay_ms: Span
    hold_ms: Span
    lease_id: LeaseIdOrNone


class MovedRow(NamedTuple):
    """Another node is gatekeeper."""

    tag: Annotated[int, integer(0, 0)] = 0


class GrantedRow(NamedTuple):
    """The host is leased."""

    tag: Annotated[int, integer(1, 1)]
    lease_id: LeaseId
    ttl_ms: Annotated[int, integer(0, TTL_MS_MAX)]
    requests: Annotated[int, integer(0, REQUESTS_MAX)]
    not_before_ms: Span
    delay_ms: Span


class WaitRow(NamedTuple):
    """The asker has a place in line, or its lease is not renewed."""

    tag: Annotated[int, integer(2, 2)]
    after_ms: Span


AnswerRow = MovedRow | GrantedRow | WaitRow


@dataclass(frozen=True, slots=True)
class HostAnswers(WireMap):
    """Answer to `host_ask`."""

    answers: Annotated[
        tuple[AnswerRow, ...],
        items(variants(MovedRow, GrantedRow, WaitRow), HOST_ROWS_MAX),
        "one for each ask, in order",
    ]


@dataclass(frozen=True, slots=True)
class AskHosts(CallArgs[HostAnswers]):
    """A node that wants hosts asks their gatekeeper."""

    terms: ClassVar[CallTerms] = CallTerms("host_ask", _HOST_TIMEOUT_S, 32 * 1024)
    asks: Annotated[
        tuple[AskRow, ...], rows(AskRow, HOST_ROWS_MAX), "with the id of a lease that is to be renewed, or empty"
    ]

    def misfit(self, reply: HostAnswers) -> str:
        return "" if len(reply.answers) == len(self.asks) else "answers"


class BackRow(NamedTuple):
    """A lease that is given back."""

    host: Host
    lease_id: LeaseId
    since_end_ms: Annotated[int | None, or_nil(integer(0, SPAN_MS_MAX))]
    hold_ms: Span


@dataclass(frozen=True, slots=True)
class HostsTaken(WireMap):
    """Answer to `host_give_back`."""

    taken: Annotated[bytes, octets_up_to(HOST_ROWS_MAX), "a byte for each row, 1 or 0 (not the gatekeeper)"]


@dataclass(frozen=True, slots=True)
class GiveHostsBack(CallArgs[HostsTaken]):
    """A holder gives leases back to their gatekeeper."""

    terms: ClassVar[CallTerms] = CallTerms("host_give_back", _HOST_TIMEOUT_S)
    backs: Annotated[
        tuple[BackRow, ...],
        rows(BackRow, HOST_ROWS_MAX),
        "with the time since the last byte (nil: nothing was requested)",
    ]

    def misfit(self, reply: HostsTaken) -> str:
        return "" if len(reply.taken) == len(self.backs) else "taken"


Hosts = Annotated[tuple[str, ...], items(text(HOST_CHARS_MAX, 1, made_of=is_host, says="a host"), HOST_ROWS_MAX)]


@dataclass(frozen=True, slots=True)
class HostsUnwanted(WireMap):
    """Answer to `host_offer`."""

    unwanted: Annotated[Hosts, "those that the node does not want any more"]


@dataclass(frozen=True, slots=True)
class OfferHosts(CallArgs[HostsUnwanted]):
    """A gatekeeper tells the next in line that hosts are free."""

    terms: ClassVar[CallTerms] = CallTerms("host_offer", 1.0)  # as long as the node has to ask
    hosts: Hosts


Origin = Annotated[str, text(HOST_CHARS_MAX + 8, 1, where=_is_origin, says="http:// or https:// and a host")]
Agent = Annotated[str, text(AGENT_CHARS_MAX), "a product token"]
_VERDICTS: Final = tuple(verdict.value for verdict in RobotsVerdict)


@dataclass(frozen=True, slots=True)
class RobotsAnswered(WireMap):
    """Answer to `robots_ask`: `moved`, `fetch`, `wait_ms`, or what is known."""

    moved: Annotated[bool, flag(), "another node is gatekeeper"] = False
    fetch: Annotated[bool, flag(), "fetch it, and tell the result"] = False
    wait_ms: Annotated[int | None, integer(0, SPAN_MS_MAX), "another node fetches it; ask again after this"] = None
    verdict: Annotated[str, word("", *_VERDICTS), "it is known"] = ""
    age_ms: Annotated[int | None, integer(0, 2**53), "for so long"] = None
    size: Annotated[int | None, integer(0, ROBOTS_BYTES_MAX), "so many bytes long"] = None
    body: Annotated[
        bytes | None, octets_up_to(ROBOTS_BYTES_MAX), "missing where it is longer than there is room for"
    ] = None

    def wrong(self) -> str:
        if self.moved or self.fetch or self.wait_ms is not None:
            return ""
        known = {"verdict": self.verdict or None, "age_ms": self.age_ms, "size": self.size}
        return next((name for name, value in known.items() if value is None), "")


@dataclass(frozen=True, slots=True)
class AskRobots(CallArgs[RobotsAnswered]):
    """A node asks the gatekeeper of a host for its robots.txt."""

    terms: ClassVar[CallTerms] = CallTerms("robots_ask", _ROBOTS_TIMEOUT_S, ROBOTS_BYTES_MAX + ROBOTS_HEAD_BYTES)
    origin: Origin
    agent: Agent
    body_bytes_max: Annotated[int, integer(0, ROBOTS_BYTES_MAX), "what the asker has room for"]


@dataclass(frozen=True, slots=True)
class RobotsTold(WireMap):
    """Answer to `robots_tell`."""

    moved: Annotated[bool, flag(), "another node is gatekeeper"] = False


@dataclass(frozen=True, slots=True)
class TellRobots(CallArgs[RobotsTold]):
    """The node that fetched a robots.txt tells the gatekeeper."""

    terms: ClassVar[CallTerms] = CallTerms("robots_tell", _ROBOTS_TIMEOUT_S)
    origin: Origin
    agent: Agent
    verdict: Annotated[str, word("", *_VERDICTS), "empty: no result"]
    body: Annotated[bytes, octets_up_to(ROBOTS_BYTES_MAX)] = b""


class HostStateRow(NamedTuple):
    """The state of a host that one gatekeeper hands over to the next; times in milliseconds."""

    host: Host
    node: Annotated[bytes, octets(0, KEY_BYTES)]
    lease_id: LeaseIdOrNone
    left_ms: Annotated[int, integer(0, TTL_MS_MAX)]
    delay_ms: Span
    next_in_ms: Span


def _is_host_state(state: tuple[Any, ...]) -> bool:
    """A host with a holder has a lease id; one without has no lease id, and no time left."""
    _, node, lease_id, left_ms, _, _ = state
    return bool(lease_id) if node else not lease_id and left_ms == 0


# -- joining (`swarm/membership`) --


class HeldRow(NamedTuple):
    """Tasks of a crawl that the newcomer owns now and that are in flight at a node."""

    crawl: Annotated[bytes, octets(CRAWL_ID_BYTES)]
    keys: TaskKeys
    node: Annotated[bytes | None, or_nil(octets(KEY_BYTES))]


@dataclass(frozen=True, slots=True)
class Activated(WireMap):
    """Answer to `activate`."""

    held: Annotated[
        tuple[HeldRow, ...],
        rows(HeldRow, KEYS_MAX),
        "what the answering node has in flight (nil), or another, of the newcomer's; up to 8,000 keys in all",
    ]
    hosts: Annotated[
        tuple[HostStateRow, ...],
        rows(HostStateRow, HOST_ROWS_MAX, where=_is_host_state),
        "hosts whose gatekeeper the newcomer is now",
    ]


@dataclass(frozen=True, slots=True)
class Activate(CallArgs[Activated]):
    """A newcomer owns from now on. Refused: `not-a-member`, where gossip does not know it yet."""

    terms: ClassVar[CallTerms] = CallTerms("activate", reply_bytes_max=512 * 1024)
    incarnation: Annotated[int, integer(0, INCARNATION_MAX)]


# -- records (`swarm/records`) --

HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class HaveAnswer(WireMap):
    """Answer to `have`."""

    have: Annotated[bytes, octets_up_to(ITEMS_MAX), "a byte for each, 1 where that node has it just so, on disk"]


@dataclass(frozen=True, slots=True)
class Have(CallArgs[HaveAnswer]):
    """A node that hands records over, or owns a task whose holder is gone, asks which records another has."""

    terms: ClassVar[CallTerms] = CallTerms("have")
    crawl: Crawl
    keys: Annotated[bytes, octets_up_to(ITEMS_MAX * 2 * KEY_BYTES, 1, in_rows_of=KEY_BYTES), "task keys, joined"]
    hashes: Annotated[
        bytes,
        octets_up_to(ITEMS_MAX * HASH_BYTES, HASH_BYTES, in_rows_of=HASH_BYTES),
        "for each, of its key and what copies agree in",
    ]

    def wrong(self) -> str:
        width, rest = divmod(len(self.keys), self.count)
        return "" if not rest and width in _KEY_WIDTHS else "keys"

    @property
    def count(self) -> int:
        """How many records are asked for."""
        return len(self.hashes) // HASH_BYTES

    def misfit(self, reply: HaveAnswer) -> str:
        return "" if len(reply.have) == self.count else "have"


# -- bodies (`swarm/bodies`) --

COPIES_A_CALL: Final = 256
COPY_TIMEOUT_S: Final = 15.0  # a node that takes longer is most likely gone, and members know by then
NAME_CHARS_MAX: Final = 255
CURSOR_BYTES_MAX: Final = 256
CHUNK_BYTES_MAX: Final = 512 << 10  # these two are the limits of `dhtcrawl.storage.collect.export`
EXPORT_ROWS_MAX: Final = 500
EXPORT_REPLY_BYTES: Final = 1 << 20
_OFFSET_MAX: Final = 2**62 - 1

_BODY = octets_up_to(FRAME_BYTES_MAX)


class CopyRow(NamedTuple):
    """One page whose body is to have a copy."""

    key: TaskKey
    record: Annotated[bytes, _BODY]  # the page record as stored
    links: Annotated[  # its link keys; None: to be fetched
        bytes | None, or_nil(octets_up_to(FRAME_BYTES_MAX, in_rows_of=KEY_BYTES))
    ]
    data: Annotated[bytes | None, or_nil(_BODY)]  # its members; None: it may be there already, or is to be fetched
    length: Annotated[int, integer(0, _OFFSET_MAX)]  # of the members
    fetch: Annotated[bool, flag()]


def _is_whole(page: tuple[Any, ...]) -> bool:
    _, _, _, data, length, _ = page
    return data is None or len(data) == length


@dataclass(frozen=True, slots=True)
class CopyCodes(WireMap):
    """Answer to `copy_pages`."""

    codes: Annotated[
        bytes,
        octets_up_to(COPIES_A_CALL, 1),
        "a byte a page: 0 it is on disk, 1 full, 2 send the members, too, 3 refused",
    ]

    def wrong(self) -> str:
        return "" if max(self.codes) <= 3 else "codes"


@dataclass(frozen=True, slots=True)
class CopyPages(CallArgs[CopyCodes]):
    """A node that fetched pages has their bodies copied (`--copies`).

    Refused: `unknown-crawl`, `leaving`, `no-copies`.
    """

    terms: ClassVar[CallTerms] = CallTerms("copy_pages", COPY_TIMEOUT_S)
    crawl: Crawl
    pages: Annotated[
        tuple[CopyRow, ...],
        rows(CopyRow, COPIES_A_CALL, 1, where=_is_whole),
        "the page record; its link keys, or nil: fetch them; its members, or nil; how long they are; whether to "
        "fetch them",
    ]

    def misfit(self, reply: CopyCodes) -> str:
        return "" if len(reply.codes) == len(self.pages) else "codes"


def _is_node(value: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", value) is not None


def _is_file(value: str) -> bool:
    return re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}", value) is not None


class BodyPlace(NamedTuple):
    """Where a body lies."""

    node: Annotated[str, text(40, 40, where=_is_node, says="a node id in hex")]
    file: Annotated[str, text(128, 1, where=_is_file, says="a plain file name")]
    offset: Annotated[int, integer(0, _OFFSET_MAX)]
    length: Annotated[int, integer(1, _OFFSET_MAX)]


class FoundRow(NamedTuple):
    """A page that the answering node counts as its own from now on."""

    key: TaskKey
    place: Annotated[BodyPlace, row(BodyPlace)]


@dataclass(frozen=True, slots=True)
class PagesFound(WireMap):
    """Answer to `stand_in_pages`."""

    found: Annotated[tuple[FoundRow, ...], rows(FoundRow, KEYS_MAX)]


@dataclass(frozen=True, slots=True)
class StandIn(CallArgs[PagesFound]):
    """An owner seeks copies of pages whose node is gone. Refused: `unknown-crawl`, `leaving`, `no-copies`."""

    terms: ClassVar[CallTerms] = CallTerms("stand_in_pages", 15.0, 256 << 10)
    crawl: Crawl
    keys: TaskKeys

    def misfit(self, reply: PagesFound) -> str:
        return "" if {found.key for found in reply.found} <= set(self.keys) else "found"


@dataclass(frozen=True, slots=True)
class Adopt(CallArgs[Done]):
    """A node that leaves has its heir take over its pages; answered once all are on disk.

    Refused: `leaving`, `not-adopted`.
    """

    terms: ClassVar[CallTerms] = CallTerms("adopt", 3600.0)
    crawl: Crawl
    copies: Annotated[bool, flag(), "what it has of others' pages, too"] = False


@dataclass(frozen=True, slots=True)
class NodeFigures(WireMap):
    """Answer to `export_facts`."""

    counters: Annotated[Figures, "what the node did, and those whose pages it took over"]
    rss_bytes_max: Annotated[Count, "the most memory that it had"] = 0


@dataclass(frozen=True, slots=True)
class ExportFacts(CallArgs[NodeFigures]):
    """A gathering command, or an heir, asks what a node did; answered once an ending crawl has written its last."""

    terms: ClassVar[CallTerms] = CallTerms("export_facts")
    crawl: Crawl


class StoredRow(NamedTuple):
    """A row of the store, its kind and crawl left out."""

    suffix: Annotated[bytes, octets_up_to(CURSOR_BYTES_MAX)]
    value: Annotated[bytes, _BODY]


@dataclass(frozen=True, slots=True)
class StoredRows(WireMap):
    """Answer to `export_rows`."""

    rows: Annotated[tuple[StoredRow, ...], rows(StoredRow, EXPORT_ROWS_MAX)]
    cursor: Annotated[bytes | None, or_nil(octets_up_to(CURSOR_BYTES_MAX)), "nil at the end"]


@dataclass(frozen=True, slots=True)
class ExportRows(CallArgs[StoredRows]):
    """A gathering command, or an heir, asks for rows of a kind. Refused: `no-rows`."""

    terms: ClassVar[CallTerms] = CallTerms("export_rows", 60.0, EXPORT_REPLY_BYTES)
    crawl: Crawl
    kind: Annotated[bytes, octets(1)]
    cursor: Annotated[bytes, octets_up_to(CURSOR_BYTES_MAX), "empty begins"]


class StoredFile(NamedTuple):
    """An archive file."""

    name: Annotated[str, text(NAME_CHARS_MAX, 1)]
    length: Annotated[int, integer(0, COUNT_MAX)]  # as far as it is committed


@dataclass(frozen=True, slots=True)
class StoredFiles(WireMap):
    """Answer to `export_files`."""

    files: Annotated[tuple[StoredFile, ...], rows(StoredFile, EXPORT_ROWS_MAX), "by name; empty at the end"]


@dataclass(frozen=True, slots=True)
class ExportFiles(CallArgs[StoredFiles]):
    """A gathering command, or an heir, asks for the archive files of a crawl."""

    terms: ClassVar[CallTerms] = CallTerms("export_files", 60.0, EXPORT_REPLY_BYTES)
    crawl: Crawl
    after: Annotated[str, text(NAME_CHARS_MAX), "the name to go on behind; empty begins"]


@dataclass(frozen=True, slots=True)
class StoredChunk(WireMap):
    """Answer to `export_chunk`."""

    data: Annotated[bytes, octets_up_to(CHUNK_BYTES_MAX), "empty at the end of what is committed"]


@dataclass(frozen=True, slots=True)
class ExportChunk(CallArgs[StoredChunk]):
    """A gathering command, an heir, or a node that copies a large page, asks for part of a file. Refused: `no-file`."""

    terms: ClassVar[CallTerms] = CallTerms("export_chunk", 60.0, EXPORT_REPLY_BYTES)
    crawl: Crawl
    name: Annotated[str, text(NAME_CHARS_MAX)]
    offset: Count
    limit: Annotated[int, integer(1, COUNT_MAX)]

    def misfit(self, reply: StoredChunk) -> str:
        return "" if len(reply.data) <= self.limit else "data"


# -- for people (`node`, `swarm/lifecycle`) --

GIVEN_UP_ROWS_MAX: Final = 80
GIVEN_UP_DETAIL_CHARS_MAX: Final = 1_000
URLS_A_CALL: Final = 50
RELEASE, DROP = "release", "drop"


class GivenUpRow(NamedTuple):
    """A task that failed for good."""

    key: TaskKey
    url: Annotated[str, text(URL_CHARS_MAX)]
    depth: Count
    attempts: Count
    detail: Annotated[str, text(GIVEN_UP_DETAIL_CHARS_MAX)]


@dataclass(frozen=True, slots=True)
class TasksGivenUp(WireMap):
    """Answer to `given_up`."""

    rows: Annotated[tuple[GivenUpRow, ...], rows(GivenUpRow, GIVEN_UP_ROWS_MAX), "of what the asked node owns"]
    cursor: Annotated[bytes | None, or_nil(octets(0, *_KEY_WIDTHS)), "nil at the end"]


@dataclass(frozen=True, slots=True)
class ListGivenUp(CallArgs[TasksGivenUp]):
    """Commands ask which tasks failed for good."""

    terms: ClassVar[CallTerms] = CallTerms("given_up", reply_bytes_max=1 << 20)
    crawl: Crawl
    cursor: Annotated[bytes, octets(0, *_KEY_WIDTHS), "the task key to go on from; empty begins"]


@dataclass(frozen=True, slots=True)
class TasksDecided(WireMap):
    """Answer to `given_up_decide`."""

    count: Annotated[Count, "tasks that the asked node owned and did it to"]


@dataclass(frozen=True, slots=True)
class DecideGivenUp(CallArgs[TasksDecided]):
    """Commands have failed tasks tried again, or dropped. Refused: `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("given_up_decide", 60.0)
    crawl: Crawl
    action: Annotated[str, word(RELEASE, DROP)]
    urls: Annotated[
        tuple[str, ...] | None,
        or_nil(items(text(URL_CHARS_MAX, 1, where=_is_canonical, says="a canonical URL"), URLS_A_CALL)),
        "nil for all",
    ]


@dataclass(frozen=True, slots=True)
class Explanation(WireMap):
    """Answer to `why` and `explain_host`: any fields, named for people."""


@dataclass(frozen=True, slots=True)
class ExplainUrl(CallArgs[Explanation]):
    """Commands ask the owner of a URL what it knows of it. Refused: `unknown-crawl`."""

    terms: ClassVar[CallTerms] = CallTerms("why", reply_bytes_max=64 * 1024)
    crawl: Crawl
    url: Url


@dataclass(frozen=True, slots=True)
class ExplainHost(CallArgs[Explanation]):
    """Commands ask the gatekeeper of a host what it knows of it."""

    terms: ClassVar[CallTerms] = CallTerms("explain_host", reply_bytes_max=64 * 1024)
    host: Annotated[str, text(URL_CHARS_MAX)]


CALLS: Final[tuple[type[CallArgs[Any]], ...]] = (
    ExchangeMembers, Activate,
    ListCrawls, GetCrawl, TellCrawl, ReportCrawl, AskProgress, AuditCrawl, AuditKeys, ClaimPages, NotePages, AskPages,
    Lend, Recall, InHand, Release, ReportLent, ReportPlan,
    AskHosts, GiveHostsBack, OfferHosts, AskRobots, TellRobots,
    Have,
    CopyPages, StandIn, Adopt, ExportFacts, ExportRows, ExportFiles, ExportChunk,
    ListGivenUp, DecideGivenUp, ExplainUrl, ExplainHost,
)  # fmt: skip
BY_NAME: Final = {call.terms.name: call for call in CALLS}
# Requests with frames of their own: see `dhtcrawl.rpc.tasks.messages`.
FRAMES: Final = (StoreTask, StoreBackup, DeleteBackup, RefreshTask)
assert len(BY_NAME) == len(CALLS), "two calls have one name"
