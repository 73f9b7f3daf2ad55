"""Carries a crawl's page blocks between nodes: the asyncio shell of `dhtcrawl.swarm.lifecycle.page_blocks`.

Every node with the crawl has a `PageBlockService`. It asks the coordinator for pages when the node runs short and gives
back what it does not need; where the node is the coordinator, it also claims the members, answers their asks, and
writes its book to the members that may be next (`pages_claim`, `pages_ask`, `pages_note`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.peers.ask_all import answers_of, call_all
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.lifecycle.board import PageNeed
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance, PageBlocks, PageBook, PagesAsk, next_epoch, stepped

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
SUCCESSORS: Final = 3  # R: the members that may coordinate next
NOTED_MIN: Final = 2  # W: so many of them have the book before a node is given a page


def successors(peers: Peers, crawl_id: bytes) -> list[bytes]:
    """The members that may coordinate a crawl after this node."""
    closest = peers.view.closest(crawl_key(crawl_id), SUCCESSORS + 1)
    return [member.id for member in closest if member.id != peers.node_id]


def newcomers(peers: Peers, crawl_id: bytes) -> list[bytes]:
    """Joining members that are closer to a crawl's key than this node: each coordinates it once it is active."""
    key = int.from_bytes(crawl_key(crawl_id), "big")
    joining = [member for member in peers.view.members if member.state is MemberState.JOINING]
    own = int.from_bytes(peers.node_id, "big") ^ key
    closer = sorted((member for member in joining if member.number ^ key < own), key=lambda member: member.number ^ key)
    return [member.id for member in closer[:SUCCESSORS]]


class PagesBoard(Protocol):
    """What the pages of a crawl need of its node."""

    def need(self) -> PageNeed:
        """What this node could spend pages on."""
        ...

    def granted(self) -> None:
        """Note that more pages may be started than before."""
        ...


