"""After a wave all nodes come to one record of a crawl, which has of theirs what counts and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from storage.stores import SPEC

from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.storage.store.crawl_record import (
    PAUSED,
    RUNNING,
    STEP_MAX,
    CrawlRecord,
    changed,
    from_wire,
    merge_crawls,
    new_record,
    signed,
    to_wire,
)
from dhtcrawl.swarm.calls.lifecycle import CrawlStanding
from dhtcrawl.swarm.lifecycle.crawl_authority import CrawlAuthority
from dhtcrawl.swarm.lifecycle.record_sharing import RECORDS_KEPT, RecordSharing
from swarm.fake_peers import FakePeers, node, view_of

AUTHOR = SimKey(node(0))
CRAWL = new_record(SPEC, b"s" * 16, AUTHOR)
VIEW = view_of([0, 1, 2], joining=[3])


class Desk:
    """The coordinator's node: its record, and the nodes that it asks and tells."""

    def __init__(self) -> None:
        self.current = CRAWL
        self.updates = 0
        self.authority = CrawlAuthority(AUTHOR, lambda: VIEW, lambda _: True)
        self.peers = FakePeers(VIEW)
        self.theirs: Mapping[str, Any] | Failure = {"record": to_wire(CRAWL)}
        self.peers.calls = {"crawl_get": lambda args: self.theirs, "crawl_tell": lambda args: {}}  # type: ignore[dict-item, return-value]
        board: Any = self
        self.sharing = RecordSharing(self.peers, CRAWL.crawl_id, board, 5.0)

    # The board

    def record(self) -> CrawlRecord:
        return self.current

    async def update(self, record: CrawlRecord) -> None:
        self.updates += 1
        self.current = merge_crawls(self.current, record)

    def believed(self, record: CrawlRecord, teller: bytes) -> CrawlRecord:
        return self.authority.believed(record, self.current, teller)

    def signed(self, record: CrawlRecord) -> CrawlRecord:
        return self.authority.signed(record, self.current)

    # What it did

    def asked(self) -> list[bytes]:
        return [peer for peer, name, _ in self.peers.called if name == "crawl_get"]

    def told(self) -> list[bytes]:
        return sorted(peer for peer, name, _ in self.peers.called if name == "crawl_tell")

    async def share(self, **records: CrawlRecord | None) -> None:
        """A wave in which n1, n2 … reported these records; None: one that does not know the crawl."""
        self.peers.called.clear()
        reports = {node(int(name[1:])): standing(record) for name, record in records.items()}
        await self.sharing.share(VIEW, reports)


def standing(record: CrawlRecord | None) -> CrawlStanding:
    return CrawlStanding(
        incarnation=1,
        knows=record is not None,
        idle=True,
        activity=1,
        view=bytes(16),
        record=bytes(8) if record is None else record.digest,
        state_version=0,
        waiting={},
        counters={},
    )


def knowing(*numbers: int) -> CrawlRecord:
    return replace(CRAWL, participants=[node(number).hex() for number in numbers])


async def test_what_others_know_is_learned_and_all_that_know_something_else_are_told() -> None:
    desk = Desk()
    desk.theirs = {"record": to_wire(knowing(7))}
    await desk.share(n0=CRAWL, n1=knowing(7), n2=CRAWL, n3=CRAWL)
    assert desk.asked() == [node(1)]
    assert set(desk.current.participants) == {node(number).hex() for number in (7, 0, 1, 2)}, (
        "who joins does not run it"
    )
    assert desk.told() == [node(1), node(2), node(3)]
    now = desk.current
    await desk.share(n0=now, n1=now, n2=now, n3=now)
    assert (desk.asked(), desk.told(), desk.current) == ([], [], now)


async def test_a_node_that_does_not_know_the_crawl_is_told_whole_and_takes_no_part() -> None:
    desk = Desk()
    await desk.share(n1=None, n2=CRAWL)
    assert desk.asked() == []
    assert desk.current.participants == [node(2).hex()]
    told = {peer: args["record"] for peer, name, args in desk.peers.called if name == "crawl_tell"}
    assert from_wire(told[node(1)]).participants == [node(2).hex()]
    assert len(told[node(2)]) < len(told[node(1)]), "who has our last record is told what is new"


async def test_a_node_that_has_a_recent_record_from_here_is_not_asked_for_it() -> None:
    desk = Desk()
    for number in range(RECORDS_KEPT + 1):
        before = desk.current
        desk.current = merge_crawls(before, knowing(number + 4))
        await desk.share(n0=desk.current, n1=before)
        assert (desk.asked(), desk.told()) == ([node(1)] if not number else [], [node(1)])
    await desk.share(n1=knowing(4))
    assert desk.asked() == [node(1)], "so old a one is not remembered"


@pytest.mark.parametrize(
    "answer",
    [
        Failure(FailureKind.TIMEOUT, "no answer"),
        {"record": b"garbage"},
        {"record": to_wire(replace(new_record(SPEC, b"t" * 16, AUTHOR), participants=[node(7).hex()]))},
    ],
    ids=["no answer", "no record", "another crawl's"],
)
async def test_an_answer_that_is_no_record_of_the_crawl_changes_nothing(answer: Any) -> None:
    desk = Desk()
    desk.theirs = answer
    await desk.sharing.get(node(1))
    assert (desk.asked(), desk.updates, desk.current) == ([node(1)], 0, CRAWL)


async def test_a_change_that_does_not_count_is_outbid_by_what_is_true() -> None:
    desk = Desk()
    forged = signed(replace(changed(CRAWL, PAUSED), version=9), CRAWL, SimKey(node(2)))
    desk.theirs = {"record": to_wire(forged)}
    await desk.sharing.get(node(2))
    assert (desk.current.state, desk.current.version) == (RUNNING, 10)
    assert desk.current.maker is not None
    assert desk.current.maker.node_id == AUTHOR.node_id
    assert merge_crawls(forged, desk.current).state == RUNNING, "wherever it was believed"


async def test_a_version_far_ahead_is_lowered_and_counted_and_leaves_versions_for_the_next_change() -> None:
    desk = Desk()
    leap = replace(CRAWL, version=CRAWL.version + 5 * STEP_MAX)
    desk.theirs = {"record": to_wire(leap)}
    await desk.sharing.get(node(1))
    assert (desk.current.version, desk.sharing.leaps) == (CRAWL.version + STEP_MAX, 1)
    desk.theirs = {"record": to_wire(desk.current)}
    await desk.sharing.get(node(1))
    assert desk.sharing.leaps == 1


async def test_what_says_nothing_new_is_not_written() -> None:
    desk = Desk()
    await desk.sharing.adopt(CRAWL)
    await desk.sharing.get(node(1))
    assert desk.updates == 0
    await desk.sharing.adopt(knowing(7))
    assert desk.updates == 1
