"""The nodes that take part in a crawl, by what its records say.

The coordinator's waves put the nodes that run a crawl into its record. A node that fetched a page and was gone before
the next wave is named only by the record of that page, which others keep. So a node that learns of the page writes its
fetcher down, too; otherwise no node would ever miss what lay there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.storage.store.crawl_record import CrawlRecord, heir_of


@loop_state
class Participants:
    """The participants of a crawl, as one node knows them."""

    def __init__(
        self, record: CrawlRecord, learn: Callable[[CrawlRecord], Awaitable[object]], group: asyncio.TaskGroup
    ) -> None:
        """`learn(record)` merges a record into what is known of the crawl."""
        self.busy = 0  # nodes that are about to be written down
        self._learn = learn
        self._group = group
        self._record = record
        self._known = dict.fromkeys(record.participants)
        self._seen: dict[
            str, tuple[str, int | None, bool]
        ] = {}  # who has a participant's pages, which start, if it joins
        self._looked: tuple[CrawlRecord, View, list[str]] | None = None  # the absent nodes by these two

    def changed(self, record: CrawlRecord) -> None:
        """Take the crawl's newer record."""
        self._record = record
        self._known |= dict.fromkeys(record.participants)

    def met(self, nodes: Iterable[str]) -> None:
        """Write down that these nodes, in hex, have fetched pages of the crawl."""
        new = [node for node in nodes if node not in self._known]
        if new:
            self._known |= dict.fromkeys(new)
            self.busy += len(new)
            self._group.create_task(self._write(new))

    def absent(self, view: View, is_member: Callable[[str], bool]) -> list[str]:
        """The participants whose bodies cannot be had, neither from themselves nor from an heir.

        `is_member` has to say the same as long as the view is the same: the answer is
        kept, because each wave asks, and mostly no node has come or gone.
        """
        looked = self._looked
        if looked is None or looked[0] is not self._record or looked[1] is not view:
            record = self._record
            found = [node for node in record.participants if heir_of(record, node, is_member) is None]
            looked = self._looked = record, view, found
        return looked[2]

    def started_anew(self, view: View, start_of: Callable[[str], int | None]) -> list[str]:
        """The participants whose pages lie with a node that has been started since this was asked last.

        It may have been away for too short a time to be missed. `start_of(node)` numbers a member's starts, and is None
        where it is no member; one whose disk is an older copy may use a number again, but it joins.
        """
        found, joining = [], {member.id.hex() for member in view.members if member.state is MemberState.JOINING}
        for node in self._record.participants:
            holder = heir_of(self._record, node, lambda each: start_of(each) is not None)
            if holder is not None:
                before, now = self._seen.get(node), (holder, start_of(holder), holder in joining)
                if before is not None and before[0] == holder and (before[1] != now[1] or now[2] > before[2]):
                    found.append(node)
                self._seen[node] = now
        return found

    async def _write(self, nodes: list[str]) -> None:
        try:
            await self._learn(replace(self._record, participants=[*self._record.participants, *nodes]))
        finally:
            self.busy -= len(nodes)
