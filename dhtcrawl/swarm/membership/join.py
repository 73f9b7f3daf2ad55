"""How a node comes to own, keeps up with the view, and goes (design invariants I4, I5, I12).

    JOINING ──members──▶ sync with all neighbours ──▶ ACTIVE ──`activate` at all neighbours──▶ fetches
       ▲                                                │
       └── declared dead, or did not run for a while ───┘

Nobody owns before it knows: while it is joining, the owners copy their writes
to it, and it pulls what they had before. Then it says so to every neighbour
itself. Each of them starts no more tasks that are the newcomer's from there
on, and names those that it has in flight; the newcomer leaves these alone
until it hears what came of them. Only when every neighbour has answered, or is
gone, does it fetch.

When an owner vanishes, whoever is next owns its keys at once, takes links for
them, and fetches them once it has synced with its neighbours. When an owner
appears that nobody saw join, two swarms have met, or two parts of one: nothing
is fetched before the two have synced. Records that a node should no longer
have are handed over, and dropped when they are acked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.swarm import calls
from dhtcrawl.swarm.membership.repairs import Repairs
from dhtcrawl.swarm.records.sync import EVERYTHING, HandedOver, Syncer
from dhtcrawl.swarm.replica_sets import Sharing, Span, neighbours

log = logging.getLogger(__name__)

PAUSE_S = 0.2
# Records that were handed over and are still needed here: let go of when they are not.
NEEDED_PAUSE_S = 1.5
NEEDED_PAUSE_MAX_S = 60.0
OWED_PAUSE_MAX_S = 5.0  # as long as a dead node is taken for a member
# A swarm whose nodes all start at once: how long one waits for somebody who is active already.
NOBODY_ACTIVE_S = 2.0
# Somebody took us for dead, and by our view nobody is there: whoever said so is, and tells us of the others before that
NOBODY_THERE_S = 10.0
AT_ONCE = 8


class OwnedCrawls(Protocol):
    """The crawls of this node, as they are told of who owns what."""

    def hold(self, hold: bool) -> None:
        """Start nothing, or go on."""
        ...

    def settled(self, view: View | None) -> None:
        """Everything that is ours by `view` may be fetched; None: nothing yet."""
        ...

    def hold_for(self, node: bytes, rows: Sequence[calls.HeldRow]) -> None:
        """`node` has these tasks of ours in flight: rows (crawl, keys), from a peer."""
        ...

    async def pull(self, node: bytes) -> bool:
        """Learn the crawls that `node` knows; whether it answered."""
        ...


class Membership(Protocol):
    """What the entrance wants of the gossip."""

    @property
    def view(self) -> View: ...

    @property
    def incarnation(self) -> int: ...

    def become(self, state: MemberState) -> None:
        """Tell everybody what we are."""
        ...

    async def exchange(self, node: bytes) -> bool:
        """All records, both ways, with one node; whether it answered."""
        ...


@loop_state
class Join:
    """Of one node."""

    def __init__(
        self,
        peers: Peers,
        membership: Membership,
        syncer: Syncer,
        crawls: OwnedCrawls,
        clock: Clock,
        *,
        replicas: int,
        repair_s: float,
        adopt: Callable[[Sequence[calls.HostStateRow]], None],
        owning: Callable[[bool], None],
    ) -> None:
        """`adopt` takes what an answer to `activate` says of hosts; `owning(True)`: links are taken from here on."""
        self.active = False
        self.syncs = 0
        self._peers = peers
        self._membership = membership
        self._syncer = syncer
        self._crawls = crawls
        self._clock = clock
        self._replicas = replicas
        self._repair_s = repair_s
        self._adopt = adopt
        self._owning = owning
        self._changed = asyncio.Event()
        self._joining = True
        self._alone_after_s = NOBODY_ACTIVE_S
        self._leaving = False
        self._kept_up: View | None = None  # what we keep is in line with it
        self._repairs = Repairs(replicas)
        self._seen: View | None = None
        self._strangers: dict[bytes, None] = {}  # owners whom we did not see join
        self._met: dict[bytes, frozenset[bytes]] = {}  # whom we met while joining → who owned then
        self._told: set[bytes] = set()  # who knows that we are active
        self._reconciling = False
        self._needed_s = 0.0  # when to look again for what may go by then; 0: nothing
        self._owed_s = 0.0  # the same for what somebody did not take
        self._repaired_at = clock.monotonic()
        self._started_at = clock.monotonic()

    @property
    def busy(self) -> bool:
        """Whether this node is not yet where the view wants it."""
        return not self.active or self._reconciling or self._changed.is_set()

    def view_changed(self) -> None:
        """Look again."""
        view, before = self._membership.view, self._seen
        self._seen = view
        if before is None or not view.alike(before):
            # Whoever was gone may come from the other side of a cut, and know more than when we met. And an owner that
            # came after we met, and vanishes, leaves us a share of what they know, as one that was there does.
            self._met = {node: owned | view.owning for node, owned in self._met.items() if node in view}
            self._told.intersection_update(view.ids)
            known = View(()) if before is None else before
            strangers = dict.fromkeys(node for node in view.missing_in(known) if node in view.owning)
            self._strangers.update(strangers)
            if strangers and self.active and any(node in strangers for node in self._neighbours()):
                # At once: what is under way may wait for a node that hangs.
                self._crawls.settled(None)
            self._changed.set()

    def rejoin(self) -> None:
        """The others have taken over, or may have: we own nothing until we know again what happened."""
        if self._leaving:
            return
        log.info("joining again")
        self.active = False
        self._alone_after_s = NOBODY_THERE_S
        self._joining = True
        self._owning(False)
        self._crawls.hold(True)
        self._crawls.settled(None)
        self._started_at = self._clock.monotonic()
        self._changed.set()

    async def run(self) -> None:
        """Join, then keep up with the view, until cancelled."""
        while not self._leaving:
            if self._joining:
                await self._join()
                continue
            try:
                wait_s = min(self._needed_s or self._repair_s, self._repairs.wait_s(self._clock.monotonic()))
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
                repair = False
            except TimeoutError:
                repair = self._clock.monotonic() - self._repaired_at >= self._repair_s
            if not self._joining and not self._leaving:
                await self._keep_up(repair)

    # Joining

    async def _join(self) -> None:
        self._joining = False
        self._changed.clear()
        while not self._joining and not self._leaving:
            view = self._membership.view
            first = self._first_of_all(view)
            if first or view.owning - {self._peers.node_id}:
                break
            await asyncio.sleep(PAUSE_S)
        self._met = {}
        if not await self._sync_all() or self._joining or self._leaving:
            return
        if not first and not self._membership.view.owning & self._met.keys():
            # Those who own are gone again, or we have only heard so: nobody has told us anything.
            self._joining = True
            await asyncio.sleep(PAUSE_S)
            return
        # From here on links come to us; nothing is fetched before every neighbour knows.
        self._membership.become(MemberState.ACTIVE)
        self._owning(True)
        await self._activate()
        # An owner that vanished meanwhile leaves us keys that we have not asked for.
        if not await self._sync_all() or self._joining or self._leaving:
            return
        self.active = True
        self._met, self._told = {}, set()
        view = self._membership.view
        self._kept_up = view
        self._repairs.forget()
        self._strangers.clear()
        self._crawls.settled(view)
        self._crawls.hold(False)

    def _first_of_all(self, view: View) -> bool:
        """Whether nobody is active, and it is on us to begin: the lowest id of those that are there."""
        if len(view):
            return False
        waits_s = self._alone_after_s if len(view.members) <= 1 else NOBODY_ACTIVE_S
        waited = self._clock.monotonic() - self._started_at >= waits_s
        return waited and min(view.ids, default=self._peers.node_id) == self._peers.node_id

    def begin_alone(self) -> None:
        """Start a new swarm: wait for nobody."""
        self._alone_after_s = 0.0

    async def _sync_all(self) -> bool:
        """Meet every neighbour, and exchange records; again while further ones appear.

        And again with those who were met before an owner vanished: what we
        share with them is more by now.
        """
        while not self._joining and not self._leaving:
            owners = self._membership.view.owning
            todo = [node for node in self._neighbours() if node not in self._met or self._met[node] - owners]
            if not todo:
                return True
            await _all([self._meet(node) for node in todo[:AT_ONCE]])
        return False

    async def _meet(self, node: bytes, within: Sequence[Span] = (EVERYTHING,)) -> None:
        """Once this returns, `node` knows us and we have what it had for us in some ranges; or it is gone."""
        while node in self._neighbours() and not self._joining and not self._leaving:
            # It must know of us before we pull, so that its later writes come to us, too.
            owners = self._membership.view.owning
            if await self._membership.exchange(node) and await self._crawls.pull(node):
                result = await self._syncer.sync(node, self._membership.view, within)
                if not isinstance(result, Failure):
                    self.syncs += 1
                    self._met[node] = owners | self._membership.view.owning
                    return
            await asyncio.sleep(PAUSE_S)

    async def _activate(self) -> None:
        self._told = set()
        while not self._joining and not self._leaving:
            todo = [node for node in self._neighbours() if node not in self._told]
            if not todo:
                return
            await _all([self._tell(node) for node in todo[:AT_ONCE]])

    async def _tell(self, node: bytes) -> None:
        """`node` knows that we are active and starts none of our tasks; or it is gone."""
        while node in self._neighbours() and not self._joining and not self._leaving:
            answer = await self._peers.call(node, calls.Activate(self._membership.incarnation))
            if not isinstance(answer, Failure):
                self._crawls.hold_for(node, answer.held)
                self._adopt(answer.hosts)
                # Others that came to it while we joined: whom it knows, we have to know.
                if await self._membership.exchange(node):
                    self._told.add(node)
                    return
            await asyncio.sleep(PAUSE_S)

    def _neighbours(self) -> list[bytes]:
        return neighbours(self._membership.view, self._peers.node_id, self._replicas)

    # Keeping up

    async def _keep_up(self, repair: bool) -> None:
        """Take over what somebody left behind, and hand over what others own by now."""
        self._changed.clear()
        view = self._membership.view
        self._reconciling = True
        try:
            if self._strangers:
                await self._meet_strangers()
            now, before = self._clock.monotonic(), self._kept_up
            if repair:
                await self._sync_present(view, (EVERYTHING,))
                self._repaired_at = self._clock.monotonic()
            else:
                due = self._repairs.due(before, view, self._peers.node_id, now)
                await self._sync_present(view, due.copies)
                await self._sync_present(before, due.owned)
            if not self._membership.view.alike(view) or self._joining:
                self._changed.set()
                return
            self._repairs.done(before, view, now)
            self._kept_up = view
            self._crawls.settled(view)
            handed = await self._hand_over()
            if handed is None:
                return
            # We are still at it ourselves: again in a while. Whoever is to have it has it, so nobody waits for that.
            self._needed_s = min(max(2 * self._needed_s, NEEDED_PAUSE_S), NEEDED_PAUSE_MAX_S) if handed.needed else 0.0
            await self._owe(bool(handed.refused))
        finally:
            self._reconciling = False

    async def _hand_over(self) -> HandedOver | None:
        """What came of it; None where the view changed first.

        Many records go slowly, and to a node that hangs not at all; whose keys
        are nobody's meanwhile cannot wait. What was taken so far is taken.
        """
        async with asyncio.TaskGroup() as group:
            handing = group.create_task(self._syncer.hand_over())
            watching = group.create_task(self._changed.wait())
            watching.add_done_callback(lambda _: handing.cancel())
            handing.add_done_callback(lambda _: watching.cancel())
        return None if handing.cancelled() else handing.result()

    async def _owe(self, refused: bool) -> None:
        """Somebody did not take what is theirs: again after a while, or when the view says something new.

        The others took theirs, and are sent it again each time, so the while grows.
        """
        self._owed_s = min(max(2 * self._owed_s, PAUSE_S), OWED_PAUSE_MAX_S) if refused else 0.0
        if refused:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._owed_s):
                    await self._changed.wait()
            self._changed.set()

    async def _meet_strangers(self) -> None:
        """Owners that we did not see join: what is ours to fetch may have been fetched on their side."""
        strangers, self._strangers = self._strangers, {}
        near = [node for node in self._neighbours() if node in strangers]
        if near:
            self._crawls.settled(None)
        for first in range(0, len(near), AT_ONCE):
            await _all([self._meet(node) for node in near[first : first + AT_ONCE]])

    async def _sync_present(self, view: View | None, within: Sequence[Span]) -> None:
        """Compare with everybody who, by a view, may share records of these ranges with us."""
        if view is None or not within:
            return
        own, sharing = self._peers.node_id, self._neighbours()
        todo = [node for node in sharing if Sharing(view, own, node, self._replicas).within(within)]
        for first in range(0, len(todo), AT_ONCE):
            await _all([self._meet(node, within) for node in todo[first : first + AT_ONCE]])

    # Leaving

    async def leave(self, patience_s: float) -> HandedOver:
        """Own nothing any more, and hand every record over; true where all of it was taken.

        What was in flight must be over, and written. Nobody there to take it
        is no failure: the last node keeps its store. Whoever is to have a
        record and does not answer is asked again for `patience_s`: it may be
        dead, and its place another's in a moment. What still has to send its
        links, for a shorter way to it was found, is waited for as long.
        """
        self._leaving = True
        self.active = False
        self._changed.set()
        self._crawls.hold(True)
        self._owning(False)
        self._membership.become(MemberState.JOINING)
        view = self._membership.view
        if not len(view):
            return HandedOver()
        for first in range(0, len(todo := self._neighbours()), AT_ONCE):
            await _all([self._membership.exchange(node) for node in todo[first : first + AT_ONCE]])
        give_up_at = self._clock.monotonic() + patience_s
        while True:
            handed = await self._syncer.hand_over(self._membership.view)
            if not (handed.refused or handed.needed) or self._clock.monotonic() >= give_up_at:
                return handed
            await asyncio.sleep(NEEDED_PAUSE_S)


async def _all(awaitables: list[Awaitable[Any]]) -> None:
    async with asyncio.TaskGroup() as group:
        for awaitable in awaitables:
            group.create_task(_run(awaitable))


async def _run(awaitable: Awaitable[Any]) -> None:
    await awaitable
