"""Carries a crawl's page blocks between nodes: the asyncio shell of `dhtcrawl.swarm.lifecycle.page_blocks`.

Every node with the crawl has a desk. It asks the coordinator for pages when
the node runs short and gives back what it does not need; where the node is the
coordinator, it also claims the members and answers their asks. All goes by one
call, `crawl_pages`, which says what it is by the fields it has:

    claim                    the coordinator's: → epoch, out, serial, book
    note                     the coordinator's, to its successors: → nothing
    epoch serial out want    a member's: → out
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused, is_int
from dhtcrawl.swarm.lifecycle.board import PageNeed
from dhtcrawl.swarm.lifecycle.page_blocks import (
    BOOK_BYTES_MAX,
    COUNT_MAX,
    EPOCH_MAX,
    PAGES_MAX,
    PageAllowance,
    PageBlocks,
    PageBook,
    PagesAsk,
    next_epoch,
)

TICK_S: Final = 0.25
SUCCESSORS: Final = 3  # R: who may coordinate next
NOTED_MIN: Final = 2  # W: so many of them have the book before anybody is given a page


class PageBlockService:
    """Of one crawl on one node; `allowance.may_start(used)` says whether a page may be started."""

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        crawl_id: bytes,
        allowance: PageAllowance,
        need: Callable[[], PageNeed],
        *,
        granted: Callable[[], None],
        timeout_s: float = 5.0,
    ) -> None:
        """`granted()` is called when more pages may be started than before."""
        self.allowance = allowance
        self._peers = peers
        self._clock = clock
        self._crawl_id = crawl_id
        self._key = crawl_key(crawl_id)
        self._need = need
        self._granted = granted
        self._timeout_s = timeout_s
        self._blocks = PageBlocks(allowance.limit, PageBook())
        self._epoch_seen = 0  # the highest, a claim of our own aside
        self._noted: dict[bytes, int] = {}  # which version of the book each successor has
        self._wake = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Something changed that may be a reason to ask, or the view did."""
        self._wake.set()

    def stop(self) -> None:
        """End `run`."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Ask, give back, claim; until `stop`."""
        while self.allowance.limit and not self._stopping:
            self._wake.clear()
            await self._claim()
            await self._ask()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def figures(self) -> dict[str, int | float]:
        """What is out and used here, for a report's counters."""
        if not self.allowance.limit:
            return {}
        return {"pages_out": self.allowance.out, "pages_used": self._need().used}

    def spent(self, counters: Mapping[bytes, Mapping[str, int | float]]) -> bool:
        """Whether nothing is left to give, and the members have used up theirs; `counters` are all members'."""
        blocks = self._blocks
        if not self._ready() or blocks.left:
            return False
        return all(numbers.get("pages_used", 0) >= blocks.book.out(node) for node, numbers in counters.items())

    async def handle(self, asker: bytes, args: Mapping[str, Any]) -> dict[str, Any] | Refused:
        """Answer a call of `crawl_pages`."""
        if "claim" in args or "note" in args:
            if not self._coordinates(asker):
                return Refused("not-coordinator")
            return self._answer_claim(args["claim"]) if "claim" in args else self._take_note(args["note"])
        ask = _parse_ask(args)
        return Refused("bad-args", "epoch, serial, out, want") if ask is None else await self._answer_ask(asker, ask)

    # -- as a member --

    def _answer_claim(self, epoch: object) -> dict[str, Any] | Refused:
        if type(epoch) is not int or not 0 < epoch <= EPOCH_MAX:
            return Refused("bad-args", "claim")
        out = self.allowance.claim(epoch)
        if out is None:
            return {"epoch": self.allowance.epoch}
        return {"epoch": epoch, "out": out, "serial": self.allowance.serial, "book": self._blocks.book.rows()}

    def _take_note(self, rows: object) -> dict[str, Any] | Refused:
        book = self._blocks.book
        return {"rows": len(book)} if book.learn(rows) else Refused("bad-args", "note")

    async def _ask(self) -> None:
        ask = self.allowance.next_ask(*self._need(), self._clock.monotonic())
        if ask is None:
            return
        coordinator = self._peers.view.owner(self._key)
        out: int | None = None
        if coordinator is not None:
            answer = await self._call(coordinator.id, ask._asdict())
            if not isinstance(answer, Failure) and is_int(answer.get("out"), 0, PAGES_MAX):
                out = answer["out"]
        if self.allowance.answered(ask, out, self._clock.monotonic()):
            self._granted()
            self._wake.set()

    # -- as the coordinator --

    def _coordinates(self, node: bytes) -> bool:
        owner = self._peers.view.owner(self._key)
        return owner is not None and owner.id == node

    def _ready(self) -> bool:
        members = [member.id for member in self._peers.view.members]
        return bool(self._blocks.epoch) and not self._blocks.unclaimed(members)

    async def _claim(self) -> None:
        """Have every member say its number, those who came since the last time too."""
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
        async with asyncio.TaskGroup() as group:
            answers = [
                group.create_task(self._call(node, {"claim": epoch}, reply_bytes_max=BOOK_BYTES_MAX + 1024))
                for node in members
            ]
        if blocks.epoch != epoch:
            return
        for node, answer in zip(members, (task.result() for task in answers), strict=True):
            if not isinstance(answer, Failure):
                self._learn(node, epoch, answer)
        if max(self._epoch_seen, blocks.book.epoch) > epoch:
            blocks.depose()  # and begin again above it, at the next turn

    def _learn(self, node: bytes, epoch: int, answer: Mapping[str, Any]) -> None:
        """A member's answer to our claim."""
        theirs, out, serial = answer.get("epoch"), answer.get("out"), answer.get("serial")
        if type(theirs) is not int or not epoch <= theirs <= EPOCH_MAX:
            return
        if theirs > epoch:
            self._epoch_seen = max(self._epoch_seen, theirs)
        elif is_int(out, 0, PAGES_MAX) and is_int(serial, 0, COUNT_MAX) and self._blocks.book.learn(answer.get("book")):
            assert type(out) is int
            assert type(serial) is int
            self._blocks.claimed(node, serial, out)

    async def _answer_ask(self, node: bytes, ask: PagesAsk) -> dict[str, Any] | Refused:
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
        return {"out": out} if self._blocks.epoch == epoch else Refused("not-coordinator")

    async def _note(self) -> bool:
        """Write the book to those who may coordinate next; whether enough of them have it."""
        book = self._blocks.book
        closest = self._peers.view.closest(self._key, SUCCESSORS + 1)
        successors = [member.id for member in closest if member.id != self._peers.node_id]
        version = book.version
        notes = {node: book.rows(after=self._noted.get(node, 0)) for node in successors}
        # A successor that does not answer must not use up the time that the asker waits.
        timeout_s = self._timeout_s / 3
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._call(node, {"note": rows}, timeout_s=timeout_s)) for node, rows in notes.items()
            ]
        taken = 0
        for node, call in zip(notes, calls, strict=True):
            answer = call.result()
            if not isinstance(answer, Failure) and is_int(answer.get("rows"), len(book), COUNT_MAX):
                taken += 1
                self._noted[node] = max(version, self._noted.get(node, 0))
            elif not isinstance(answer, Failure):
                self._noted.pop(node, None)  # it has started anew, and gets the whole book next time
        return taken >= min(NOTED_MIN, len(successors))

    async def _call(
        self, node: bytes, args: dict[str, Any], *, reply_bytes_max: int = 1024, timeout_s: float = 0.0
    ) -> dict[str, Any] | Failure:
        return await self._peers.call(
            node,
            "crawl_pages",
            {"crawl": self._crawl_id, **args},
            timeout_s=timeout_s or self._timeout_s,
            reply_bytes_max=reply_bytes_max,
        )


def _parse_ask(args: Mapping[str, Any]) -> PagesAsk | None:
    epoch, serial, out, want = (args.get(name) for name in PagesAsk._fields)
    if not is_int(epoch, 0, EPOCH_MAX) or not is_int(serial, 0, COUNT_MAX):
        return None
    if not is_int(out, 0, PAGES_MAX) or not is_int(want, 0, PAGES_MAX):
        return None
    return PagesAsk(args["epoch"], args["serial"], args["out"], args["want"])
