"""Calls of `swarm/assignment`: tasks that another node than their owner fetches, and plans. No I/O."""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from dhtcrawl.policy.seam import PLAN_TABLE_BYTES_MAX, TaskResult
from dhtcrawl.rpc.tasks.frame import LIST_ITEMS_MAX
from dhtcrawl.rpc.tasks.schema import (
    CallArgs,
    WireMap,
    flag,
    integer,
    items,
    mapping,
    number,
    octets_up_to,
    or_nil,
    rows,
    text,
)
from dhtcrawl.swarm.calls.words import (
    COUNT_MAX,
    KEYS_MAX,
    Count,
    Crawl,
    Done,
    TaskKey,
    TaskKeys,
    is_origin,
)
from dhtcrawl.url import HOST_CHARS_MAX

PLAN_EPOCH_MAX: Final = 2**53
PLAN_REPORT_BYTES_MAX: Final = 64 << 10
CONNECT_S_MIN, CONNECT_S_MAX = 0.001, 3_600.0
DETAIL_CHARS_MAX: Final = 200

PlanEpoch = Annotated[int, integer(0, PLAN_EPOCH_MAX)]


class Lend(CallArgs[Done], name="lend"):
    """An owner assigns tasks to a worker, after STORE_BACKUP of their records.

    Refused: `not-owner`, `not-ready`, `full`, `unknown-crawl`.
    """

    crawl: Crawl
    keys: TaskKeys
    patient: Annotated[TaskKeys, "those for which no other node is left"]
    connect_s: Annotated[
        Mapping[str, float],
        mapping(text(HOST_CHARS_MAX), number(CONNECT_S_MIN, CONNECT_S_MAX), LIST_ITEMS_MAX),
        "how many seconds each host may take to connect",
    ]
    epoch: Annotated[PlanEpoch, "of the owner's plan"] = 0


class LetGo(WireMap):
    """Answer to `recall`."""

    keys: Annotated[TaskKeys, "those that were not tried, are not over, and are forgotten"]
    kept_back: Annotated[TaskKeys, "those of them that waited on purpose: for their host's sake, or the crawl's"] = ()


class Recall(CallArgs[LetGo], name="recall"):
    """An owner, also a new one, takes tasks back from a worker. Refused: `not-owner`, `unknown-crawl`."""

    crawl: Crawl
    keys: Annotated[TaskKeys, "none: all that the worker had of this owner is forgotten"]

    def misfit(self, reply: LetGo) -> str:
        if not set(reply.keys) <= set(self.keys):
            return "keys"
        return "" if set(reply.kept_back) <= set(reply.keys) else "kept_back"


class InHand(CallArgs[Done], name="in_hand"):
    """A worker tells a new owner which of its tasks are in flight there for the former one.

    Refused: `unknown-crawl`.
    """

    crawl: Crawl
    keys: TaskKeys


class Release(CallArgs[Done], name="release"):
    """A worker gives back, without an outcome, tasks that were in flight there when their owner changed."""

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


class ReportLent(CallArgs[Done], name="lent_report"):
    """A worker reports the outcomes of an owner's tasks; without rows, that it is alive. Refused: `no-policy`."""

    crawl: Crawl
    given: Annotated[
        tuple[OutcomeRow, ...],
        rows(OutcomeRow, KEYS_MAX),
        "result 0 page, 1 failed, 2 cannot connect, 3 not begun",
    ]


class PlanTable(WireMap):
    """Answer to `crawl_plan`."""

    epoch: Annotated[PlanEpoch, "of the coordinator's plan; 0: none"]
    table: Annotated[bytes | None, octets_up_to(PLAN_TABLE_BYTES_MAX), "a packed map, where it is newer"] = None


class ReportPlan(CallArgs[PlanTable], name="crawl_plan", reply_bytes_max=PLAN_TABLE_BYTES_MAX + 1024):
    """A member tells the crawl's coordinator what its policy's planner wants, and asks for the plan.

    Refused: `no-policy`, `unknown-crawl`.
    """

    crawl: Crawl
    epoch: Annotated[PlanEpoch, "of the asker's plan; 0: none"]
    report: Annotated[bytes, octets_up_to(PLAN_REPORT_BYTES_MAX), "a packed map"]
    news: Annotated[bool, flag(), "whether a plan of it is waited for"] = False


Origin = Annotated[str, text(HOST_CHARS_MAX + 8, 1, where=is_origin, says="http:// or https:// and a host")]


class UnplacedRow(NamedTuple):
    """An origin whose host has no place in the owner's plan, and how many tasks of it the owner has."""

    origin: Origin
    tasks: Annotated[int, integer(1, KEYS_MAX)]


class WantPlaces(CallArgs[Done], name="places_want"):
    """An owner of tasks tells the gatekeeper of their hosts that it wants to know where these lie.

    Refused: `no-policy`, `unknown-crawl`.
    """

    crawl: Crawl
    rows: Annotated[tuple[UnplacedRow, ...], rows(UnplacedRow, KEYS_MAX)]


class TimeSites(CallArgs[Done], name="sites_time"):
    """The gatekeeper of some hosts has a node time them, each by a small request in its turn.

    Refused: `no-policy`, `unknown-crawl`.
    """

    crawl: Crawl
    origins: Annotated[
        tuple[str, ...],
        items(text(HOST_CHARS_MAX + 8, 1, where=is_origin, says="http:// or https:// and a host"), KEYS_MAX),
    ]
