"""What it costs a node to know every other member, from 100 to 4,096 of them, and up to how many that is right.

One node's membership by itself, without sockets: what is in its tables, and what it takes to learn, to tell and to
conclude. From that, the formulas of docs/decisions/0081:

    exchange   bytes a second that an idle node sends because all records are exchanged now and then
               = 2 N row / (exchange_s (1 + ceil(log2(N / 32))))
    churn      changes a second that gossip can tell to everybody: what fits into a node's datagrams, over how often
               each node tells each change
    lifetime   how long nodes have to stay on average so that there are no more changes than that; a node that comes and
               goes is four of them

    python scripts/bench_members.py [--nodes N,N] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended

from dhtcrawl.identity import NodeIdentity
from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX, packed_bytes
from dhtcrawl.rpc.membership.gossip import EXCHANGE_MEMBERS
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState, parse_records
from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.rpc.membership.row_proofs import OwnNode, RowProofs
from dhtcrawl.rpc.membership.rumours import tellings

NODES, QUICK_NODES = (100, 500, 1_000, 2_000, 4_096), (100, 500)
HEAD_BYTES = 180  # of a `hello`: its head, its name, the sender's own row
CHANGES = 200
CHANGES_A_LIFE = 4  # joining, active, left or suspected, dead


class MembersCost(NamedTuple):
    """Of one node that knows so many others."""

    row_bytes: float
    learn_ms: float  # all records of an exchange
    change_us: float  # one member changes: learning that, and the next view
    memory_bytes: float  # of all that it knows


class SignedMember:
    """A member somewhere, which signs what it says of itself."""

    def __init__(self, number: int) -> None:
        self._proofs = RowProofs(key := NodeIdentity.drawn())
        self._host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        self._id = key.node_id

    def record(self, epoch: int) -> MemberRecord:
        """What it says at that epoch."""
        made = MemberRecord.newcomer(self._id, (self._host, 8_468), 3)
        said = replace(made, state=NodeState.ACTIVE, owns=True, features=("xor",), epoch=epoch)
        return self._proofs.signed(said)


def measure(nodes: int, seed: int) -> MembersCost:
    """What one node takes to know so many."""
    rng, others = Random(seed), [SignedMember(number) for number in range(nodes - 1)]
    rows = [each.record(2).row() for each in others]
    row_bytes = sum(map(packed_bytes, rows)) / len(rows)

    def learned() -> Members:
        key = NodeIdentity.drawn()
        members = Members(OwnNode(MemberRecord.newcomer(key.node_id, ("10.200.0.1", 8_468), 1), key), rng)
        records, bad = parse_records(rows, "10.0.0.1", len(rows))
        assert not bad, "the records are well made"
        members.learn(records, 0.0, sender=records[0].id, sees=nodes, news=False)
        members.view()
        return members

    learn_s, members = took(learned)
    changes = [each.record(9) for each in rng.sample(others, min(CHANGES, len(others)))]

    def change() -> None:
        for each in changes:
            members.learn([each], 0.0, sender=each.id, sees=nodes)
            members.view()

    change_s, _ = took(change)
    tracemalloc.start()
    kept = learned()
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept.view().members) == nodes, "it knows all of them"
    return MembersCost(row_bytes, 1e3 * learn_s, 1e6 * change_s / len(changes), memory)


def took(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and what came of it."""
    began = time.process_time()
    value = function()
    return time.process_time() - began, value


def exchange_bytes(nodes: int, row_bytes: float, settings: GossipSettings) -> float:
    """A second, sent by each node: it exchanges once an interval, and is asked as often. Pure."""
    scale = 1 + max(0, math.ceil(math.log2(nodes / EXCHANGE_MEMBERS)))
    return 2 * nodes * row_bytes / (settings.exchange_s * scale)


def changes_max(nodes: int, row_bytes: float, settings: GossipSettings) -> float:
    """Changes a second that a node's datagrams have room to tell as often as each is told. Pure."""
    datagrams = (2 + settings.fanout) / settings.period_s  # it asks one, answers one, and tells `fanout` more
    return datagrams * ((DATAGRAM_BYTES_MAX - HEAD_BYTES) // row_bytes) / tellings(nodes)


def lifetime_s(nodes: int, row_bytes: float, settings: GossipSettings) -> float:
    """For how long nodes have to stay, on average. Pure."""
    return CHANGES_A_LIFE * nodes / changes_max(nodes, row_bytes, settings)


def rows_of(nodes: int, cost: MembersCost) -> list[benchmark.Row]:
    """What is told of one size."""
    settings = GossipSettings()
    values = (
        ("row", cost.row_bytes, "B", "a member's record on the wire"),
        ("newcomer", nodes * cost.row_bytes / 1e3, "kB", "records that it is sent once, as it joins"),
        ("learn", cost.learn_ms, "ms", "CPU for all records, their signatures included"),
        ("change", cost.change_us, "µs", "CPU of one change, at each node, with the next view"),
        ("memory", cost.memory_bytes / 2**20, "MiB", "of what a node knows of the others"),
        ("exchange", exchange_bytes(nodes, cost.row_bytes, settings), "B/s", "sent by each node, idle"),
        ("churn", changes_max(nodes, cost.row_bytes, settings), "1/s", "changes that gossip can tell everybody"),
        ("lifetime", lifetime_s(nodes, cost.row_bytes, settings) / 60, "min", "that nodes have to stay, on average"),
    )
    return [
        benchmark.row(f"{nodes} nodes, {name}", value, unit, 1, claim=claim, digits=2)
        for name, value, unit, claim in values
    ]


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="What it costs a node to know every other member.")
    parser.add_argument("--nodes", type=benchmark.counts, metavar="N,N", help="how many members there are")
    parser.add_argument("--seed", type=int, default=1)
    benchmark.add_options(parser, "the small swarms only; seconds")
    args = parser.parse_args()
    ended.at_once()
    sizes = args.nodes or (QUICK_NODES if args.quick else NODES)
    rows = [row for nodes in sizes for row in rows_of(nodes, measure(nodes, args.seed))]
    benchmark.print_table(rows)
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
