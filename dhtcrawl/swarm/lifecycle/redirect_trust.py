"""Which targets of seeds' redirects a node believes: those of who owns or fetched the seed, and of the crawl's author.

A target widens the scope. All nodes keep all that are signed, so that they have one record; each judges for itself
which of them count, and they come to the same, as it is asked of the task's record:

    the author, and the owner of the URL that redirected, in this node's view    at once
    another node, if that owner gave it the task, or has a record of its page    once the owner says so
    any, of a URL that is no seed, nor a target that is believed                 not

An owner may not know yet who fetched a page, so it is asked again while the crawl runs, and once more (`settled`)
before a task dies as out of scope, or the crawl is said to be complete. What is believed once is believed for good: it
is among the aliases of this node's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from dhtcrawl.keyspace import placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.ask_all import ask_all
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import ALIASES_MAX, CrawlRecord
from dhtcrawl.storage.store.redirect_targets import RedirectTarget, targets_of
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords

AGAIN_S: Final = 2.0  # an owner that did not say yes is asked again
ASKED_A_LOOK: Final = 64  # of those that nobody has to be asked for there is no bound
ANSWER_S: Final = 2.0


@loop_state
class RedirectTrust:
    """Judges the targets in the records of all crawls at one node, and answers others as an owner."""

    def __init__(
        self,
        peers: Peers,
        registry: CallRegistry,
        committer: Committer,
        records: CrawlRecords,
        has_from_us: Callable[[bytes, bytes, bytes], bool],
    ) -> None:
        """`has_from_us(crawl, task key, node)`: whether a node has a task that this one owns, as far as it knows."""
        self._peers = peers
        self._committer = committer
        self._records = records
        self._has_from_us = has_from_us
        self._asked_at: dict[tuple[bytes, RedirectTarget], float] = {}
        self._wanted = asyncio.Event()
        records.on_change.append(self._changed)
        records.on_heard.append(self.look)
        registry.serve(calls.AskFetched, self._on_ask)

    async def run(self) -> None:
        """Look at what is not believed yet, again and again, until cancelled."""
        while True:
            self._wanted.clear()
            open_ones = [record.crawl_id for record in self._records if undecided(record)]
            # Of crawls that have ended nothing is asked again.
            self._asked_at = {which: at for which, at in self._asked_at.items() if which[0] in open_ones}
            for crawl in open_ones:
                await self.look(crawl)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if open_ones else None):
                    await self._wanted.wait()

    async def look(self, crawl: bytes) -> None:
        """Believe what may be believed of a crawl now; returns once owners have answered, or did not in time."""
        while (record := self._records.get(crawl)) is not None and (open_ones := undecided(record)):
            said = await self._judged(record, open_ones)
            if not said:
                return
            await self._believe(record, said)

    async def settled(self, crawl: bytes) -> bool:
        """Ask of all targets that are not believed once more, however lately that was; whether all owners answered."""
        await self.look(crawl)
        record = self._records.get(crawl)
        open_ones = [] if record is None else undecided(record)
        if record is None or not open_ones:
            return True
        answers = await ask_all(open_ones, partial(self._owner_says, record), at_once=ASKED_A_LOOK)
        said = [target for target, answer in zip(open_ones, answers, strict=True) if answer]
        if said:
            await self._believe(record, said)
        return None not in answers

    async def _believe(self, record: CrawlRecord, said: list[RedirectTarget]) -> None:
        self._asked_at = {which: at for which, at in self._asked_at.items() if which[1] not in said}
        aliases = [*record.aliases, *dict.fromkeys(target.url for target in said)]
        await self._records.learn(replace(record, aliases=aliases))

    async def _changed(self, record: CrawlRecord) -> None:
        if record.targets:
            self._wanted.set()

    async def _judged(self, record: CrawlRecord, open_ones: list[RedirectTarget]) -> list[RedirectTarget]:
        """Those of them that are believed."""
        authority, key_of = self._records.authority, record.spec.key_of
        believed = [each for each in open_ones if authority.may_lead(record, each.node_id, key_of(each.source))]
        if believed:
            return believed
        now, asked = asyncio.get_running_loop().time(), list[RedirectTarget]()
        for target in open_ones:
            which = record.crawl_id, target
            if len(asked) < ASKED_A_LOOK and now - self._asked_at.get(which, -AGAIN_S) >= AGAIN_S:
                self._asked_at.pop(which, None)
                self._asked_at[which] = now
                asked.append(target)
        # Those that were asked longest ago are first in turn the next time.
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(self._owner_says(record, target)) for target in asked]
        return [target for target, answer in zip(asked, answers, strict=True) if answer.result()]

    async def _owner_says(self, record: CrawlRecord, target: RedirectTarget) -> bool | None:
        """Whether the node that says so had the task; None: the owner does not answer."""
        crawl, key = record.crawl_id, record.spec.key_of(target.source)
        owner = self._peers.view.owner(placement(key))
        if owner is None:
            return None
        if owner.id == self._peers.node_id:
            return await self._fetched(crawl, key, target.node_id)
        answer = await self._peers.call(owner.id, calls.AskFetched(crawl, key, target.node_id), timeout_s=ANSWER_S)
        return None if isinstance(answer, Failure) else answer.fetched

    async def _fetched(self, crawl: bytes, key: bytes, node: bytes) -> bool:
        if self._has_from_us(crawl, key, node):
            return True
        task = await self._committer.submit(partial(tasks.get_task, crawl=crawl, key=key))
        return task is not None and node.hex() in task.fetchers

    async def _on_ask(self, _asker: bytes, args: calls.AskFetched) -> calls.SeedFetched | Refused:
        if self._records.get(args.crawl) is None:
            return Refused(UNKNOWN_CRAWL)
        return calls.SeedFetched(await self._fetched(args.crawl, args.key, args.node))


def undecided(record: CrawlRecord) -> list[RedirectTarget]:
    """The targets of a crawl that goes on which are not believed, and may be: what redirected is a seed.

    None where as many are believed as a record has places for: another would only take the place of one of them, or
    find none, and would be undecided for ever.
    """
    if record.author is None or record.ended or not record.targets or len(record.aliases) >= ALIASES_MAX:
        return []
    believed, seeds, searches = set(record.aliases), set(record.spec.seeds), record.spec.searches
    return [
        target
        for target in targets_of(record.targets)
        if target.url not in believed
        and (target.source in seeds or target.source in believed or bool(searches.of(target.source)))
    ]
