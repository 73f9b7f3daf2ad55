"""What a node does not believe of another at once: links beyond the scope, pages at nodes that nobody knows.

The node that finds a link has checked it, and who sends a page's record has it from its fetcher.
So both may be lies, or the sender knows more: a target of a seed's redirect, a node that
took part. Then the sender's record of the crawl says so, and is asked for, before a link
is refused, and after a record is: storing records never waits for another node (I13).
What is refused stays with its sender, who sends it again.

A sender that says the same of a task for `PATIENCE_S`, without a pause, is believed
(`dhtcrawl.swarm.records.patience`), or a crawl whose nodes judge differently would never end.
A link that is taken so dies where it is to be fetched. The same is so at once where the
record has no room for all that it should name.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.records import Place
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records.patience import Patience

AGAIN_S = 1.0  # the same sender is not asked for the same crawl's record before that
ASKED_MAX = 1_024

# A task, the node that has its page, in hex: what a record or a tombstone says.
Held = tuple[bytes, Place | None]


@dataclass(frozen=True, slots=True)
class CrawlKnowledge:
    """What a node knows of the crawls that run on it."""

    # The links that a crawl's scope does not reach, of these.
    strays: Callable[[bytes, Sequence[Link | None]], list[Link]]
    # Whether a node, in hex, takes or took part in a crawl, or may have; always so of a crawl that does not run here.
    took_part: Callable[[bytes, str], bool]
    # Learn what the record of another node has more: (node, crawl).
    catch_up: Callable[[bytes, bytes], Awaitable[bool]]


@loop_state
class Doubts:
    """Refuses for all crawls of a node; `refused` counts."""

    def __init__(self, known: CrawlKnowledge, now: Callable[[], float], group: asyncio.TaskGroup) -> None:
        """`now` gives seconds."""
        self.refused = 0
        self._known = known
        self._now = now
        self._group = group
        self._patience = Patience()
        self._asked: OrderedDict[tuple[bytes, bytes], float] = OrderedDict()  # node, crawl → when

    async def beyond(self, asker: bytes, crawl: bytes, links: Sequence[Link | None]) -> frozenset[bytes]:
        """The keys of the links that are refused, as the scope does not reach them."""
        strays = self._known.strays(crawl, links)
        if not strays:
            return frozenset()
        if self._may_ask(asker, crawl):
            await self._known.catch_up(asker, crawl)
            strays = self._known.strays(crawl, strays)
        return self._refuse(asker, crawl, (link.key for link in strays))

    def unheld(self, asker: bytes, crawl: bytes, records: Iterable[Held]) -> frozenset[bytes]:
        """The keys of the records that are refused, as they name a node that nobody knows to take part."""
        own, took_part = asker.hex(), self._known.took_part
        doubtful = [
            key
            for key, place in records
            if place is not None and place.node != own and not took_part(crawl, place.node)
        ]
        if not doubtful:
            return frozenset()
        if self._may_ask(asker, crawl):
            self._group.create_task(self._catch_up(asker, crawl))
        return self._refuse(asker, crawl, doubtful)

    async def _catch_up(self, asker: bytes, crawl: bytes) -> None:
        await self._known.catch_up(asker, crawl)

    def _refuse(self, asker: bytes, crawl: bytes, task_keys: Iterable[bytes]) -> frozenset[bytes]:
        refused = self._patience.refused(asker, crawl, task_keys, self._now())
        self.refused += len(refused)
        return refused

    def _may_ask(self, asker: bytes, crawl: bytes) -> bool:
        now, which = self._now(), (asker, crawl)
        if now - self._asked.get(which, -AGAIN_S) < AGAIN_S:
            return False
        self._asked[which] = now
        self._asked.move_to_end(which)
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)
        return True
