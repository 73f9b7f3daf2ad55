"""Calls of `swarm/lifecycle`: a crawl's record, waves and audit, page blocks, tasks that were given up. No I/O."""

from typing import Annotated, Final, NamedTuple

from dhtcrawl.keyspace import CRAWL_ID_BYTES, INCARNATION_MAX, KEY_BYTES
from dhtcrawl.rpc.tasks.schema import (
    CallArgs,
    WireMap,
    flag,
    integer,
    items,
    octets,
    octets_up_to,
    or_nil,
    row,
    rows,
    text,
    word,
)
from dhtcrawl.storage.store.crawl_record import DIGEST_BYTES, WIRE_BYTES_MAX
from dhtcrawl.swarm.calls.words import (
    _KEY_WIDTHS,
    COUNT_MAX,
    NODES_TOLD_MAX,
    SPAN_MS_MAX,
    Count,
    Counters,
    Crawl,
    Done,
    Figures,
    NodeId,
    ObstacleRow,
    TaskKey,
    TaskKeys,
    Waiting,
    _is_canonical,
)
from dhtcrawl.url import URL_CHARS_MAX

CRAWLS_A_LIST: Final = 256
VIEW_BYTES: Final = 16
STILL_BYTES: Final = 16
WAVE_TIMEOUT_S: Final = 5.0
PROGRESS_ROWS_MAX: Final = 512
# The counters of a report that are told though they are 0. One that lacks `pages_ok` is of a version that counted none.
ALWAYS_COUNTED: Final = frozenset({"seconds", "bytes", "pages", "pages_ok"})

ViewPrint = Annotated[bytes, octets(VIEW_BYTES)]
RecordDigest = Annotated[bytes, octets(DIGEST_BYTES)]
RecordBytes = Annotated[bytes, octets_up_to(WIRE_BYTES_MAX)]


class ListedCrawl(NamedTuple):
    """A crawl that a node knows."""

    crawl: Annotated[bytes, octets(CRAWL_ID_BYTES)]
    digest: RecordDigest


class KnownCrawls(WireMap):
    """Answer to `crawl_list`."""

    crawls: Annotated[tuple[ListedCrawl, ...], rows(ListedCrawl, CRAWLS_A_LIST), "by id; fewer than 256 are the last"]


class ListCrawls(CallArgs[KnownCrawls], name="crawl_list", reply_bytes_max=64 * 1024):
    """A newcomer asks which crawls a node knows."""

    after: Annotated[bytes, octets(0, CRAWL_ID_BYTES), "the crawl id to go on behind; empty begins"]


class KnownRecord(WireMap):
    """Answer to `crawl_get`."""

    record: Annotated[RecordBytes, "the record, whole"]


class GetCrawl(CallArgs[KnownRecord], name="crawl_get", reply_bytes_max=WIRE_BYTES_MAX + 1024):
    """A node that lacks a crawl's record, or has another version of it, asks for it. Refused: `unknown-crawl`."""

    crawl: Crawl


class SeedFetched(WireMap):
    """Answer to `crawl_fetched`."""

    fetched: Annotated[bool, flag(), "the node has the task from its owner, or is named by the record of its page"]


class AskFetched(CallArgs[SeedFetched], name="crawl_fetched"):
    """A node asks the owner of a seed whether another fetched it, which says where it redirects to.

    Refused: `unknown-crawl`.
    """

    crawl: Crawl
    key: TaskKey
    node: NodeId


class TellCrawl(CallArgs[Done], name="crawl_tell", timeout_s=WAVE_TIMEOUT_S):
    """A node sends another a crawl's record; answered once it is merged, on disk. Refused: `full`."""

    record: RecordBytes
    crawl: Annotated[
        bytes | None,
        octets(CRAWL_ID_BYTES),
        "whose record it is: who knows the crawl reads no `spec`, and need be told no more than is new in the record "
        "that the asker last heard of from it",
    ] = None
    view: Annotated[
        bytes | None, octets(VIEW_BYTES), "fingerprint of the asker's view, where the record has `places`"
    ] = None


# What a person may want of a crawl.
PAUSE, RESUME, STOP = "pause", "resume", "stop"
WISH_SETTINGS_CHARS_MAX: Final = 4_096
WISH_ERROR_CHARS_MAX: Final = 1_000


class WishDone(WireMap):
    """Answer to `crawl_wish`: how the crawl stands then, or one line that says why it does not change."""

    state: Annotated[str, text(16)] = ""
    error: Annotated[str, text(WISH_ERROR_CHARS_MAX), "empty where it was done"] = ""


