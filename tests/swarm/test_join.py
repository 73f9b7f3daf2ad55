"""How often a node that is there for long tries again what did not work, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from harness.bench import Bench

from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.join_state import ALONE_S
from dhtcrawl.swarm.membership.join_steps import JoinSettings
from dhtcrawl.swarm.membership.keeping_up import OWED_PAUSE_MAX_S
from dhtcrawl.swarm.membership.ports import OwnerPorts
from dhtcrawl.swarm.membership.repairs import PATIENCE_S
from dhtcrawl.swarm.records.range_sync import SyncResult
from dhtcrawl.swarm.records.sync import HandedOver, Syncer
from dhtcrawl.swarm.replica_sets import EVERYTHING, Span
from swarm.fake_peers import node, view_of


class JoinBench(Bench):
    """A node that begins a swarm; `taken` is what comes of handing over."""

    def __init__(self) -> None:
        super().__init__(view_of([], [0]))
        self.view = self.peers.view
        self.incarnation = 1
        self.handed_over_at: list[float] = []
        self.handing_over_s = 0.0
        self.synced: list[tuple[bytes, tuple[Span, ...]]] = []
        self.others: list[int] = []  # who is active besides us
        self.reunions = 0
        self.silent: set[bytes] = set()
        self.slow_s: dict[bytes, float] = {}  # node → what a sync with it takes
        self.settled_by: View | None = None
        self.taken: Callable[[], HandedOver] = HandedOver
        self.peers.calls["activate"] = lambda args: {"held": (), "hosts": ()}
        self.entrance = Join(
            self.peers,
            self,
            cast(Syncer, self),
            self,
            self.clock,
            JoinSettings(own=node(0), replicas=3, repair_s=600.0, suspicion_s=60.0),
            OwnerPorts(
                pull=_pulled,
                hold_for=lambda node, rows: None,
                adopt=lambda rows: None,
                owning=lambda owning: None,
                reunited=self._reunited,
            ),
        )
        self.entrance.state.begin_alone()

    def _reunited(self) -> None:
        self.reunions += 1

    def sees(self, view: View) -> None:
        self.view = self.peers.view = view
        self.entrance.view_changed()

    # Membership

    def become(self, state: MemberState) -> None:
        self.sees(view_of([0, *self.others]) if state is MemberState.ACTIVE else view_of(self.others, [0]))

    async def exchange(self, node: bytes) -> bool:
        return node not in self.silent

    # Syncer

    async def sync(self, peer: bytes, as_owner_set: View, within: Sequence[Span]) -> SyncResult:
        await asyncio.sleep(self.slow_s.get(peer, 0.0))
        self.synced.append((peer, tuple(within)))
        return SyncResult()

    async def hand_over(self, view: View | None = None) -> HandedOver:
        self.handed_over_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.handing_over_s)
        return self.taken()

    # Crawls

    def hold(self, hold: bool) -> None: ...

    def settled(self, view: View | None) -> None:
        self.settled_by = view


async def _pulled(_node: bytes) -> bool:
    return True


async def play_for(
    seconds: float, taken: Callable[[], HandedOver], meanwhile: Callable[[JoinBench], None]
) -> list[float]:
    """When records were handed over, from when two others had come."""

    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.handed_over_at.clear()
        world.taken = taken
        began_at = asyncio.get_running_loop().time()
        world.sees(view_of([0, 1, 2]))
        asyncio.get_running_loop().call_later(seconds / 2, meanwhile, world)
        await asyncio.sleep(seconds)
        running.cancel()
        return [at - began_at for at in world.handed_over_at]


async def test_what_somebody_does_not_take_is_offered_again_ever_more_rarely() -> None:
    offered_s = await play_for(60.0, lambda: HandedOver(refused=1), lambda world: None)
    assert len(offered_s) <= 60.0 / OWED_PAUSE_MAX_S + 6, "others take theirs each time"
    assert offered_s[1] < 1.0, "at first soon"
    assert offered_s[-1] > 60.0 - 2 * OWED_PAUSE_MAX_S, "for as long as it takes"


async def test_a_new_view_is_looked_at_at_once_whatever_is_owed() -> None:
    offered_s = await play_for(60.0, lambda: HandedOver(refused=1), lambda world: world.sees(view_of([0, 1])))
    assert any(30.0 <= at < 30.1 for at in offered_s), offered_s


async def test_what_was_taken_in_the_end_is_not_offered_again() -> None:
    left = iter([1, 1, 0])
    offered_s = await play_for(60.0, lambda: HandedOver(refused=next(left)), lambda world: None)
    assert len(offered_s) == 3, offered_s


async def test_a_node_with_something_owed_is_busy() -> None:
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        assert not world.entrance.state.busy
        world.taken = lambda: HandedOver(refused=1)
        world.sees(view_of([0, 1, 2]))
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert world.entrance.state.busy, "or a crawl would be called complete"
        running.cancel()


async def test_who_hands_over_to_a_node_that_hangs_takes_over_from_another_all_the_same() -> None:
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.handing_over_s = 30.0
        world.sees(view_of([0, 1, 2]))
        await asyncio.sleep(1.0)
        world.sees(view_of([0, 1]))
        await asyncio.sleep(1.0)
        assert world.settled_by is world.view
        assert world.entrance.state.busy, "what it had begun is still to be done"
        await asyncio.sleep(60.0)
        assert not world.entrance.state.busy
        assert len(world.handed_over_at) == 3, "when it began, in vain, and anew"
        running.cancel()


async def test_nothing_more_is_fetched_from_when_strangers_appear_whatever_is_under_way() -> None:
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.sees(view_of([0], [1, 2]))
        world.sees(view_of([0, 1, 2]))
        await asyncio.sleep(1.0)
        world.slow_s[node(1)] = 30.0
        world.sees(view_of([0, 1]))  # somebody is gone, and it takes long to compare with who is left
        await asyncio.sleep(1.0)
        assert world.settled_by is not None
        world.sees(view_of([0, 1, 3]))
        assert world.settled_by is None
        await asyncio.sleep(100.0)
        assert world.settled_by is world.view
        running.cancel()


async def test_leases_end_when_an_owner_comes_that_nobody_saw_join_and_not_when_one_joins() -> None:
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        for view in (view_of([0], [1]), view_of([0, 1]), view_of([0])):
            world.sees(view)
            await asyncio.sleep(1.0)
        assert world.reunions == 0
        world.sees(view_of([0, 2]))
        assert world.reunions == 1, "it owned, and gave leases, where this node did not hear of it"
        running.cancel()


async def test_only_what_a_vanished_owner_kept_is_compared_and_with_those_who_share_it() -> None:
    """Two groups of nodes, far apart by their ids: what happens in one is no matter of the other."""
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        everybody = [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]
        world.sees(view_of(everybody))
        await asyncio.sleep(1.0)
        world.synced.clear()
        world.sees(view_of([n for n in everybody if n != 12]))
        await asyncio.sleep(1.0)
        assert world.settled_by is world.view
        assert not world.synced
        world.sees(view_of([n for n in everybody if n not in (3, 12)]))
        await asyncio.sleep(1.0)
        assert world.settled_by is world.view
        half = (bytes(20), b"\x7f" + b"\xff" * 19)
        assert sorted(world.synced) == [(node(n), (half,)) for n in (1, 2, 4)]
        # From time to time everything, whatever happened.
        world.synced.clear()
        await asyncio.sleep(600.0)
        assert {node(n) for n in (1, 2, 4, 8, 9, 10, 11)} >= {peer for peer, _ in world.synced}
        assert {spans for _, spans in world.synced} == {(EVERYTHING,)}
        running.cancel()


async def test_who_joins_again_is_waited_for_before_what_it_kept_is_copied() -> None:
    """Its keys are taken over at once, from those who shared them; further copies are made when it has not come."""
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        everybody = [0, 1, 2, 3, 4, 8, 9, 10, 11, 12]
        world.sees(view_of(everybody))
        await asyncio.sleep(1.0)
        for came, joins_for_s in ((True, PATIENCE_S / 2), (False, 1.5 * PATIENCE_S)):
            world.synced.clear()
            # Of two groups that are far apart by their ids one of ours; none of its keys become ours.
            world.sees(view_of([n for n in everybody if n != 4], [4]))
            await asyncio.sleep(1.0)
            assert world.settled_by is world.view
            at_once = len(world.synced)
            await asyncio.sleep(joins_for_s)
            world.sees(view_of(everybody))
            await asyncio.sleep(1.0)
            assert (len(world.synced) == at_once) is came
        running.cancel()


async def test_who_goes_while_somebody_joins_and_comes_back_is_met_when_it_is_back() -> None:
    """Seed 613: whoever joined while the network was cut did not ask the other side once it was whole."""
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.others, world.silent, world.slow_s = [1, 2, 3], {node(2)}, {node(1): 10.0}
        world.sees(view_of([1, 2, 3], [0]))
        world.entrance.rejoin()
        await asyncio.sleep(5.0)
        assert [peer for peer, _ in world.synced] == [node(3)]
        world.sees(view_of([1], [0]))
        await asyncio.sleep(1.0)
        world.silent.clear()
        world.synced.clear()
        world.sees(view_of([1, 2, 3], [0]))
        await asyncio.sleep(10.0)
        assert world.entrance.state.active
        assert {peer for peer, _ in world.synced} == {node(1), node(2), node(3)}
        running.cancel()


async def test_an_owner_that_comes_and_vanishes_while_somebody_joins_leaves_a_share_of_what_the_others_know() -> None:
    """Seed 230: what the vanished one kept was the newcomer's to keep, and nobody was asked for it again."""
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.others, world.silent = [1, 2], {node(3)}
        world.sees(view_of([1, 2], [0]))
        world.entrance.rejoin()
        world.slow_s[node(2)] = 5.0
        await asyncio.sleep(2.0)
        world.sees(view_of([1, 2, 3], [0]))
        await asyncio.sleep(10.0)
        assert [peer for peer, _ in world.synced] == [node(1), node(2)]
        assert not world.entrance.state.active, "the third does not answer"
        world.sees(view_of([1, 2], [0]))
        await asyncio.sleep(10.0)
        assert world.entrance.state.active
        assert [peer for peer, _ in world.synced][2:4] == [node(1), node(2)]
        running.cancel()


