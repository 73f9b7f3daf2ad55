"""A node that is gone has the heir that it has signed itself, and no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import pytest
from harness.bench import Bench
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import SPEC

from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.node_key import NodeKey
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import run
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.storage.store import bequests
from dhtcrawl.storage.store.bequests import Bequest
from dhtcrawl.storage.store.crawl_record import CrawlRecord, from_wire, merge_crawls, new_record, to_wire
from dhtcrawl.swarm.calls.lifecycle import TellCrawl
from dhtcrawl.swarm.lifecycle import crawl_authority
from dhtcrawl.swarm.lifecycle.crawl_authority import BEQUESTS_A_RECORD, CrawlAuthority
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords
from swarm.fake_peers import node, view_of
from swarm.story import Story, a_world

CRAWL = new_record(SPEC, bytes(16), SimKey(node(9)))
LEAVER, HEIR, BAD = SimKey(node(5)), node(1), SimKey(node(2))
BEGUN_EARLIER = replace(CRAWL, author=None)


def made(heir: bytes = HEIR, number: int = 1, key: NodeKey = LEAVER) -> Bequest:
    return bequests.made(key, CRAWL.crawl_id, heir, number)


def forged(heir: bytes = BAD.node_id, number: int = 9, leaver: bytes = LEAVER.node_id) -> Bequest:
    """What a member makes up of another that is gone."""
    return made(heir, number, BAD)._replace(node_id=leaver)


def told(said: Iterable[Bequest], crawl: CrawlRecord = CRAWL) -> CrawlRecord:
    return replace(crawl, bequests={each.name: each.packed() for each in said})


class Hearer(Bench):
    """Node 0, which hears of a crawl from others."""

    def __init__(self) -> None:
        super().__init__(view_of((0, 1, 2)))
        authority = CrawlAuthority(SimKey(node(0)), lambda: self.peers.view, lambda _: True)
        self.records = CrawlRecords(self.peers, self.registry, self.committer, authority)

    async def hear(self, record: CrawlRecord) -> dict[str, bytes]:
        await self.records.hear(from_wire(to_wire(record)), BAD.node_id)
        return self.known.bequests

    @property
    def known(self) -> CrawlRecord:
        known = self.records.get(CRAWL.crawl_id)
        assert known is not None
        return known

    @property
    def forged(self) -> int:
        return self.records.authority.forged


async def test_an_heir_is_who_the_leaving_node_has_signed() -> None:
    hearer = Hearer()
    await hearer.hear(told([made()]))
    assert hearer.records.heir_of(CRAWL.crawl_id, LEAVER.node_id.hex()) == HEIR.hex()


@pytest.mark.parametrize("known", [True, False])
async def test_what_the_node_that_is_gone_has_not_signed_is_kept_by_nobody(known: bool) -> None:
    for number, false in enumerate((forged(), forged()._replace(public=LEAVER.public), made()._replace(heir=node(2)))):
        hearer = Hearer()
        if known:
            await hearer.records.learn(CRAWL)
        assert await hearer.hear(told([false])) == {}, number
        assert hearer.forged == 1


async def test_an_heir_without_a_signature_counts_from_no_peer() -> None:
    hearer = Hearer()
    await hearer.hear(CRAWL)
    wire = to_wire(replace(BEGUN_EARLIER, adopted={LEAVER.node_id.hex(): BAD.node_id.hex()}))
    await hearer.records.hear(from_wire(wire, hearer.known), BAD.node_id)
    assert hearer.known.heirs == {}


async def test_the_last_bequest_of_a_node_counts_and_an_earlier_one_that_is_told_again_does_not() -> None:
    hearer = Hearer()
    first, last = made(node(2), 1), made(node(1), 2)
    for each in (first, last, first):
        await hearer.hear(told([each]))
    assert hearer.known.heirs == {LEAVER.node_id.hex(): node(1).hex()}
    await hearer.hear(told([made(LEAVER.node_id, 3)]))
    assert hearer.known.heirs == {}, "it says that nobody has its pages"


async def test_who_tells_one_that_is_not_signed_has_none_of_the_later_ones_looked_at() -> None:
    hearer, leavers = Hearer(), [SimKey(node(n)) for n in (3, 4, 6, 7)]
    sound = [made(key=key) for key in leavers]
    false = forged(leaver=node(5))
    heard = await hearer.hear(told([*sound[:2], false, *sound[2:]]))
    assert list(heard) == [each.name for each in sound[:2]]
    await hearer.hear(told([false] * 100))
    assert hearer.forged == 2
    assert list(await hearer.hear(told(sound))) == [each.name for each in sound]


class Counted(SimKey):
    """A key that counts what it verifies."""

    def __init__(self, node_id: bytes) -> None:
        super().__init__(node_id)
        self.verified = 0

    def verify(self, node_id: bytes, public: bytes, signature: bytes, said: bytes) -> bool:
        self.verified += 1
        return super().verify(node_id, public, signature, said)


async def test_a_bequest_is_verified_once_thousands_in_steps_and_those_without_a_place_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, view = Counted(node(0)), view_of((0, 1, 2))
    authority = CrawlAuthority(key, lambda: view, lambda _: True)
    many = [made(key=SimKey(n.to_bytes(20, "big"))) for n in range(BEQUESTS_A_RECORD + 10)]
    known, record = CRAWL, told(many)
    for expected in (BEQUESTS_A_RECORD, BEQUESTS_A_RECORD + 10, BEQUESTS_A_RECORD + 10):
        known = merge_crawls(known, authority.believed(record, known, BAD.node_id))
        assert (len(known.bequests), key.verified) == (expected, expected)
    monkeypatch.setattr(crawl_authority, "BEQUESTS_MAX", len(many))
    beyond, within = made(key=SimKey(node(15))), made(node(2), 2, SimKey(bytes(20)))
    believed = authority.believed(told([beyond, within]), known, BAD.node_id)
    assert believed.bequests == {within.name: within.packed()}
    assert key.verified == len(many) + 1


async def test_a_node_that_comes_back_says_so_once_and_leaves_again() -> None:
    key, view = SimKey(node(0)), view_of((0, 1, 2))
    before = CrawlAuthority(key, lambda: view, lambda _: True, incarnation=1)
    left = before.bequest(CRAWL, HEIR)
    record = told([left])
    assert before.reclaimed(record) is record, "it is about to leave"
    assert before.reclaimed(CRAWL) is CRAWL
    after = CrawlAuthority(key, lambda: view, lambda _: True, incarnation=2)
    assert after.reclaimed(replace(record, ended="complete")).heirs == record.heirs
    back = after.reclaimed(record)
    assert (record.heirs, back.heirs) == ({key.node_id.hex(): HEIR.hex()}, {})
    assert after.reclaimed(back) is back
    assert all(bequests.is_signed(each, CRAWL.crawl_id, BAD) for each in bequests.bequests_of(back.bequests))
    again = after.bequest(back, HEIR)
    gone = replace(back, bequests=back.bequests | {again.name: again.packed()})
    assert merge_crawls(gone, record).heirs == record.heirs
    assert after.reclaimed(gone) is gone


async def test_a_store_that_is_older_than_what_its_node_left_makes_it_say_that_it_is_back_once_it_hears_of_it() -> None:
    hearer = Hearer()
    await hearer.records.learn(CRAWL)
    later = made(HEIR, bequests.first_number(3) + 1, SimKey(node(0)))
    for _ in range(2):
        await hearer.hear(told([later]))
    assert hearer.known.heirs == {}
    assert max(each.number for each in bequests.bequests_of(hearer.known.bequests)) == later.number + 1


NODES = st.integers(3, 6)
SAID = st.lists(
    st.builds(
        lambda leaver, heir, number: made(node(heir), number, SimKey(node(leaver))), NODES, NODES, st.integers(1, 3)
    )
    | st.builds(lambda leaver, heir, number: forged(node(heir), number, node(leaver)), NODES, NODES, st.integers(1, 9)),
    max_size=4,
)


@given(st.lists(SAID, max_size=6), st.data())
def test_all_that_hear_the_same_in_any_order_have_one_record_of_what_is_signed(
    said: list[list[Bequest]], data: st.DataObject
) -> None:
    """Who was told too little for another's forgery hears the rest from one that has it."""

    async def heard() -> None:
        hearers = [Hearer(), Hearer()]
        for hearer in hearers:
            await hearer.records.learn(CRAWL)
            for each in data.draw(st.permutations(said)):
                await hearer.hear(told(each))
        for one, other in (hearers, hearers[::-1]):
            await other.hear(one.known)
        assert hearers[0].known.digest == hearers[1].known.digest
        for bequest in bequests.bequests_of(hearers[0].known.bequests):
            assert bequests.is_signed(bequest, CRAWL.crawl_id, LEAVER)
        assert hearers[0].forged == hearers[1].forged == 0 or not all(is_sound(each) for each in chain(*said))

    run(heard())


