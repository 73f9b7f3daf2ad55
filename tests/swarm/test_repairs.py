"""Who vanished is made up for at once where it is gone, and not at all where it comes back soon."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.swarm.membership.repairs import PATIENCE_S, Repairs
from dhtcrawl.swarm.replica_sets import owned_bits, replica_set
from swarm.fake_peers import node, view_of

REPLICAS = 3
ALL = list(range(16))


def without(*gone: int, joining: tuple[int, ...] = ()) -> View:
    return view_of([n for n in ALL if n not in (*gone, *joining)], joining)


def covers(spans: list[tuple[bytes, bytes]], key: bytes) -> bool:
    return any(first <= key <= last for first, last in spans)


def test_who_is_gone_is_made_up_for_at_once_and_once() -> None:
    repairs = Repairs(REPLICAS)
    due = repairs.due(without(), without(5), node(0), 0.0)
    assert covers(due.copies, node(5))
    assert not due.owned
    repairs.done(without(), without(5), 0.0)
    assert repairs.due(without(5), without(5), node(0), 1.0) == ([], [])
    assert repairs.wait_s(1.0) == float("inf")


def test_who_joins_again_is_waited_for() -> None:
    repairs = Repairs(REPLICAS)
    joins = without(joining=(5,))
    assert repairs.due(without(), joins, node(0), 0.0) == ([], [])
    repairs.done(without(), joins, 0.0)
    assert repairs.wait_s(10.0) == PATIENCE_S - 10.0
    assert repairs.due(joins, joins, node(0), PATIENCE_S - 1) == ([], [])
    # It is back: nothing was to be done.
    repairs.done(joins, without(), 2.0)
    assert repairs.wait_s(10.0) == float("inf")
    assert repairs.due(without(), without(), node(0), PATIENCE_S + 1) == ([], [])


def test_who_joins_for_too_long_or_dies_while_it_joins_is_made_up_for() -> None:
    for view, now in ((without(joining=(5,)), PATIENCE_S), (without(5), 1.0)):
        repairs = Repairs(REPLICAS)
        joins = without(joining=(5,))
        repairs.done(without(), joins, 0.0)
        due = repairs.due(joins, view, node(0), now)
        assert covers(due.copies, node(5))
        # It broke off: all of it is still due.
        assert repairs.due(joins, view, node(0), now) == due
        repairs.done(joins, view, now)
        assert repairs.due(view, view, node(0), now) == ([], [])


def test_who_owns_the_keys_meanwhile_asks_those_who_kept_them() -> None:
    due = Repairs(REPLICAS).due(without(), without(joining=(5,)), node(4), 0.0)
    assert due == ([], [(node(5), (int.from_bytes(node(6), "big") - 1).to_bytes(20, "big"))])


def test_a_node_that_joins_itself_expects_nobody() -> None:
    repairs = Repairs(REPLICAS)
    repairs.done(without(), without(joining=(5,)), 0.0)
    repairs.forget()
    assert repairs.wait_s(0.0) == float("inf")


def test_who_came_and_went_before_all_was_in_line_with_it_is_made_up_for_once() -> None:
    """As those who had died while a node slept that tells of them once more."""
    repairs, before = Repairs(REPLICAS), without(5)
    repairs.saw(before, without())
    repairs.saw(before, before)
    due = repairs.due(before, before, node(0), 0.0)
    assert covers(due.copies, node(5))
    assert repairs.due(before, before, node(0), 0.0) == due, "it broke off"
    # One that comes and goes meanwhile is due next time.
    repairs.saw(before, without(5, 6))
    repairs.saw(before, without())
    repairs.done(before, before, 0.0)
    assert covers(repairs.due(before, before, node(0), 0.0).copies, node(5))
    repairs.done(before, before, 0.0)
    assert repairs.due(before, before, node(0), 0.0) == ([], [])


def test_who_comes_and_stays_is_not_made_up_for() -> None:
    repairs, before = Repairs(REPLICAS), without(5)
    repairs.saw(before, without())
    assert repairs.due(before, without(), node(0), 0.0) == ([], [])
    repairs.done(before, without(), 0.0)
    assert repairs.due(without(), without(), node(0), 0.0) == ([], [])


@given(st.integers(0, 2**32), st.lists(st.sets(st.integers(0, 14)), min_size=1, max_size=5))
def test_what_was_written_while_owners_came_and_went_is_compared(seed: int, passing: list[set[int]]) -> None:
    """Who owned all the time has it then; all others are met by themselves as they come.

    Ten nodes are there at first and in the end, and any may be away meanwhile; five come and go.
    """
    rng = Random(seed)
    own, *others = (rng.randbytes(20) for _ in range(16))
    lasting = {own, *(others[number] for number in range(10) if not any(number in other for other in passing))}

    def view(other: set[int]) -> View:
        there = set(range(10)) ^ other
        return View(Member(each, ("10.0.0.1", 1)) for each in (own, *(others[number] for number in there)))

    before, repairs, has = view(set()), Repairs(REPLICAS), dict[bytes, set[bytes]]()
    for other in [*passing, set[int]()]:
        now = view(other)
        repairs.saw(before, now)
        has |= {key: set(replica_set(now, key, REPLICAS)) for key in (rng.randbytes(20) for _ in range(20))}
    due = repairs.due(before, before, own, 0.0)
    for key, holders in has.items():
        assert lasting & set(replica_set(before, key, REPLICAS)) <= holders or covers(due.copies, key)


@given(st.integers(0, 2**32), st.lists(st.sampled_from(["lose", "joins", "back", "fail"]), max_size=12))
def test_every_key_that_lost_a_keeper_is_compared_sooner_or_later(seed: int, steps: list[str]) -> None:
    """Whatever happens, and whether or not a comparison comes through: no lack is forgotten."""
    rng = Random(seed)
    own, *others = (rng.randbytes(20) for _ in range(12))
    states: dict[bytes, MemberState] = dict.fromkeys([own, *others], MemberState.ACTIVE)
    keys = [rng.randbytes(20) for _ in range(60)]
    repairs, now = Repairs(REPLICAS), 0.0
    view = before = View(Member(each, ("10.0.0.1", 1)) for each in states)
    # Who has a copy, by what was compared: the keepers at first.
    has = {key: set(replica_set(view, key, REPLICAS)) for key in keys}
    for step in [*steps, "settle"]:
        now += 1.0 if step != "settle" else PATIENCE_S + 1
        who = rng.choice(others)
        if step == "lose":
            states.pop(who, None)
            for holders in has.values():
                holders.discard(who)
        elif step == "joins" and who in states:
            states[who] = MemberState.JOINING
        elif step == "back":
            back = [each for each, state in states.items() if state is MemberState.JOINING]
            for each in back:
                states[each] = MemberState.ACTIVE
        view = View(Member(each, ("10.0.0.1", 1), state) for each, state in states.items())
        # Who is back has what it is to have: it joined.
        for key in keys:
            has[key] |= {each for each in replica_set(view, key, REPLICAS) if step == "back" and each in back}
        due = repairs.due(before, view, own, now)
        if owned_bits(before, own) != owned_bits(view, own):
            for key in keys:
                was, is_ = before.owner(key), view.owner(key)
                if is_ is not None and is_.id == own and was is not None and was.id != own:
                    assert covers([*due.copies, *due.owned], key), "nobody owns before it knows"
        if step == "fail":
            continue
        for key in keys:
            if covers(due.copies, key):
                has[key] |= set(replica_set(view, key, REPLICAS))
        repairs.done(before, view, now)
        before = view
    for key in keys:
        assert set(replica_set(view, key, REPLICAS)) <= has[key]
