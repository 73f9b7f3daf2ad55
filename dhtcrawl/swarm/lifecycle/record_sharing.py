"""Brings all nodes to one record of a crawl, after each wave of its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.storage.store.crawl_record import (
    CrawlRecord,
    NotARecord,
    from_wire,
    lowered,
    merge_crawls,
    said_again,
    to_wire,
)
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.lifecycle.board import Board
from dhtcrawl.swarm.lifecycle.crawl_records import log_leap
from dhtcrawl.swarm.lifecycle.waves import view_fingerprint

RECORDS_KEPT: Final = 8
R = TypeVar("R", bound=WireMap)
Reports = Mapping[bytes, calls.CrawlStanding]  # by node


@loop_state
class RecordSharing:
    """Shares the record of a crawl with other nodes, from this one."""

    def __init__(self, peers: Peers, crawl_id: bytes, board: Board, timeout_s: float) -> None:
        self._peers = peers
        self._crawl_id = crawl_id
        self._board = board
        self._timeout_s = timeout_s
        self.leaps = 0  # records of others whose versions were too far ahead, and were lowered
        self._ours: dict[bytes, CrawlRecord] = {}  # our latest records, by digest: others may have them from us

    async def share(self, view: View, reports: Reports) -> None:
        """Learn what members know of the crawl, add who takes part, and tell those that know something else."""
        digest = self._board.record().digest
        async with asyncio.TaskGroup() as group:
            for node, report in reports.items():
                if report.knows and report.record != digest and report.record not in self._ours:
                    group.create_task(self.get(node))
        record = self._board.record()
        self._remember(record)
        own = {member.id for member in view.members if member.state is not MemberState.JOINING}
        running = [node.hex() for node, report in reports.items() if report.knows and node in own]
        await self.adopt(replace(record, participants=[*record.participants, *running]))
        record = self._board.record()
        self._remember(record)
        digest = record.digest
        await self.tell(record, {node: report for node, report in reports.items() if report.record != digest})

    async def adopt(self, record: CrawlRecord) -> None:
        """Merge a record into ours, if it says anything new."""
        ours = self._board.record()
        merged = merge_crawls(ours, record)
        if merged.digest != ours.digest:
            await self._board.update(merged)

    async def get(self, node: bytes) -> None:
        """Learn what a node knows of the crawl."""
        known = await self._call(node, calls.GetCrawl(self._crawl_id))
        if isinstance(known, Failure):
            return
        try:
            record = from_wire(known.record, known=self._board.record())
        except NotARecord:
            return
        if record.crawl_id != self._crawl_id:
            return
        counts = self._board.believed(record, node)
        plausible = lowered(counts, self._board.record())
        if plausible is not counts:
            self.leaps += 1
            if self.leaps == 1:
                log_leap(record)
        await self.adopt(plausible)
        if counts is not record:
            await self._say_again(lowered(record, self._board.record()))

    async def _say_again(self, refused: CrawlRecord) -> None:
        """Make state and settings once more, above a change that does not count here: others may have it."""
        ours = self._board.record()
        again = said_again(ours, refused)
        if again is not ours:
            await self.adopt(self._board.signed(again))

    async def tell(self, record: CrawlRecord, reports: Reports) -> None:
        """Tell the nodes that reported a record; one that does not hear it says so in the next wave, or asks.

        A node that knows a recent record of ours is told what is new, and one that
        sees the members that we see is told their places in that list: else each of a
        thousand participants would hear the names of all.
        """
        view = self._peers.view
        seen = view_fingerprint(view)
        told: dict[tuple[bytes, bool], calls.TellCrawl] = {}
        async with asyncio.TaskGroup() as group:
            for node, report in reports.items():
                if node == self._peers.node_id:
                    continue
                since, alike = self._ours.get(report.record), report.view == seen
                which = report.record if since else b"", alike
                if which not in told:
                    news = to_wire(record, since, view.ids if alike else ())
                    told[which] = calls.TellCrawl(news, self._crawl_id, seen)
                group.create_task(self._call(node, told[which]))

    def _remember(self, record: CrawlRecord) -> None:
        self._ours[record.digest] = record
        if len(self._ours) > RECORDS_KEPT:
            del self._ours[next(iter(self._ours))]

    async def _call(self, node: bytes, args: CallArgs[R]) -> R | Failure:
        return await self._peers.call(node, args, timeout_s=self._timeout_s)