def is_sound(bequest: Bequest) -> bool:
    return bequests.is_signed(bequest, CRAWL.crawl_id, LEAVER)


# In a swarm


async def begun(world: Story, delay_s: float = 0.0) -> tuple[bytes, SimHost, SwarmNode]:
    """A crawl of which a node that is to go, and is not the first, has some pages; a member that lies."""
    crawl = await world.crawl(replace(world.spec, settings=replace(world.spec.settings, delay_s=delay_s)))
    await world.until(lambda: len(Counter(visit.client for visit in world.web.visits)) == len(world.hosts))
    await world.until(lambda: len(world.web.visits) > 40)
    _, goes, liar, *_ = world.hosts
    assert liar.swarm is not None
    return crawl, goes, liar.swarm


async def inherit(liar: SwarmNode, crawl: bytes, goes: bytes) -> None:
    """Tell all that the pages of a node are here."""
    record, key = liar.crawls.get(crawl), liar.node.ports.key
    assert record is not None
    false = bequests.made(key, crawl, liar.id, bequests.first_number(9))._replace(node_id=goes)
    told = replace(record, bequests=record.bequests | {false.name: false.packed()}, adopted={goes.hex(): liar.id.hex()})
    for member in liar.gossip.view.members:
        if member.id != liar.id:
            await liar.peers.call(member.id, TellCrawl(to_wire(told)))


