"""Finds copies of pages whose node is gone (design invariant I11).

The nodes closest to a task's key got the copies when the page was fetched; since then others may have come between. So
the owner asks nodes one after the other, the closest first, each for all pages at once that it is its turn for. A node
that has a copy makes it a page of its own and says where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.peers.ask_all import call_all
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store.records import Place
from dhtcrawl.swarm.calls import bodies as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX
from dhtcrawl.swarm.replica_sets import in_parts

# How many of the closest nodes are asked: a swarm may have grown tenfold since a page was copied.
ASKED_MAX: Final = 24


class Sought(NamedTuple):
    """The result of a search."""

    found: list[tuple[bytes, Place]]
    unsure: list[bytes]  # a node that may have these did not answer
    nowhere: list[bytes]


async def seek(peers: Peers, crawl: bytes, pages: Iterable[bytes], absent: Sequence[bytes] = ()) -> Sought:
    """Find copies of these pages (task keys); the nodes that have them make them pages of their own.

    `absent` are nodes that may come back: a page that one of them would be asked
    for is unsure, not nowhere.
    """
    view = peers.view
    # A node that was restarted still has its copies.
    joining = [member.id for member in view.members if member.state is MemberState.JOINING]
    turns = {key: [m.id for m in view.closest(placement(key), ASKED_MAX)] + joining for key in pages}
    found: dict[bytes, Place] = {}
    unsure: dict[bytes, None] = {}
    for turn in range(max(map(len, turns.values()), default=0)):
        by_node: dict[bytes, list[bytes]] = {}
        for key, nodes in turns.items():
            if key not in found and turn < len(nodes):
                by_node.setdefault(nodes[turn], []).append(key)
        parts = [(node, part) for node, theirs in by_node.items() for part in in_parts(theirs, KEYS_MAX)]
        answers = await call_all(peers, ((node, calls.StandIn(crawl, part)) for node, part in parts))
        for (_, asked), answer in zip(parts, answers, strict=True):
            if answer is None:
                unsure.update(dict.fromkeys(asked))
            else:
                found.update((key, Place(*place)) for key, place in answer.found)
    for key in turns:
        if key not in found and _would_ask(view, key, absent):
            unsure[key] = None
    return Sought(
        list(found.items()),
        [key for key in turns if key in unsure and key not in found],
        [key for key in turns if key not in unsure and key not in found],
    )


def _would_ask(view: View, key: bytes, absent: Sequence[bytes]) -> bool:
    """Whether one of these nodes would be asked for the task."""
    place = placement(key)
    closest = view.closest(place, ASKED_MAX)
    reach = distance(closest[-1].id, place) if len(closest) == ASKED_MAX else None
    return any(reach is None or distance(node, place) < reach for node in absent)
