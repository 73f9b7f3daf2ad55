"""In an open swarm a connection is with the node whose id its HELLO names, or it is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dhtcrawl.identity import NodeIdentity
from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.tasks.events import Answered, Ended, Failure, FailureKind, Opened, RequestFailed
from dhtcrawl.rpc.tasks.identity_check import IdentityCheck
from dhtcrawl.rpc.tasks.link import LinkLimits, LinkState, PeerLink
from dhtcrawl.rpc.tasks.messages import encode
from dhtcrawl.rpc.tasks.signals import Hello, Proof, encode_signal
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.sim.keys import SimKey
from rpc.wire import answer_to, hello, shuttle, task
from rpc.worlds import WORLDS, Wires, take_all

KEYS = [SimKey(hello(number).node_id) for number in range(4)]


def greeting(key: NodeKey, says: bytes | None = None) -> Hello:
    return replace(hello(1), node_id=says or key.node_id, key=key.public, nonce=key.nonce())


def end(key: NodeKey, *, dialed: bool = False, says: bytes | None = None) -> PeerLink:
    link = PeerLink(greeting(key, says), LinkLimits(), 0.0, IdentityCheck(key, dialed=dialed))
    if dialed:
        link.request(task(), 0.0, 30.0)
    link.connected(0.0)
    return link


def ending(link: PeerLink) -> Failure:
    (event,) = [event for event in link.take_events() if isinstance(event, Ended)]
    return event.failure


@pytest.mark.parametrize("real", [False, True])
def test_both_ends_prove_themselves_and_requests_do_not_wait_for_it(real: bool) -> None:
    one: NodeKey = NodeIdentity(Ed25519PrivateKey.generate()) if real else KEYS[1]
    two: NodeKey = NodeIdentity(Ed25519PrivateKey.generate()) if real else KEYS[2]
    a, b = end(one, dialed=True), end(two)
    b.receive(a.take_bytes(), 0.0)
    assert b.state is LinkState.PROVING
    assert b.peer is None
    a.receive(b.take_bytes(), 0.0)
    assert a.state is LinkState.OPEN, "the other end's proof came behind its HELLO"
    b.receive(a.take_bytes(), 0.0)
    (opened, asked) = b.take_events()
    assert isinstance(opened, Opened)
    assert opened.hello.node_id == one.node_id
    b.reply(asked.request_id, answer_to(task()), 0.0)  # type: ignore[union-attr]
    shuttle(a, b, 0.0)
    assert [type(event) for event in a.take_events()] == [Opened, Answered]


def test_who_names_another_nodes_id_is_refused_before_it_has_asked_anything() -> None:
    victim = KEYS[3]
    for key, said in ((KEYS[1], KEYS[1].public), (KEYS[1], victim.public)):
        a, b = end(key, dialed=True, says=victim.node_id), end(KEYS[2])
        a.hello = replace(a.hello, key=said)
        a._outbox[:] = [encode_signal(a.hello)]  # noqa: SLF001
        shuttle(a, b, 0.0)
        failure = ending(b)
        assert (failure.kind, b.state) == (FailureKind.NODE, LinkState.CLOSED)
        assert "has not the key" in failure.detail
        assert not [event for event in a.take_events() if isinstance(event, Answered)]


def test_who_proves_nothing_is_refused() -> None:
    for stranger in (hello(1), replace(hello(1), key=KEYS[1].public), replace(hello(1), nonce=bytes(16))):
        b = end(KEYS[2])
        b.receive(encode_signal(stranger), 0.0)
        assert ending(b).kind is FailureKind.NODE
        assert b"identity" in b.take_bytes()


def test_a_request_before_the_proof_is_not_heard() -> None:
    for frame in (encode(1, task()), encode_signal(greeting(KEYS[1]))):
        b = end(KEYS[2])
        b.receive(encode_signal(greeting(KEYS[1])) + frame, 0.0)
        assert [type(event) for event in b.take_events()] == [Ended]


def test_a_proof_is_good_for_one_connection() -> None:
    a, b = end(KEYS[1], dialed=True), end(KEYS[2])
    b.receive(a.take_bytes(), 0.0)
    a.receive(b.take_bytes(), 0.0)
    recorded = a.take_bytes()
    assert recorded.startswith(encode_signal(Proof(bytes(64)))[:5])
    again = end(KEYS[2])
    again.receive(encode_signal(a.hello) + recorded, 0.0)
    assert ending(again).kind is FailureKind.NODE


def test_who_connects_to_two_nodes_cannot_introduce_them_to_each_other() -> None:
    """Each would prove itself to the other through it, and it would speak for both from then on."""
    a, b = end(KEYS[1]), end(KEYS[2])
    to_a, to_b = b.take_bytes(), a.take_bytes()
    a.receive(to_a, 0.0)
    b.receive(to_b, 0.0)
    for victim, proof in ((a, b.take_bytes()), (b, a.take_bytes())):
        victim.receive(proof, 0.0)
        assert victim.state is LinkState.CLOSED


def test_who_is_dialed_and_names_another_than_was_asked_gets_no_signature_to_pass_on() -> None:
    a = PeerLink(greeting(KEYS[1]), LinkLimits(), 0.0, IdentityCheck(KEYS[1], dialed=True))
    number = a.request(task(), 0.0, 30.0, KEYS[2].node_id)
    a.connected(0.0)
    a.take_bytes()
    a.receive(encode_signal(greeting(KEYS[3])), 0.0)
    assert encode_signal(Proof(bytes(64)))[:5] not in a.take_bytes()
    failed, ended = a.take_events()
    assert isinstance(failed, RequestFailed)
    assert (failed.request_id, failed.failure.kind) == (number, FailureKind.NODE)
    assert isinstance(ended, Ended)


@pytest.mark.loops(*WORLDS)
async def test_nodes_with_keys_ask_each_other_and_an_impostor_is_told_nothing() -> None:
    world = Wires()
    one, two, three = KEYS[1:]
    heard: list[bytes] = []

    def listen(peer: Hello, message: object) -> object:
        heard.append(peer.node_id)
        return take_all(peer, message)  # type: ignore[arg-type]

    def node(number: int, key: NodeKey, says: NodeKey) -> TaskTransport:
        said = replace(hello(number), node_id=says.node_id)
        return TaskTransport(lambda: said, listen, source=world.host(number), key=key)  # type: ignore[arg-type]

    async with node(1, one, one) as a, node(2, two, two) as b, node(3, three, one) as impostor:
        there, here = await b.listen(world.host(2), 0), await a.listen(world.host(1), 0)
        assert await a.request(there, task(), node_id=two.node_id) == answer_to(task())
        assert await b.request(here, task(), node_id=one.node_id) == answer_to(task())
        refused = await impostor.request(there, task(), node_id=two.node_id)
        assert isinstance(refused, Failure)
        assert heard == [one.node_id, two.node_id]
        assert [peer.node_id for _, peer in b.peers()] == [one.node_id], "the true one keeps its connection"
    world.check()
