"""Sums up a crawl of many nodes from each node's counters.

Pages, bytes, redirects, errors, skipped URLs and refetches are counted in the
collection; what only the acting node knows (requests, politeness violations) is summed
over the nodes. A node's counters are kept with the collection, so that they still
count if the node is gone at the next gathering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dhtcrawl.storage.outputs.outputs import OutputCounters
from dhtcrawl.storage.outputs.summary import NodeShare, Summary
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.plan_counters import by_model, counts_plans
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn

COUNTERS_MAX = 80  # of a node, as in `dhtcrawl.swarm.calls.words`
SECONDS_MAX = 1 << 53  # which a node says it took; they are stored in milliseconds, in 64 bits
_NODE = b"n"  # among a crawl's notes: `n` ‖ node id (20)


class Unreachable(Exception):
    """A node does not answer, or answers with a failure; one line that says how."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node's figures, by its own count; `counters` have the names of `CrawlCounters`.

    `failure` says in one line why the node cannot be read; then its figures are 0, or
    those of an earlier gathering.
    """

    node: str
    counters: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    rss_bytes_max: int = 0
    seconds: float = 0.0
    failure: str = ""


class CrawlFacts(NamedTuple):
    """The state of the crawl, as its coordinator knows it."""

    ended: bool  # no node works on it any more
    complete: bool  # because nothing was left to do
    nodes: int  # how many took part, those that are gone included
    seconds: float  # from its start to its end, by one clock
    storage_sync: bool = True
    pending_reason: str = ""  # why what is pending was not fetched: a SkipReason


def put_node(txn: Txn, crawl: bytes, facts: NodeFacts, stamp: int) -> None:
    """Store a node's figures; `stamp` names the end of the crawl at which all was gathered, 0 if the crawl goes on."""
    fields = {
        "counters": dict(facts.counters),
        "cpu_ms": round(facts.cpu_seconds * 1000),
        "rss": facts.rss_bytes_max,
        "ms": round(facts.seconds * 1000),
        "stamp": stamp,
    }
    txn.put(_node_key(crawl, facts.node), pack(fields))


def get_node(txn: Txn, crawl: bytes, node: str) -> tuple[NodeFacts, int] | None:
    """A node's stored figures and their stamp, or None.

    Raises:
        StorageError: they are damaged.
    """
    value = txn.get(_node_key(crawl, node))
    if value is None:
        return None
    fields = unpack(value)
    facts = NodeFacts(node, fields["counters"], fields["cpu_ms"] / 1000, fields["rss"], fields["ms"] / 1000)
    return facts, fields["stamp"]


def read_facts(fields: Mapping[str, Any]) -> NodeFacts:
    """A node's figures from a map of them, with `reachable`; a figure that is missing or invalid counts 0."""
    counters = fields.get("counters")
    facts = NodeFacts(
        str(fields.get("node", "")),
        counters if isinstance(counters, Mapping) else {},
        fields.get("cpu_seconds", 0.0),
        fields.get("rss_bytes_max", 0),
        fields.get("seconds", 0.0),
        "" if fields.get("reachable") is True else "does not answer",
    )
    return checked(facts)


def checked(facts: NodeFacts) -> NodeFacts:
    """The same figures, bounded in number; one that is not valid counts 0."""
    return replace(
        facts,
        counters={str(name)[:64]: _figure(value) for name, value in list(facts.counters.items())[:COUNTERS_MAX]},
        cpu_seconds=_figure(facts.cpu_seconds, SECONDS_MAX),
        rss_bytes_max=int(_figure(facts.rss_bytes_max)),
        seconds=_figure(facts.seconds, SECONDS_MAX),
    )


def summarise(
    record: CrawlRecord,
    facts: CrawlFacts,
    nodes: Sequence[NodeFacts],
    totals: OutputCounters,
    *,
    refetches: int,
    gathered: bool,
) -> Summary:
    """The summary of a gathered crawl.

    `refetches` counts the fetches beyond the first that the records tell of;
    `gathered` says whether all rows of every node were received.
    """
    settings = record.spec.settings
    whole = totals.brought == totals.pages and not (totals.unsettled or totals.lost or totals.pages_missing)
    plan_counters = {name for node in nodes for name in node.counters if counts_plans(name)}
    plans = by_model({name: sum(node.counters.get(name, 0) for node in nodes) for name in plan_counters})
    return Summary(
        crawl=record.crawl_id.hex(),
        complete=facts.complete and gathered and whole,
        nodes=facts.nodes,
        seconds=round(facts.seconds, 3),
        pages=totals.pages,
        pages_ok=totals.pages_ok,
        fetches=_sum(nodes, "fetches"),
        refetches=refetches,
        retried=_sum(nodes, "retried"),
        redirects=totals.redirects,
        errors=totals.errors,
        errors_by_kind=dict(sorted(totals.errors_by_kind.items())),
        skipped=dict(sorted(totals.skipped.items())),
        records=dict(sorted(totals.records.items())),
        rejected=dict(sorted(totals.rejected.items())),
        bytes=totals.bytes,
        urls_seen=totals.urls_seen,
        links=_sum(nodes, "links"),
        lost=totals.lost,
        pages_missing=totals.pages_missing,
        pages_undercopied=_sum(nodes, "pages_undercopied"),
        politeness_violations=_sum(nodes, "politeness_violations"),
        politeness_exceptions=_sum(nodes, "politeness_exceptions"),
        storage_sync=facts.storage_sync,
        policy=settings.policy,
        plans=plans,
        key=settings.key,
        copies=settings.copies,
        per_node=[_share(node) for node in sorted(nodes, key=lambda facts: facts.node)],
    )


def _share(facts: NodeFacts) -> NodeShare:
    return NodeShare(
        node=facts.node,
        pages=_sum([facts], "pages"),
        bytes=_sum([facts], "body_bytes"),
        cpu_seconds=round(facts.cpu_seconds, 3),
        rss_bytes_max=facts.rss_bytes_max,
    )


def _sum(nodes: Iterable[NodeFacts], counter: str) -> int:
    return sum(int(facts.counters.get(counter, 0)) for facts in nodes)


def _figure(value: object, end: int = 1 << 63) -> float:
    if type(value) not in (int, float) or not isinstance(value, int | float):
        return 0
    return value if 0 <= value < end else 0  # a NaN is not at least 0 either


def _node_key(crawl: bytes, node: str) -> bytes:
    return keys.COUNTERS + crawl + _NODE + bytes.fromhex(node)
