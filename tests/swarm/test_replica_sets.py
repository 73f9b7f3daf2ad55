"""Who keeps which keys, against the view that says so key by key."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.swarm.replica_sets import (
    EVERYTHING,
    NO_OWNER,
    Keeping,
    Reach,
    Sharing,
    bucket_sizes,
    by_owner,
    in_parts,
    kept_by,
    neighbours,
    replica_set,
)

REPLICAS = 3

# Random ids, and crowded ones: a swarm may be unlucky, and an adversary may choose.
crowded = st.integers(0, 255).map(lambda end: b"c" * 19 + bytes([end]))
ids = st.binary(min_size=20, max_size=20) | crowded | st.integers(0, 255).map(lambda start: bytes([start]) * 20)
states = st.sampled_from([state for state in MemberState if state is not MemberState.OUTBOUND])  # it keeps nothing
members = st.dictionaries(ids, states, min_size=2, max_size=40).map(
    lambda states: [Member(node_id, ("10.0.0.1", 1), state) for node_id, state in states.items()]
)
keys = st.lists(ids | st.binary(min_size=40, max_size=40), min_size=1, max_size=20)


def counting(view: View, *nodes: bytes) -> View:
    """The same view with these as active members."""
    others = [member for member in view.members if member.id not in nodes]
    return View([*others, *(Member(node, ("10.0.0.1", 1)) for node in nodes)])


def near(rng: Random, node: bytes, bits: int) -> bytes:
    """A key that shares `bits` with a node, and all or some of the rest."""
    differs = 1 << 159 - bits if rng.random() < 0.5 else rng.getrandbits(160 - bits)
    return (int.from_bytes(node, "big") ^ differs).to_bytes(20, "big")


@given(members, keys)
def test_a_node_keeps_what_it_is_among_the_closest_to(some: list[Member], some_keys: list[bytes]) -> None:
    view = View(some)
    for member in some:
        keeping = Keeping(view, member.id, REPLICAS)
        for key in some_keys:
            assert keeping.covers(key) == (member.id in replica_set(view, key, REPLICAS))
            assert keeping.strays(key) != keeping.covers(key)


@given(members, ids, ids, keys)
def test_two_nodes_share_what_both_would_keep_if_both_were_active(
    some: list[Member], a: bytes, b: bytes, some_keys: list[bytes]
) -> None:
    view = View(some)
    sharing = Sharing(view, a, b, REPLICAS)
    other_side = Sharing(view, b, a, REPLICAS)
    active = counting(view, a, b)
    for key in some_keys:
        shared = {a, b} <= set(replica_set(active, key, REPLICAS))
        assert sharing.covers(key) == other_side.covers(key) == shared
        if shared:
            assert sharing.within([EVERYTHING]) == [(sharing.first, sharing.last)]
            assert sharing.first <= key[:20] <= sharing.last
            assert sharing.within([(key[:20], key[:20])]) == [(key[:20], key[:20])]


@given(members, st.integers(0, 39), keys, st.integers(0, 2**32))
def test_nobody_who_may_share_a_key_is_missing_among_the_neighbours(
    some: list[Member], index: int, some_keys: list[bytes], seed: int
) -> None:
    view, us, rng = View(some), some[index % len(some)].id, Random(seed)
    found = neighbours(view, us, REPLICAS)
    assert us not in found
    some_keys = [*some_keys, *(near(rng, us, bits) for bits in [*range(12), *range(12, 160, 8)] for _ in range(3))]
    everybody = View(Member(m.id, m.address) for m in some)
    for other in some:
        both = counting(view, us, other.id)
        if any({us, other.id} <= set(replica_set(both, key, REPLICAS)) for key in some_keys):
            assert other.id in [us, *found]
    for key in some_keys:
        keepers = replica_set(everybody, key, REPLICAS)
        assert us not in keepers or set(keepers) <= {us, *found}


@given(members, st.data(), keys)
def test_who_is_to_keep_a_key_in_place_of_another_finds_it_in_the_ranges_of_those_who_vanished(
    some: list[Member], data: st.DataObject, some_keys: list[bytes]
) -> None:
    before = View(some)
    stays = data.draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some)))
    came = data.draw(members)
    there = [member for member, stay in zip(some, stays, strict=True) if stay]
    view = View([*there, *(member for member in came if member.id not in before)])
    spans = kept_by(before, before.owning - view.owning, REPLICAS)
    assert spans == sorted(spans)
    assert all(last < first for (_, last), (first, _) in pairwise(spans))
    for key in some_keys:
        was, now = (replica_set(each, key, REPLICAS) for each in (before, view))
        if any(node not in was and node in before.owning for node in now) or set(was) - view.owning:
            assert any(first <= key[:20] <= last for first, last in spans)


@given(members, ids, st.integers(1, 5))
def test_whoever_joins_has_an_owner_to_learn_from(some: list[Member], newcomer: bytes, replicas: int) -> None:
    others = [member for member in some if member.id != newcomer]
    view = View([*others, Member(newcomer, ("10.0.0.1", 1), MemberState.JOINING)])
    met = set(neighbours(view, newcomer, replicas))
    assert met & view.owning or not view.owning


def test_neighbours_are_few_in_a_large_swarm() -> None:
    rng = Random(7)
    states = [MemberState.ACTIVE] * 9 + [MemberState.JOINING]
    view = View(Member(rng.randbytes(20), ("10.0.0.1", 1), rng.choice(states)) for _ in range(1_000))
    counts = [len(neighbours(view, member.id, REPLICAS)) for member in rng.sample(view.members, 200)]
    assert max(counts) < 60
    assert sum(counts) / len(counts) < 20


def test_in_a_large_swarm_a_nodes_keys_lie_in_a_small_range() -> None:
    rng = Random(8)
    view = View(Member(rng.randbytes(20), ("10.0.0.1", 1)) for _ in range(1_000))
    widths = []
    for member in rng.sample(view.members, 100):
        reach = Reach(bucket_sizes(view, member.id), member.id, REPLICAS + 1)
        widths.append((int.from_bytes(reach.last, "big") - int.from_bytes(reach.first, "big")) / 2**160)
    # Four of a thousand keep a key; a range is a power of two.
    assert sum(widths) / len(widths) < 0.03


def test_two_nodes_whose_keys_lie_apart_share_no_range() -> None:
    rng = Random(9)
    view = View(Member(rng.randbytes(20), ("10.0.0.1", 1)) for _ in range(1_000))
    first, *_, last = (member.id for member in view.members)
    apart = Sharing(view, first, last, REPLICAS)
    assert apart.within([EVERYTHING]) == []
    for other in neighbours(view, first, REPLICAS):
        sharing = Sharing(view, first, other, REPLICAS)
        for reach in (Reach(bucket_sizes(view, node), node, REPLICAS + 1) for node in (first, other)):
            assert all(reach.first <= key <= reach.last for span in sharing.within([EVERYTHING]) for key in span)


def test_all_of_a_small_swarm_are_neighbours_and_share_everything() -> None:
    view = View(Member(bytes([n]) * 20, ("10.0.0.1", 1), MemberState.JOINING) for n in (1, 2, 3, 200))
    a, b = view.members[0].id, view.members[3].id
    assert neighbours(view, a, REPLICAS) == [member.id for member in view.members[1:]]
    sharing = Sharing(view, a, b, REPLICAS)
    assert (sharing.first, sharing.last) == (bytes(20), b"\xff" * 20)


def test_a_node_that_is_no_active_member_keeps_nothing() -> None:
    view = View([Member(b"a" * 20, ("10.0.0.1", 1)), Member(b"b" * 20, ("10.0.0.1", 1), MemberState.JOINING)])
    assert not Keeping(view, b"b" * 20, REPLICAS).covers(b"b" * 20)
    assert not Keeping(view, b"c" * 20, REPLICAS).covers(b"b" * 20)


@given(members=members, keys=keys)
def test_every_item_goes_to_the_owner_of_its_key_in_order(members: list[Member], keys: list[bytes]) -> None:
    view = View(members)
    grouped = by_owner(view, enumerate(keys), lambda item: item[1])
    assert sorted(item for theirs in grouped.values() for item in theirs) == list(enumerate(keys))
    for owner, theirs in grouped.items():
        assert theirs == sorted(theirs)
        assert all(replica_set(view, key, 0) == ([owner] if owner != NO_OWNER else []) for _, key in theirs)


def test_keys_are_cut_into_parts_of_which_only_the_last_is_short() -> None:
    keys = [bytes([number]) * 20 for number in range(7)]
    assert list(in_parts(keys, 3)) == [tuple(keys[:3]), tuple(keys[3:6]), tuple(keys[6:])]
    assert list(in_parts([], 3)) == []


def test_who_never_owns_is_nobodys_neighbour() -> None:
    one, two, three, hidden = (bytes([16 * n]) * 20 for n in range(4))
    states = {one: MemberState.ACTIVE, two: MemberState.ACTIVE, three: MemberState.JOINING}
    view = View(Member(each, ("10.0.0.1", 1), states.get(each, MemberState.OUTBOUND)) for each in (*states, hidden))
    assert neighbours(view, one, 3) == [two, three]
    assert neighbours(view, hidden, 3) == [one, two, three], "it asks them"
