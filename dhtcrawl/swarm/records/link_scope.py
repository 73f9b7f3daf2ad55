"""What a node takes into custody is within the crawl's scope, as it knows it or as the sender does.

The node that finds a link has checked it. One beyond the scope may be a lie, or its sender
knows a target of a seed's redirect that has not come here: then the sender's record of the
crawl says so, and is asked for. What is beyond by that, too, is refused; its sender keeps it.

A sender that is refused for `PATIENCE_S` with the same link is not lying to gain
anything: that link is taken, or a crawl whose nodes judge differently would never end, and
dies where it is to be fetched. The same is so where the record has no room for all targets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.tasks import Link

PATIENCE_S = 60.0
AGAIN_S = 1.0  # the same sender is not asked for the same crawl's record before that
REFUSED_MAX = 10_000
ASKED_MAX = 1_024


# Of the links of a crawl those that its scope does not reach, as far as it is known here.
Strays = Callable[[bytes, Sequence[Link | None]], list[Link]]


@loop_state
class LinkScope:
    """Refuses links beyond the scope, for all crawls of a node; `refused` counts them."""

    def __init__(
        self, strays: Strays, catch_up: Callable[[bytes, bytes], Awaitable[bool]], now: Callable[[], float]
    ) -> None:
        """`catch_up(node, crawl)` learns what the record of another node has more; `now` gives seconds."""
        self.refused = 0
        self._strays = strays
        self._catch_up = catch_up
        self._now = now
        self._since: OrderedDict[bytes, float] = OrderedDict()  # task key → first refused
        self._asked: OrderedDict[tuple[bytes, bytes], float] = OrderedDict()  # node, crawl → when

    async def beyond(self, asker: bytes, crawl: bytes, links: Sequence[Link | None]) -> frozenset[bytes]:
        """The keys of the links that are refused."""
        strays = self._strays(crawl, links)
        if not strays:
            return frozenset()
        if self._may_ask(asker, crawl):
            await self._catch_up(asker, crawl)
            strays = self._strays(crawl, strays)
        now = self._now()
        refused = frozenset(link.key for link in strays if now - self._since.setdefault(link.key, now) < PATIENCE_S)
        while len(self._since) > REFUSED_MAX:
            self._since.popitem(last=False)
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
