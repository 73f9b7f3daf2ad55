"""Keeps several copies of each body (`--copies`), for one crawl on one node.

    RoundWriter ──copy──▶ Copier ──copy_pages──▶ CopyService of others: written there, then acked, then the page is done
    MissingBodies ──rehome──▶ seek ──stand_in_pages──▶ CopyService of others: the page is theirs from now on
    CopyWatch: copies that are gone are made anew

In a crawl that wants one copy none of this happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.peers.port import CallRegistry, Peers, by_crawl
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.archive.body_copies import Rehomed
from dhtcrawl.storage.store import ranges
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import CrawlRecord, heir_of
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.bodies.absences import Absences
from dhtcrawl.swarm.bodies.copier import Copier
from dhtcrawl.swarm.bodies.copy_service import CopyService, Offload
from dhtcrawl.swarm.bodies.copy_watch import CopyWatch
from dhtcrawl.swarm.bodies.held_pages import Lacking, ask_held
from dhtcrawl.swarm.bodies.rehome import seek
from dhtcrawl.swarm.calls import bodies as calls
from dhtcrawl.swarm.claim import KeyClaim


class BodyStore(NamedTuple):
    """Where a crawl's bodies lie on this node."""

    archive: Directory
    make_copies: Callable[[], Awaitable[Archive]]  # the files of copies, ready to be written to
    offload: Offload


class CopyingRun(Protocol):
    """What the copies of a crawl need of its run on this node."""

    @property
    def held_back(self) -> bool: ...

    def record(self) -> CrawlRecord: ...

    @property
    def claim(self) -> KeyClaim: ...

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], /) -> None: ...

    async def remind(self, copies: Sequence[TaskReplica], /) -> set[str]: ...

    def members(self) -> frozenset[str]:
        """The members, this node included, in hex."""
        ...


@loop_state
class BodyCopies:
    """The copies of a crawl's bodies on one node; idle where the crawl wants one copy."""

    def __init__(
        self,
        run: CopyingRun,
        peers: Peers,
        committer: Committer,
        disk: BodyStore,
        copier: Copier,
        crawl: CrawlParts,
        absences: Absences,
    ) -> None:
        self._run = run
        self._peers = peers
        self._committer = committer
        self._crawl = crawl
        self._absences = absences
        self.further = copier.further
        self.service = CopyService(
            peers, committer, run.record, disk.archive, disk.make_copies, disk.offload, lambda: not run.held_back
        )
        self._watch = CopyWatch(
            committer,
            crawl.start.crawl_id,
            copier,
            crawl.counters,
            standing=lambda: self._standing().holder,
            enough_nodes=self._enough_nodes,
        )

    async def run(self) -> None:
        """See that pages keep their copies, until cancelled."""
        if self.further:
            await self._watch.run()

    @property
    def under_way(self) -> int:
        """Pages that are being copied once more."""
        return self._watch.under_way

    def holders_changed(self) -> None:
        """Note that copies may be gone, or others' pages may be ours now."""
        if self.further:
            self._watch.holders_changed()

    def nodes_came(self) -> None:
        """Note that there may be nodes for further copies."""
        if self.further:
            self._watch.nodes_came()

    async def rehome(self, gone: str, pages: list[bytes]) -> tuple[list[bytes], int]:
        """Let copies stand in for pages of ours that lay at `gone`.

        Returns:
            The pages of which no node has a copy, and how many others are still missing.
        """
        if not self.further:
            return pages, 0
        sought = await seek(
            self._peers, self._crawl.start.crawl_id, pages, list(map(bytes.fromhex, self._absences.awaited()))
        )
        write: Any = partial(
            body_copies.rehome,
            crawl=self._crawl.start.crawl_id,
            found=sought.found,
            gone=gone,
            mine=self._run.claim.mine,
        )
        rehomed: Rehomed = await self._committer.submit(write)
        self._run.keep(rehomed.records, _nothing)
        self._crawl.next_round.resend(rehomed.resend)
        return sought.nowhere, len(sought.unsure)

    @property
    def depth_matters(self) -> bool:
        """Whether a page that is found at a smaller depth sends its links again."""
        return self._crawl.start.spec.settings.depth >= 0

    async def lacking(self, pages: list[bytes]) -> Lacking:
        """Ask the nodes that are to have these pages of ours whether they have them."""
        named: dict[str, list[bytes]] = {}
        for copy in await self._records(pages):
            if copy.task.place is not None:
                named.setdefault(copy.task.place.node, []).append(copy.key)
        record, members = self._run.record(), self._run.members()
        return await ask_held(
            self._peers, record.crawl_id, named, lambda node: heir_of(record, node, members.__contains__)
        )

    async def on_held(self, _asker: bytes, args: calls.AskHeld) -> calls.PagesHeld:
        """The handler of `held_pages`."""
        read: Any = partial(body_copies.are_here, crawl=args.crawl, task_keys=args.keys)
        return calls.PagesHeld(await self._committer.submit(read))

    async def remind(self, pages: list[bytes]) -> set[str]:
        """Tell the nodes that have pages of ours what their records say; return those that could not be told."""
        own = self._peers.node_id.hex()
        others = [copy for copy in await self._records(pages) if copy.task.place and copy.task.place.node != own]
        return await self._run.remind(others)

    async def _records(self, pages: list[bytes]) -> list[TaskReplica]:
        read: Any = partial(ranges.some, crawl=self._crawl.start.crawl_id, task_keys=pages)
        found: list[TaskReplica] = await self._committer.submit(read)
        return found

    def _standing(self) -> Standing:
        record = self._run.record()
        return Standing(record, self._peers.node_id.hex(), self._run.members(), self._absences.given_up)

    def _enough_nodes(self) -> bool:
        active = sum(member.state is MemberState.ACTIVE for member in self._peers.view.members)
        return active > self.further


@dataclass(frozen=True, slots=True)
class Standing:
    """Which node has the copies that a node had, at one moment; nodes are named in hex."""

    record: CrawlRecord
    own: str
    members: frozenset[str]
    given_up: frozenset[str]

    def holder(self, node: bytes) -> bytes | None:
        """The node itself, or its heir; None: neither is there, or it is this node, whose own copies count as none."""
        heir = heir_of(self.record, node.hex(), self._stands)
        return None if heir is None or heir == self.own else bytes.fromhex(heir)

    def _stands(self, node: str) -> bool:
        """Whether a node is a member, or may yet come back."""
        return node in self.members or not (node in self.record.heirs or node in self.given_up)


class CopiedRun(Protocol):
    """A crawl that runs here."""

    @property
    def copying(self) -> BodyCopies: ...


def serve(registry: CallRegistry, run_of: Callable[[bytes], CopiedRun | None]) -> None:
    """Answer the calls about copies for all crawls; `run_of(crawl)` is None for one that does not run."""

    def service_of(run: CopiedRun) -> CopyService | None:
        return run.copying.service if run.copying.further else None

    registry.serve(
        calls.CopyPages, by_crawl(run_of, lambda run: service.on_copy if (service := service_of(run)) else _none)
    )
    registry.serve(calls.AskHeld, by_crawl(run_of, lambda run: run.copying.on_held))
    registry.serve(
        calls.StandIn, by_crawl(run_of, lambda run: service.on_stand_in if (service := service_of(run)) else _none)
    )


def _none(_asker: bytes, _args: object) -> Refused:
    return Refused("no-copies", "the crawl keeps one copy of a body")


def _nothing() -> None:
    """Do nothing: no part waits for these backups."""