async def test_who_joins_again_owns_nothing_when_all_who_could_tell_it_anything_are_gone_from_its_view() -> None:
    """Seed 939: the other side of a cut said that all of its own side were dead, and it took itself for the first."""
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.others, world.silent = [1, 2], {node(1), node(2)}
        world.sees(view_of([1, 2], [0]))
        world.entrance.rejoin()
        await asyncio.sleep(0.5)
        world.others = []
        world.sees(view_of([], [0]))
        await asyncio.sleep(ALONE_S - 1.0)
        assert not world.entrance.state.active
        assert not world.synced
        world.others, world.silent = [3], set()
        world.sees(view_of([3], [0]))
        await asyncio.sleep(1.0)
        assert world.entrance.state.active
        assert [peer for peer, _ in world.synced] == [node(3)]
        running.cancel()


async def test_who_joins_again_and_is_alone_goes_on_alone_after_a_while() -> None:
    async with asyncio.TaskGroup() as group:
        world = JoinBench()
        running = group.create_task(world.entrance.run())
        await asyncio.sleep(1.0)
        world.sees(view_of([], [0]))
        world.entrance.rejoin()
        await asyncio.sleep(ALONE_S - 1.0)
        assert not world.entrance.state.active
        await asyncio.sleep(2.0)
        assert world.entrance.state.active
        running.cancel()