class PassWish(CallArgs[WishDone], name="crawl_wish", timeout_s=10.0):
    """A node passes on what a person wants of a crawl to the node in charge of it, on the same machine."""

    crawl: Crawl
    action: Annotated[str, word(PAUSE, RESUME, STOP)]
    settings: Annotated[str, text(WISH_SETTINGS_CHARS_MAX), "a JSON object of the settings to change; empty: none"] = ""


class GoneRow(NamedTuple):
    """The last figures of a node that the coordinator does not hear of any more, or the coordinator's own."""

    node: NodeId
    heard_ms: Annotated[int, integer(0, SPAN_MS_MAX), "how long ago"]
    counters: Counters


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
        "for limits and for people; `seconds`, `bytes`, `pages` and `pages_ok` among them, with a page limit "
        "`pages_out` and `pages_used`; another one that is 0 may be left out; `released_NAME` is to be taken off the "
        "`NAME` of all nodes together: given-up tasks that the node released, and did not count itself",
    ]
    obstacle: Annotated[ObstacleRow | None, or_nil(row(ObstacleRow)), "what keeps it from going on there"] = None
    awaited: Annotated[
        tuple[ObstacleRow, ...],
        rows(ObstacleRow, NODES_TOLD_MAX),
        "nodes that are gone, and how many pages that the node owns lie only there",
    ] = ()


class ReportCrawl(CallArgs[CrawlStanding], name="crawl_report", timeout_s=WAVE_TIMEOUT_S):
    """The coordinator asks every member in every wave."""

    crawl: Crawl
    gone: Annotated[
        tuple[GoneRow, ...],
        rows(GoneRow, NODES_TOLD_MAX),
        "figures that the coordinator's successor will not hear again: its own, and those of nodes that are gone",
    ] = ()


class ProgressRow(NamedTuple):
    """How a crawl stands on one node, as its coordinator last heard."""

    node: NodeId
    heard_ms: Annotated[int, integer(0, SPAN_MS_MAX), "how long ago"]
    member: Annotated[bool, flag(), "the node is a member"]
    counters: Figures
    waiting: Waiting
    obstacle: Annotated[ObstacleRow | None, or_nil(row(ObstacleRow))]


class CrawlFigures(WireMap):
    """Answer to `crawl_progress`."""

    counters: Annotated[Figures, "of the whole swarm, or of the node where `here` was asked"]
    waiting: Waiting
    heard_ms: Annotated[int, integer(0, SPAN_MS_MAX), "how old the figures may be"] = 0
    obstacle: Annotated[ObstacleRow | None, or_nil(row(ObstacleRow)), "why nothing moves"] = None
    nodes: Annotated[tuple[ProgressRow, ...], rows(ProgressRow, PROGRESS_ROWS_MAX)] = ()
    nodes_total: Annotated[Count, "how many nodes there are rows of, told or not"] = 0


class AskProgress(CallArgs[CrawlFigures], name="crawl_progress", timeout_s=WAVE_TIMEOUT_S, reply_bytes_max=1 << 20):
    """Commands ask the coordinator how a crawl stands, or with `here` any node how it stands there.

    Refused: `not-coordinator`; `unknown-crawl`.
    """

    crawl: Crawl
    here: Annotated[bool, flag(), "only what the asked node did"] = False
    nodes: Annotated[bool, flag(), "a row for each node is wanted, too"] = False


class AuditResult(WireMap):
    """Answer to `crawl_audit`: both numbers, or that the audit still runs."""

    missing: Annotated[int | None, integer(0, 2**62), "links that no owner knows"] = None
    resent: Annotated[int | None, integer(0, 2**62), "pages that send their links again"] = None
    running: Annotated[bool, flag(), "ask again with the same `still`"] = False

    def wrong(self) -> str:
        if self.running:
            return ""
        return "missing" if self.missing is None else "resent" if self.resent is None else ""


class AuditCrawl(CallArgs[AuditResult], name="crawl_audit", timeout_s=WAVE_TIMEOUT_S):
    """The coordinator has every member look for lost links.

    Refused: `not-coordinator`, `not-ready`, `unknown-crawl`.
    """

    crawl: Crawl
    still: Annotated[bytes, octets(STILL_BYTES), "names the state that is audited"]


class MissingKeys(WireMap):
    """Answer to `audit_keys`."""

    missing: Annotated[TaskKeys, "those without a record there"]


class AuditKeys(CallArgs[MissingKeys], name="audit_keys", reply_bytes_max=64 * 1024):
    """A node that audits its pages asks owners for the tasks of their links."""

    crawl: Crawl
    keys: TaskKeys

    def misfit(self, reply: MissingKeys) -> str:
        return "" if set(reply.missing) <= set(self.keys) else "missing"


