"""Lets the crawls of a node run: each is made with what all have in common, and runs until it has ended here."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial

from dhtcrawl.config import pairs
from dhtcrawl.node.crawl_run import CrawlRun
from dhtcrawl.node.single import RunningCrawl
from dhtcrawl.node.swarm_crawl import Shared, compose
from dhtcrawl.node.swarm_parts import Ground, SwarmParts
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.assignment.facts import NodeTraits
from dhtcrawl.swarm.assignment.policies import Policies
from dhtcrawl.swarm.lifecycle.crawl_memory import CrawlMemories
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns
from dhtcrawl.swarm.lifecycle.redirect_trust import RedirectTrust


@dataclasses.dataclass(frozen=True, slots=True)
class CrawlStarter:
    """Starts the crawls of one node."""

    ground: Ground
    runs: CrawlRuns
    shared: Shared
    trust: RedirectTrust

    async def start(self, record: CrawlRecord) -> CrawlRun:
        """The run of a crawl, which has begun; its outputs are written when it ends.

        Raises:
            StorageError: the disk has failed, or takes no further directory; the node ends.
        """
        ground, crawl = self.ground, record.crawl_id
        await self.trust.look(crawl)
        record = self.runs.records.get(crawl) or record
        # Where no directory can be made the node ends, as where nothing can be written: it would own tasks of a crawl
        # that does not run here, and the crawl could not end.
        dirs = await ground.node.committer.submit(partial(_outputs, of=ground.outputs, crawl=crawl))
        run, running = await compose(self.shared, record, dirs, disk_used=ground.disk_used)
        self.shared.group.create_task(self._run(run, running))
        return run

    async def _run(self, run: CrawlRun, running: RunningCrawl) -> None:
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(run.run())
            try:
                await running.run_part(lambda: run.ownership.claim.owns)
                await self.ground.node.retire(run.record().crawl_id)
            finally:
                looking.cancel()
                self.runs.ended(run.record().crawl_id)


def _outputs(txn: Txn, of: Callable[[bytes], OutputDirs], crawl: bytes) -> OutputDirs:
    """The directories of a crawl whose outputs are to be written from now on; an error here is one of the store."""
    dirs = of(crawl)
    if not dirs.gathered:
        catalog.set_unwritten(txn, crawl, True)
    return dirs


def crawl_starter(ground: Ground, group: asyncio.TaskGroup, parts: SwarmParts) -> CrawlStarter:
    """What starts the crawls of a node with these parts."""
    node, planes, records, lifecycle = ground.node, parts.planes, parts.records, parts.lifecycle
    join, crawls = parts.membership.join, lifecycle.runs.records
    shared = Shared(
        node=node,
        group=group,
        peers=planes.peers,
        replicator=records.replicator,
        owner_news=records.owner_news,
        settings=node.config.swarm,
        gate=parts.gate,
        moved=parts.membership.peer_store.greet,
        incarnation_of=planes.peers.incarnation_of,
        learn=crawls.learn,
        auditor=lifecycle.auditor,
        scope_settled=lifecycle.trust.settled,
        awake=planes.awake,
        reconciling=lambda: join.state.busy,
        lost_contact=parts.membership.peer_store.lost_contact,
        tell_crawl=crawls.tell,
        records=crawls,
        stop_crawl=crawls.stop,
        policies=Policies(ground.id, node.ports.aside, node.config.node.allowed_policies),
        merge=records.merger.merge,
        compare=partial(records.syncer.compare, keepers=records.replicator.backups),
        traits=NodeTraits(planes.rtts, node.ports.machine, pairs(node.config.node.labels)),
        memories=CrawlMemories(),
    )
    return CrawlStarter(ground, lifecycle.runs, shared, lifecycle.trust)
