"""Numbers of members that others name: how far they are believed, and that a victim can always outbid a lie."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.rpc.membership.refusals import STEP_MAX, Refusals
from rpc.gossip_swarm import swarm
from rpc.records import ACTIVE, DEAD, ME, SUSPECTED, members, node
from rpc.routing_swarm import PORT, host

FORGED: dict[str, Any] = {"incarnation": INCARNATION_MAX, "epoch": EPOCH_MAX}
lives = st.tuples(
    st.one_of(st.integers(0, 9), st.integers(0, INCARNATION_MAX)),
    st.one_of(st.integers(0, 9), st.integers(0, EPOCH_MAX)),
)
claims = st.lists(
    st.tuples(st.sampled_from(NodeState), lives, st.sampled_from(["victim", "witness", "both"]), st.floats(0, 3)),
    max_size=12,
)


def test_a_step_is_taken_at_once_and_what_is_beyond_it_is_taken_off() -> None:
    known = members(node("a", ACTIVE, incarnation=5, epoch=7))
    a = node("a").id
    assert known.learn([node("a", ACTIVE, incarnation=5, epoch=7 + STEP_MAX)], 1.0).changed == 1
    assert known.get(a) == node("a", ACTIVE, incarnation=5, epoch=7 + STEP_MAX)
    assert known.refused.leaps == 0
    known.learn([node("a", ACTIVE, incarnation=5 + STEP_MAX, epoch=3)], 3.0)
    assert known.get(a) == node("a", ACTIVE, incarnation=5 + STEP_MAX, epoch=3)
    assert known.refused.leaps == 0
    known.learn([node("a", DEAD, **FORGED)], 5.0)
    assert known.get(a) == node("a", DEAD, incarnation=5 + 2 * STEP_MAX, epoch=0)
    assert (known.refused.leaps, known.refused.leapt) == (1, node("a", DEAD, **FORGED))


def test_a_flood_of_steps_comes_no_further_in_a_second_than_one() -> None:
    known = members(node("a", ACTIVE, incarnation=5))
    a = node("a").id
    for n in range(3_000):
        known.learn([node("a", ACTIVE, incarnation=6 + n)], 1.0)
    record = known.get(a)
    assert record is not None
    assert record.incarnation == 5 + STEP_MAX
    assert known.refused.leaps == 3_000 - STEP_MAX


def test_who_was_away_for_long_is_known_as_it_is_within_seconds() -> None:
    # A node in a loop of crashes that we were cut off from: it has started every second for two hours.
    known, back = members(node("a", DEAD, incarnation=5)), node("a", ACTIVE, incarnation=7_205, epoch=3)
    for second in range(8):
        assert known.get(back.id) != back
        known.learn([back], float(second))
    assert known.get(back.id) == back
    assert back.id in known


def test_of_a_node_that_is_not_known_any_number_is_taken_that_a_node_can_have() -> None:
    known = members(node("a", ACTIVE, incarnation=INCARNATION_MAX))
    assert known.get(node("a").id) == node("a", ACTIVE, incarnation=INCARNATION_MAX)


@given(claims)
def test_whatever_is_said_of_a_node_it_outbids_it_and_is_known_again(
    said: list[tuple[NodeState, tuple[int, int], str, float]],
) -> None:
    victim = Members(replace(ME, state=ACTIVE, owns=True), Random(1))
    witness = Members(node("w"), Random(1))
    witness.learn([victim.me], 0.0)
    now = 0.0
    for state, (incarnation, epoch), to, pause_s in said:
        now += pause_s
        lie = replace(ME.turned(state), incarnation=incarnation, epoch=epoch)
        if to != "witness":
            victim.learn([lie], now)
        if to != "victim":
            witness.learn([lie], now)
        assert victim.me.incarnation << 40 < 2**63
        assert victim.me.incarnation <= ME.incarnation + STEP_MAX * (now + 1)
        assert _known(witness).incarnation <= ME.incarnation + STEP_MAX * (now + 1)
    for _ in range(2 * len(said) + 3):
        now += 1.0
        victim.learn([_known(witness)], now)
        witness.learn([victim.me], now)
    assert _known(witness) == victim.me
    assert ME.id in witness


def _known(witness: Members) -> MemberRecord:
    record = witness.get(ME.id)
    assert record is not None
    return record


@given(st.lists(st.tuples(st.sampled_from("ab"), lives, st.floats(0, 2)), max_size=20))
def test_numbers_never_rise_faster_than_a_step_a_second_and_never_beyond_what_is_told(
    told: list[tuple[str, tuple[int, int], float]],
) -> None:
    refusals, known, now = Refusals(), {"a": (3, 4), "b": (3, 4)}, 0.0
    for name, (incarnation, epoch), pause_s in told:
        now += pause_s
        record = node(name, SUSPECTED, incarnation=incarnation, epoch=epoch)
        lowered = refusals.lowered(record, known[name], now)
        assert lowered.life <= max(record.life, known[name])
        assert lowered == replace(record, incarnation=lowered.incarnation, epoch=lowered.epoch)
        assert lowered.incarnation <= 3 + STEP_MAX * (now + 1) or lowered is record
        known[name] = max(known[name], lowered.life)
        assert known[name][0] <= 3 + STEP_MAX * (now + 1)


async def test_a_node_that_is_told_an_absurd_incarnation_goes_on_restarts_and_is_a_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with swarm() as s:
        victim, *others = await s.grow(3)
        await s.until_agreed(30)
        lie = replace(victim.members.me.turned(DEAD), **FORGED)
        caplog.set_level(logging.WARNING)
        for gossip in (victim, *others):
            for _ in range(3):
                gossip.answer_members(b"h" * 20, _rows(lie))
        await asyncio.sleep(10)
        assert all(victim.members.me.id in other.members for other in others)
        assert 1_000 < victim.members.me.incarnation < 5_000
        assert others[0].counters.leaps >= 1
        said = [record.message for record in caplog.records if "far beyond what is known here" in record.message]
        assert len(said) == 3  # once each
        assert f"have started {INCARNATION_MAX} times" in said[0]

        stored = victim.members.me.incarnation
        s.crash(host(1))
        await asyncio.sleep(1)
        again = await s.start(1, incarnation=stored + 1)
        await again.join([(host(2), PORT)])
        for gossip in s.nodes.values():
            gossip.set_state(NodeState.ACTIVE)
        await s.until_agreed(30, 3)


def _rows(*records: MemberRecord) -> ExchangeMembers:
    return ExchangeMembers(tuple(record.row() for record in records), b"", 9)
