"""Takes links to their owners: STORE_TASK, and what its ack says (design invariants I3, I7).

    outbox ──send──▶ mailbox of the owner ──STORE_TASK──▶ ACCEPTED, KNOWN ─▶ acked
       ▲                                                  MOVED, FULL, FAILED, no answer
       └────────────────────── put_back, after a moment ──────────┘

Who owns a link is asked anew each time it leaves the outbox, so a link that
came back goes to whoever owns it by then, and nothing here knows of views.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, Code, StoreTask
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.mailbox import Mailbox

# After a refusal or no answer: long enough for news of a new owner to come.
PAUSE_S = 0.2
LINGER_S = 0.01
UNKNOWN_CRAWL = "unknown-crawl"
# A frame holds 1 MiB, and two URLs of a link may take 16 KiB: what did not fit would never arrive.
FRAME_URL_BYTES = 512 * 1024
_ROW_BYTES = 128  # of a link on the wire beyond its URLs, at most
# What is forgotten is only tried once more.
REFUSALS_MAX = 100_000
# A link that came back so often is given to somebody else than its owner, for custody (I7).
MOVED_MAX = 5


class LinkSender:
    """Of one crawl."""

    def __init__(
        self,
        peers: Peers,
        crawl: bytes,
        group: asyncio.TaskGroup,
        *,
        acked: Callable[[list[Link]], None],
        put_back: Callable[[list[Link]], None],
        moved: Callable[[PeerRow], None],
        tell_crawl: Callable[[bytes], Awaitable[object]],
    ) -> None:
        """`moved` is told of a node that somebody else takes for an owner; `tell_crawl` lets a node know the crawl."""
        self.links_sent = 0
        self.codes: Counter[Code] = Counter()
        self._peers = peers
        self._crawl = crawl
        self._acked = acked
        self._put_back = put_back
        self._moved = moved
        self._tell_crawl = tell_crawl
        self._mailbox: Mailbox[Link] = Mailbox(group, self._deliver, linger_s=LINGER_S)
        self._refusals: dict[bytes, tuple[bytes, ...]] = {}  # link → who was named as its owner and did not take it

    @property
    def busy(self) -> bool:
        """Whether links are under way."""
        return self._mailbox.busy

    def send(self, links: Sequence[Link]) -> None:
        """Each to its owner."""
        view = self._peers.view
        by_owner: dict[bytes, list[Link]] = {}
        for link in links:
            owner = view.owner(placement(link.key))
            # Nobody is active while a whole swarm starts: try again in a moment.
            by_owner.setdefault(owner.id if owner is not None else b"", []).append(link)
        for node, theirs in by_owner.items():
            self._mailbox.put(node, theirs)

    async def _deliver(self, owner: bytes, links: list[Link]) -> None:
        if not owner:
            await self._later(links)
            return
        fitting = _fitting(links)
        self._mailbox.put(owner, links[fitting:])
        links = links[:fitting]
        self.links_sent += len(links)
        tried = self._tried(owner, links)
        reply = await self._peers.ask(owner, StoreTask(self._crawl, tuple(map(wire.row_of_link, links)), tried))
        if isinstance(reply, Failure):
            if reply.kind is FailureKind.REFUSED and reply.detail.startswith(UNKNOWN_CRAWL):
                await self._tell_crawl(owner)
            for link in links:
                self._note(link, owner)
            await self._later(links)
            return
        assert isinstance(reply, Ack), "the kind that answers STORE_TASK"
        await self._read(reply, links)

    async def _read(self, ack: Ack, links: list[Link]) -> None:
        self.codes.update(map(Code, ack.codes))
        taken = [link for link, code in zip(links, ack.codes, strict=True) if code in (Code.ACCEPTED, Code.KNOWN)]
        for link in taken:
            self._refusals.pop(link.key, None)
        if taken:
            self._acked(taken)
        if len(taken) == len(links):
            return
        for peer in dict.fromkeys(ack.moved_to().values()):
            self._moved(peer)
        await self._later([link for link, code in zip(links, ack.codes, strict=True) if code > Code.KNOWN])

    async def _later(self, links: list[Link]) -> None:
        await asyncio.sleep(PAUSE_S)
        self._put_back(links)

    def _note(self, link: Link, owner: bytes) -> None:
        """`owner` did not take the link."""
        tried = self._refusals.get(link.key, ())
        if owner not in tried and len(tried) < MOVED_MAX:
            self._refusals[link.key] = (*tried, owner)
        if len(self._refusals) > REFUSALS_MAX:
            self._refusals.clear()

    def _tried(self, owner: bytes, links: list[Link]) -> tuple[bytes, ...]:
        """Who was tried for these links and did not take them: the receiver then does not send us back there."""
        found: dict[bytes, None] = {}
        for link in links:
            found.update(dict.fromkeys(self._refusals.get(link.key, ())))
        found.pop(owner, None)
        return tuple(found)[:MOVED_MAX]


def _fitting(links: Sequence[Link]) -> int:
    """How many of the links fit into a frame; one at least."""
    size = 0
    for count, link in enumerate(links):
        size += _ROW_BYTES + len(link.url) + len(link.referrer)
        if count and size > FRAME_URL_BYTES:
            return count
    return len(links)
