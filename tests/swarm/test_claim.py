"""A claim by bits says the same as asking views for the owner of each key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.swarm.claim import KeyClaim
from dhtcrawl.swarm.replica_sets import owned_bits

# Few different first and last bytes, so that some ids agree in many bits.
IDS = st.builds(lambda first, last: bytes([first]) + bytes(18) + bytes([last]), st.integers(0, 255), st.integers(0, 3))
STATES = st.sampled_from([MemberState.ACTIVE, MemberState.ACTIVE, MemberState.SUSPECTED, MemberState.JOINING])
MEMBERS = st.dictionaries(IDS, STATES, min_size=1, max_size=12)
KEYS = st.lists(
    st.builds(lambda first, rest: bytes([first]) + rest, st.integers(0, 255), st.binary(min_size=19, max_size=39))
)


def view_of(members: dict[bytes, MemberState]) -> View:
    return View(Member(node, ("10.0.0.1", 1), state) for node, state in members.items())


def owns(view: View, node: bytes, key: bytes) -> bool:
    owner = view.owner(key[:20])
    return owner is not None and owner.id == node


@given(members=MEMBERS, before=MEMBERS, keys=KEYS, which=st.integers(0))
def test_what_is_ours_is_what_both_views_give_us(
    members: dict[bytes, MemberState], before: dict[bytes, MemberState], keys: list[bytes], which: int
) -> None:
    node = sorted(members)[which % len(members)]
    view, settled = view_of(members), view_of(before)
    claim = KeyClaim(node, view, settled)
    for key in [*keys, *members, *before]:
        assert claim.owns(key) == owns(view, node, key)
        assert claim.mine(key) == (owns(view, node, key) and owns(settled, node, key))
        assert not KeyClaim(node, view, None).mine(key), "nothing is, before it has asked"
        assert KeyClaim(node, view, view).mine(key) == owns(view, node, key)
    assert claim.owned(keys) == [key for key in keys if owns(view, node, key)]


@given(members=MEMBERS, others=MEMBERS, keys=KEYS)
def test_claims_with_equal_bits_are_claims_to_the_same_keys(
    members: dict[bytes, MemberState], others: dict[bytes, MemberState], keys: list[bytes]
) -> None:
    node = min(members)
    one, other = (KeyClaim(node, view, view) for view in map(view_of, (members, others)))
    if one.bits == other.bits:
        assert all(one.mine(key) == other.mine(key) for key in [*keys, *members, *others])


def test_a_node_that_is_no_owner_owns_nothing() -> None:
    node = bytes(20)
    assert owned_bits(view_of({node: MemberState.JOINING, b"\xff" * 20: MemberState.ACTIVE}), node) is None
    assert owned_bits(view_of({node: MemberState.ACTIVE}), node) == 0, (
        "a single owner owns all, and agrees with any key"
    )