@loop_state
class PageBlockService:
    """Gets pages for one crawl on one node, and hands them out as its coordinator."""

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        crawl_id: bytes,
        allowance: PageAllowance,
        book: PageBook,
        board: PagesBoard,
        timeout_s: float = 5.0,
    ) -> None:
        """`book` has what is known of nodes that are gone."""
        self.allowance = allowance
        self._peers = peers
        self._clock = clock
        self._crawl_id = crawl_id
        self._board = board
        self._timeout_s = timeout_s
        self._blocks = PageBlocks(allowance.limit, book)
        self._epoch_seen = 0  # the highest heard of, but for the claim that is under way here
        self._noted: dict[bytes, int] = {}  # which version of the book each successor has
        self._wake = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Look again: the view has changed, or there may be a reason to ask."""
        self._wake.set()

    def stop(self) -> None:
        """End `run`."""
        self._stopping = True
        self._wake.set()

    def limit_changed(self, limit: int) -> None:
        """Go on with another limit, if it is one; 0: without."""
        if limit != self.allowance.limit:
            self._blocks.limit = limit
            self.allowance.change(limit, self._board.need().used)
            self._wake.set()

    async def run(self) -> None:
        """Ask, give back and claim, until `stop`."""
        while not self._stopping:
            self._wake.clear()
            if self.allowance.limit:
                await self._claim()
                await self._ask()
            try:
                async with asyncio.timeout(TICK_S if self.allowance.limit else None):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def figures(self) -> dict[str, int | float]:
        """The pages that are out and used here, for a report's counters."""
        if not self.allowance.limit:
            return {}
        return {"pages_out": self.allowance.out, "pages_used": self._board.need().used}

    def spent(self, counters: Mapping[bytes, Mapping[str, int | float]]) -> bool:
        """Whether no page is left to give, and the members have used up theirs; `counters` are all members'."""
        blocks = self._blocks
        if not self._ready() or blocks.left:
            return False
        return all(numbers.get("pages_used", 0) >= blocks.book.out(node) for node, numbers in counters.items())

    # -- as a member --

    def on_claim(self, asker: bytes, args: calls.ClaimPages) -> calls.PagesClaimed | Refused:
        """Answer `pages_claim`."""
        if not self._coordinates(asker):
            return Refused("not-coordinator")
        if not self.allowance.limit:
            # Another node has heard of a limit before this one did; until then nothing is counted here.
            self.allowance.change(0, self._board.need().used)
        self._note_leap(args.epoch, self.allowance.epoch)
        out = self.allowance.claim(args.epoch)
        if out is None:
            return calls.PagesClaimed(self.allowance.epoch)
        return calls.PagesClaimed(args.epoch, out, self.allowance.serial, self._blocks.book.rows())

    def on_note(self, asker: bytes, args: calls.NotePages) -> calls.PagesNoted | Refused:
        """Answer `pages_note`."""
        if not self._coordinates(asker):
            return Refused("not-coordinator")
        self._blocks.book.learn(args.rows)
        return calls.PagesNoted(len(self._blocks.book))

    async def _ask(self) -> None:
        ask = self.allowance.next_ask(*self._board.need(), self._clock.monotonic())
        if ask is None:
            return
        coordinator = self._peers.view.owner(crawl_key(self._crawl_id))
        out: int | None = None
        if coordinator is not None:
            asked = calls.AskPages(self._crawl_id, *ask)
            answer = await self._peers.call(coordinator.id, asked, timeout_s=self._timeout_s)
            out = None if isinstance(answer, Failure) else answer.out
        if self.allowance.answered(ask, out, self._clock.monotonic()):
            self._board.granted()
            self._wake.set()

    # -- as the coordinator --

    def _coordinates(self, node: bytes) -> bool:
        owner = self._peers.view.owner(crawl_key(self._crawl_id))
        return owner is not None and owner.id == node

    def _ready(self) -> bool:
        members = [member.id for member in self._peers.view.members]
        return bool(self._blocks.epoch) and not self._blocks.unclaimed(members)

    async def _claim(self) -> None:
        """Claim every member that has not said its number under this epoch, newcomers included."""
        blocks = self._blocks
        if not self._coordinates(self._peers.node_id):
            blocks.depose()
            return
        if not blocks.epoch:
            self._epoch_seen = max(self._epoch_seen, blocks.book.epoch, self.allowance.epoch)
            blocks.begin(next_epoch(self._epoch_seen, self._peers.node_id))
            self._noted.clear()
        epoch = blocks.epoch
        members = blocks.unclaimed(member.id for member in self._peers.view.members)
        if not members:
            return
        answers = await answers_of(
            self._peers, members, calls.ClaimPages(self._crawl_id, epoch), timeout_s=self._timeout_s
        )
        if blocks.epoch != epoch:
            return
        for node, answer in answers.items():
            self._learn(node, answer)
        if max(self._epoch_seen, blocks.book.epoch) > epoch:
            blocks.depose()  # and begin again above it, at the next turn

    def _note_leap(self, epoch: int, seen: int) -> None:
        """Count an epoch that is not believed as it is, and tell of the first."""
        book = self._blocks.book
        if stepped(epoch, seen) == epoch:
            return
        book.leaps += 1
        if book.leaps == 1:
            text = (
                "pages of crawl %s are claimed by coordinator number %d, where %d are known here; that many are not"
                " believed at once, and from now on this is only counted"
            )
            log.warning(text, self._crawl_id.hex()[:12], epoch >> 32, seen >> 32)

    def _learn(self, node: bytes, answer: calls.PagesClaimed) -> None:
        """Take a member's answer to our claim."""
        if answer.out is None or answer.serial is None or answer.book is None:
            seen = max(self._epoch_seen, self._blocks.epoch)
            self._note_leap(answer.epoch, seen)
            self._epoch_seen = max(self._epoch_seen, stepped(answer.epoch, seen))
        else:
            self._blocks.book.learn(answer.book)
            self._blocks.claimed(node, answer.serial, answer.out)

    async def on_ask(self, node: bytes, args: calls.AskPages) -> calls.PagesOut | Refused:
        """Answer `pages_ask`."""
        ask = PagesAsk(args.epoch, args.serial, args.out, args.want)
        if not self._coordinates(self._peers.node_id):
            return Refused("not-coordinator")
        if not self._ready():
            self._wake.set()
            return Refused("not-ready")
        epoch = self._blocks.epoch
        out = self._blocks.ask(node, ask, len(self._peers.view))
        if out is None:
            self._wake.set()
            return Refused("not-ready")
        if out > ask.out and not await self._note():
            return Refused("not-ready")
        return calls.PagesOut(out) if self._blocks.epoch == epoch else Refused("not-coordinator")

    async def _note(self) -> bool:
        """Write the book to the members that may coordinate next; whether enough of them have it."""
        book = self._blocks.book
        nodes = successors(self._peers, self._crawl_id)
        version = book.version
        notes = {node: book.rows(after=self._noted.get(node, 0)) for node in nodes}
        # A successor that does not answer must not use up the time that the asker waits.
        timeout_s = self._timeout_s / 3
        noting = ((node, calls.NotePages(self._crawl_id, rows)) for node, rows in notes.items())
        answers = await call_all(self._peers, noting, timeout_s=timeout_s)
        taken = 0
        for node, answer in zip(notes, answers, strict=True):
            if answer is not None and answer.rows >= len(book):
                taken += 1
                self._noted[node] = max(version, self._noted.get(node, 0))
            elif answer is not None:
                self._noted.pop(node, None)  # it was restarted, and gets the whole book next time
        return taken >= min(NOTED_MIN, len(nodes))
