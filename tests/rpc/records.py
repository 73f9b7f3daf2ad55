"""Records of members and what a node makes of them, for the tests of membership."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.rpc.membership.row_proofs import OwnNode, RowProofs
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.sim.keys import SimKey

JOINING, ACTIVE, SUSPECTED, LEFT, DEAD = NodeState


def signed(record: MemberRecord) -> MemberRecord:
    """The record with the proof that only its node can make."""
    return RowProofs(SimKey(record.id)).signed(record)


ME = signed(MemberRecord.newcomer(b"m" * 20, ("10.0.0.1", 1), 3))


def own(record: MemberRecord) -> OwnNode:
    return OwnNode(record, SimKey(record.id))


def node(name: str, state: NodeState = ACTIVE, epoch: int = 1, incarnation: int = 1, **fields: Any) -> MemberRecord:
    place: dict[str, Any] = {"host": "10.0.0.9", "port": ord(name), "owns": state is not JOINING}
    bare = MemberRecord(id=name.encode() * 20, incarnation=incarnation, epoch=epoch, state=state, **place | fields)
    return signed(bare)


def members(*records: MemberRecord, **settings: Any) -> Members:
    made = Members(own(ME), Random(1), GossipSettings(**settings))
    made.learn(records, 0.0)
    return made


def seen(known: Members) -> dict[str, MemberState]:
    return {member.id.decode()[0]: member.state for member in known.view().members}


hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "127.0.0.1", "2001:db8::1"])
records = st.builds(
    MemberRecord,
    id=st.sampled_from([b"a" * 20, b"b" * 20]),
    host=hosts,
    port=st.integers(1, 3),
    incarnation=st.integers(0, 2),
    epoch=st.integers(0, 2),
    state=st.sampled_from(NodeState),
    owns=st.booleans(),
    features=st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple),
    extra=st.lists(st.one_of(st.none(), st.booleans(), st.integers(0, 1), st.text("z", max_size=1)), max_size=2).map(
        tuple
    ),
)