def pages_of(world: Story, hosts: Iterable[SimHost]) -> Counter[str]:
    names = {host.name for host in hosts}
    ours = (visit.url for visit in world.web.visits if visit.client in names and visit.status == 200)
    return Counter(url for url in ours if not url.endswith("/robots.txt"))


async def test_pages_of_a_node_that_crashed_are_fetched_again_whoever_says_to_have_them() -> None:
    async with a_world(pages=100, nodes=4, swarm__holder_grace_s="20s") as world:
        crawl, goes, liar = await begun(world)
        await goes.crash()
        await inherit(liar, crawl, goes.id)
        await world.until(lambda: world.ended(crawl))
        left = [host for host in world.hosts if host is not goes]
        assert pages_of(world, left).keys() == world.web.truth().keys()


async def test_pages_of_a_node_that_left_are_its_heirs_and_nobody_fetches_them_again() -> None:
    async with a_world(pages=100, nodes=4, swarm__holder_grace_s="20s") as world:
        crawl, goes, liar = await begun(world)
        assert await goes.leave()
        for host in world.sim.up:
            known = None if host.swarm is None else host.swarm.crawls.get(crawl)
            assert known is not None
            heir = known.heirs[goes.id.hex()]
            assert heir in {other.id.hex() for other in world.sim.up}
        await inherit(liar, crawl, goes.id)
        await world.until(lambda: world.ended(crawl))
        known = world.hosts[0].swarm.crawls.get(crawl)  # type: ignore[union-attr]
        assert known is not None
        assert known.heirs == {goes.id.hex(): heir}, "as it was signed"
        fetched = pages_of(world, world.hosts)
        assert fetched.keys() == world.web.truth().keys()
        assert max(fetched.values()) == 1


async def test_what_a_node_fetched_after_it_came_back_is_missed_once_it_is_gone() -> None:
    """Its heir had what it had fetched before, and so passed for having all."""
    async with a_world(pages=200, nodes=4, swarm__holder_grace_s="20s") as world:
        crawl, goes, _ = await begun(world, delay_s=1.0)
        assert await goes.leave()
        await goes.start(world.hosts[:1])
        at = len(world.web.visits)
        await world.until(lambda: [visit.client for visit in world.web.visits[at:]].count(goes.name) > 10)
        await asyncio.sleep(2.0)  # the others know that these pages are done
        await goes.crash()
        await world.until(lambda: world.ended(crawl))
        bodies = {key for host in world.sim.up for key in host.bodies()}
        assert {world.spec.key_of(url) for url in world.web.truth()} <= bodies
