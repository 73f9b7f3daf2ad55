"""Questions to the node that has a crawl's data survive a lost connection, and end where the node fails."""

from __future__ import annotations

from typing import Any

import pytest
from storage.stores import CRAWL

from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.collect.facts import Unreachable
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX
from dhtcrawl.swarm.bodies import peer_source
from dhtcrawl.swarm.bodies.peer_source import RESUME_AFTER_S, PeerSource
from swarm.fake_peers import FakePeers, node, view_of


def source_with(*answers: Any, name: str = "export_chunk") -> tuple[PeerSource, FakePeers]:
    """A source whose node gives these answers one after the other."""
    peers, left = FakePeers(view_of([0, 1])), list(answers)
    peers.calls[name] = lambda args: left.pop(0)
    return PeerSource(peers, CRAWL), peers


@pytest.mark.parametrize("kind", [FailureKind.CONNECT, FailureKind.LOST, FailureKind.BUSY])
async def test_what_was_lost_with_a_connection_is_asked_again(kind: FailureKind) -> None:
    lost = Failure(kind, "gone")
    source, peers = source_with(lost, lost, {"data": b"abc"})
    assert await source.chunk(node(1), "f", 7, 1 << 30) == b"abc"
    asked = {"crawl": CRAWL, "name": "f", "offset": 7, "limit": CHUNK_BYTES_MAX}
    assert peers.called == [(node(1), "export_chunk", asked)] * 3


async def test_a_node_that_stays_away_is_given_up() -> None:
    source, peers = source_with(*[Failure(FailureKind.LOST, "gone")] * 9)
    with pytest.raises(Unreachable, match="does not answer export_chunk: gone"):
        await source.chunk(node(1), "f", 0, 1)
    assert len(peers.called) == 1 + len(RESUME_AFTER_S)


@pytest.mark.parametrize("answer", [Refused("no-file"), Failure(FailureKind.TIMEOUT, ""), {"data": b"too long"}])
async def test_an_answer_or_silence_is_no_lost_connection(answer: Any) -> None:
    source, peers = source_with(answer)
    with pytest.raises(Unreachable):
        await source.chunk(node(1), "f", 0, 1)
    assert len(peers.called) == 1


async def test_the_list_of_files_is_read_to_its_end() -> None:
    source, _ = source_with({"files": (("a", 1), ("b", 2))}, {"files": (("c", 3),)}, {"files": ()}, name="export_files")
    assert await source.files(node(1)) == [("a", 1), ("b", 2), ("c", 3)]
    source, _ = source_with(*[{"files": (("a", 1),)}] * 2, name="export_files")
    with pytest.raises(BadRow):
        await source.files(node(1))


async def test_a_list_of_files_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_source, "FILES_MAX", 5)
    pages = ({"files": tuple((f"{page:03}{each}", 1) for each in "ab")} for page in range(1000))
    source, peers = source_with(*pages, name="export_files")
    with pytest.raises(BadRow, match="more than 5 files"):
        await source.files(node(1))
    assert len(peers.called) == 3