# -- page blocks --

PAGES_MAX: Final = 2**62
EPOCH_MAX: Final = 2**63 - 1
BOOK_NODES_MAX: Final = 4_096
BOOK_ROW_BYTES: Final = KEY_BYTES + 24  # node id, epoch, number, out
BOOK_BYTES_MAX: Final = BOOK_NODES_MAX * BOOK_ROW_BYTES

BookRows = Annotated[bytes, octets_up_to(BOOK_BYTES_MAX, in_rows_of=BOOK_ROW_BYTES)]


class PagesClaimed(WireMap):
    """Answer to `pages_claim`; only `epoch` where a later coordinator has claimed before."""

    epoch: Annotated[int, integer(0, EPOCH_MAX), "the latest claim that the node has heard of"]
    out: Annotated[int | None, integer(0, PAGES_MAX), "pages that are out at the node"] = None
    serial: Annotated[int | None, integer(0, COUNT_MAX), "of its last ask"] = None
    book: Annotated[bytes | None, octets_up_to(BOOK_BYTES_MAX, in_rows_of=BOOK_ROW_BYTES), "the book it has"] = None

    def wrong(self) -> str:
        given = [self.out is not None, self.serial is not None, self.book is not None]
        return "" if all(given) or not any(given) else "out"


class ClaimPages(
    CallArgs[PagesClaimed], name="pages_claim", timeout_s=WAVE_TIMEOUT_S, reply_bytes_max=BOOK_BYTES_MAX + 1024
):
    """A new coordinator takes over the page blocks of a member. Refused: `not-coordinator`, `unknown-crawl`."""

    crawl: Crawl
    epoch: Annotated[int, integer(1, EPOCH_MAX), "no answer of an earlier epoch is taken from now on"]

    def misfit(self, reply: PagesClaimed) -> str:
        sound = reply.epoch == self.epoch if reply.out is not None else reply.epoch > self.epoch
        return "" if sound else "epoch"


class PagesNoted(WireMap):
    """Answer to `pages_note`."""

    rows: Annotated[Count, "how many the book has now"]


class NotePages(CallArgs[PagesNoted], name="pages_note", timeout_s=WAVE_TIMEOUT_S, reply_bytes_max=1024):
    """The coordinator sends its book to its possible successors. Refused: `not-coordinator`, `unknown-crawl`."""

    crawl: Crawl
    rows: BookRows


class PagesOut(WireMap):
    """Answer to `pages_ask`."""

    out: Annotated[int, integer(0, PAGES_MAX), "pages that are out at the asker from now on"]


class AskPages(CallArgs[PagesOut], name="pages_ask", timeout_s=WAVE_TIMEOUT_S, reply_bytes_max=1024):
    """A member asks the coordinator for pages, or gives some back.

    Refused: `not-coordinator`; `not-ready`, while members are to be claimed or too few successors have the book.
    """

    crawl: Crawl
    epoch: Annotated[int, integer(0, EPOCH_MAX), "the last claim's"]
    serial: Annotated[Count, "grows with every ask"]
    out: Annotated[int, integer(0, PAGES_MAX), "pages that are out here"]
    want: Annotated[int, integer(0, PAGES_MAX), "so many more; 0 gives back"]


# -- tasks that were given up --

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


class TasksGivenUp(WireMap):
    """Answer to `given_up`."""

    rows: Annotated[tuple[GivenUpRow, ...], rows(GivenUpRow, GIVEN_UP_ROWS_MAX), "of what the asked node owns"]
    cursor: Annotated[bytes | None, or_nil(octets(0, *_KEY_WIDTHS)), "nil at the end"]


class ListGivenUp(CallArgs[TasksGivenUp], name="given_up", reply_bytes_max=1 << 20):
    """Commands ask which tasks failed for good."""

    crawl: Crawl
    cursor: Annotated[bytes, octets(0, *_KEY_WIDTHS), "the task key to go on from; empty begins"]


class TasksDecided(WireMap):
    """Answer to `given_up_decide`."""

    count: Annotated[Count, "tasks that the asked node owned and did it to"]


class DecideGivenUp(CallArgs[TasksDecided], name="given_up_decide", timeout_s=60.0):
    """Commands have failed tasks tried again, or dropped. Refused: `unknown-crawl`."""

    crawl: Crawl
    action: Annotated[str, word(RELEASE, DROP)]
    urls: Annotated[
        tuple[str, ...] | None,
        or_nil(items(text(URL_CHARS_MAX, 1, where=_is_canonical, says="a canonical URL"), URLS_A_CALL)),
        "nil for all",
    ]
