"""Asks nodes that are back which of an owner's pages they have (design invariant I11).

A node's disk may be an older one than it had when it went: restored from a copy, or without what was written last
before the power went. Then it has no idea of pages that the others know to lie there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dhtcrawl.rpc.peers.port import UNKNOWN_CALL, Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.swarm.calls import bodies as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX

log = logging.getLogger(__name__)


class Lacking(NamedTuple):
    """What nodes said of pages; nodes are named in hex, as the pages' records name them."""

    pages: dict[str, list[bytes]]  # those that are not there
    silent: set[str]  # nodes that did not answer, or are gone


async def ask_held(
    peers: Peers, crawl: bytes, pages: Mapping[str, Sequence[bytes]], holder_of: Callable[[str], str | None]
) -> Lacking:
    """Ask for pages by the node that their records name; `holder_of(node)` has its pages now, None: nobody has."""
    found = Lacking({}, set())
    for node, named in pages.items():
        holder = holder_of(node)
        lacked = None if holder is None else await _lacked(peers, crawl, bytes.fromhex(holder), named)
        if lacked is None:
            found.silent.add(node)
        elif lacked:
            log.info("node %s is there, and lacks %d pages of crawl %s", node[:12], len(lacked), crawl.hex()[:12])
            found.pages[node] = lacked
    return found


async def _lacked(peers: Peers, crawl: bytes, holder: bytes, pages: Sequence[bytes]) -> list[bytes] | None:
    lacked: list[bytes] = []
    for first in range(0, len(pages), KEYS_MAX):
        part = tuple(pages[first : first + KEYS_MAX])
        answer = await peers.call(holder, calls.AskHeld(crawl, part))
        if isinstance(answer, Failure):
            # One of an earlier version cannot say.
            return [] if answer.kind is FailureKind.REFUSED and UNKNOWN_CALL in answer.detail else None
        lacked += [page for page, is_held in zip(part, answer.held, strict=True) if not is_held]
    return lacked
