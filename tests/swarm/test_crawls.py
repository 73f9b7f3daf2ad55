"""Every node knows every crawl, whoever tells whom, and stops with all of them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from harness.bench import Bench
from harness.world import GONE
from storage.stores import SPEC, link

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.tasks.messages import Call, Refused, Result
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import bequests, crawl_record, redirect_targets, tasks
from dhtcrawl.storage.store.crawl_record import (
    ALIASES_MAX,
    PAUSED,
    RUNNING,
    STOPPING,
    VERSION_MAX,
    CrawlRecord,
    changed,
    fits_the_wire,
    from_wire,
    has_room,
    new_record,
    to_wire,
    with_settings,
)
from dhtcrawl.storage.store.redirect_targets import RedirectTarget
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.assignment import assignments
from dhtcrawl.swarm.calls.assignment import Lend, Recall, ReportLent
from dhtcrawl.swarm.calls.lifecycle import CRAWLS_A_LIST, VIEW_BYTES, AskProgress, AuditCrawl, ClaimPages, GetCrawl
from dhtcrawl.swarm.lifecycle import crawl_records
from dhtcrawl.swarm.lifecycle.crawl_authority import CrawlAuthority
from dhtcrawl.swarm.lifecycle.crawl_calls import CrawlCalls
from dhtcrawl.swarm.lifecycle.crawl_records import TOLD_AGAIN_S, CrawlRecords
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns
from dhtcrawl.url import URL_CHARS_MAX
from swarm.fake_peers import node, view_of


def record(number: int = 0, **fields: Any) -> CrawlRecord:
    return replace(new_record(SPEC, number.to_bytes(16, "big"), SimKey(node(1))), **fields)


def always(value: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda args: value


class FakeRun:
    """A run that ends when it is told to."""

    def __init__(self, world: CrawlsBench, known: CrawlRecord) -> None:
        self.interrupted = False
        self.held = False
        self._world, self._record = world, known

    def interrupt(self) -> None:
        self.interrupted = True
        asyncio.get_running_loop().call_later(0.1, self._world.runs.ended, self._record.crawl_id)

    def hold(self, hold: bool) -> None:
        self.held = hold

    def record(self) -> CrawlRecord:
        return self._record

    def changed(self, known: CrawlRecord) -> bool:
        self._record = known
        return bool(known.ended)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class CrawlsBench(Bench):
    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self.peers.calls["crawl_tell"] = lambda args: {}
        self.started: list[FakeRun] = []
        self.group = group
        key = SimKey(self.peers.node_id)
        authority = CrawlAuthority(key, lambda: self.peers.view, lambda _: True)
        self.crawls = CrawlRecords(self.peers, self.registry, self.committer, authority)
        self.runs = CrawlRuns(self.peers, self.crawls, self.committer, group)
        CrawlCalls(self.peers, self.committer, self.runs, 1).serve(self.registry)
        assignments.serve(self.registry, self.runs.of)

    @property
    def running(self) -> list[bytes]:
        return [crawl for crawl, _ in self.runs]

    async def start(self, known: CrawlRecord) -> Any:
        await asyncio.sleep(0.5)
        run = FakeRun(self, known)
        self.started.append(run)
        return run

    async def hear(self, name: str, args: dict[str, Any], asker: bytes = node(1)) -> Any:
        reply = self.registry.answer(asker, Call(name, args), self.group)
        reply = await reply if isinstance(reply, asyncio.Future) else reply
        return reply.value if isinstance(reply, Result) else reply


@asynccontextmanager
async def a_world() -> AsyncIterator[CrawlsBench]:
    async with asyncio.TaskGroup() as group, asyncio.timeout(1000.0):
        world = CrawlsBench(group)
        await world.runs.load(world.start)
        yield world


async def test_a_new_crawl_is_told_to_every_member_and_runs() -> None:
    async with a_world() as world:
        made = await world.crawls.publish(record())
        assert sorted(to for to, name, _ in world.peers.called) == [node(1), node(2)]
        assert from_wire(world.peers.called[0][2]["record"]) == made
        assert world.running == [made.crawl_id]


async def test_a_record_is_packed_once_for_all_members_and_who_knows_its_crawl_reads_no_seeds_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed: list[CrawlRecord] = []

    def packing(known: CrawlRecord) -> bytes:
        packed.append(known)
        return to_wire(known)

    async with a_world() as world, a_world() as other:
        with monkeypatch.context() as counting:
            counting.setattr(crawl_records, "to_wire", packing)
            made = await world.crawls.publish(record())
            paused = await world.crawls.publish(changed(made, "paused"))
        assert packed == [made, paused]
        args = world.peers.called[-1][2]
        await other.crawls.learn(made)
        fields = msgpack.unpackb(zlib.decompress(args["record"]))
        for name in ("spec", "nonce"):
            fields[name] = b"what it is does not matter"
        assert await other.hear("crawl_tell", {**args, "record": zlib.compress(msgpack.packb(fields))}) == {}
        assert other.crawls.get(made.crawl_id) == paused


async def test_an_heir_tells_every_member_once_what_the_node_that_left_has_signed() -> None:
    async with a_world() as world:
        crawl = (await world.crawls.publish(record())).crawl_id
        del world.peers.called[:]
        bequest = bequests.made(SimKey(node(7)), crawl, node(0), 5)
        assert world.crawls.left_here(crawl, node(7), bequest.packed()) == bequest
        older = bequests.made(SimKey(node(7)), crawl, node(0), 4)
        for each in (bequest, bequest, older):
            await world.crawls.bequeathed(crawl, each)
        assert sorted(to for to, name, _ in world.peers.called) == [node(1), node(2)]
        assert from_wire(world.peers.called[0][2]["record"]).heirs == {node(7).hex(): node(0).hex()}


async def test_nobody_is_an_heir_without_a_signature_or_of_another_nodes_bequest() -> None:
    async with a_world() as world:
        crawl = (await world.crawls.publish(record())).crawl_id
        made, leaver = bequests.made, SimKey(node(7))
        for bequest in (
            made(leaver, crawl, node(1), 5),
            made(leaver, bytes(16), node(0), 5),
            made(SimKey(node(1)), crawl, node(0), 5)._replace(node_id=node(7)),
        ):
            assert world.crawls.left_here(crawl, node(7), bequest.packed()) is None
        unknown = b"no such crawl..."
        assert world.crawls.left_here(unknown, node(7), made(leaver, unknown, node(0), 5).packed()) is None
        assert world.crawls.bequest_to(unknown, node(1)) is None
        await world.crawls.bequeathed(unknown, made(leaver, unknown, node(0), 5))
        assert world.crawls.get(unknown) is None


async def test_each_bequest_of_a_node_is_later_than_those_before_also_than_those_that_others_know() -> None:
    async with a_world() as world:
        crawl = (await world.crawls.publish(record())).crawl_id
        first, second = (world.crawls.bequest_to(crawl, node(n)) for n in (1, 2))
        assert first is not None
        assert second is not None
        assert bequests.first_number(1) < first.number < second.number < bequests.first_number(2)
        # The store is older than what this node has signed since.
        later = bequests.made(SimKey(node(0)), crawl, node(1), bequests.first_number(3) + 8)
        known = record(bequests={later.name: later.packed()})
        assert await world.hear("crawl_tell", {"record": to_wire(known)}) == {}
        third = world.crawls.bequest_to(crawl, node(1))
        assert third is not None
        assert third.number > later.number


async def test_a_crawl_that_is_told_of_before_the_store_was_read_starts_with_those_in_it() -> None:
    async with asyncio.TaskGroup() as group, asyncio.timeout(1000.0):
        world = CrawlsBench(group)
        await world.hear("crawl_tell", {"record": to_wire(record())})
        assert not world.started
        assert not world.running
        assert world.crawls.get(record().crawl_id) == record()
        await world.runs.load(world.start)
        assert world.running == [record().crawl_id]
        await world.hear("crawl_tell", {"record": to_wire(record(1))})
        assert len(world.started) == 2


async def test_an_ended_crawl_that_was_not_written_up_runs_once_the_node_knows_what_is_its_own() -> None:
    async with asyncio.TaskGroup() as group, asyncio.timeout(1000.0):
        world = CrawlsBench(group)
        over, written, goes_on = (record(number, version=2, ended=ended) for number, ended in enumerate(("*", "*", "")))
        for each in (over, written, goes_on):
            await world.crawls.learn(each)
        await world.runs.load(world.start, [over.crawl_id, goes_on.crawl_id, b"forgotten since."])
        assert world.running == [goes_on.crawl_id]
        world.runs.settled(None)
        await asyncio.sleep(1)
        assert world.running == [goes_on.crawl_id]
        for _ in range(2):
            world.runs.settled(world.peers.view)
            await asyncio.sleep(1)
            assert world.running == [goes_on.crawl_id, over.crawl_id]
        world.runs.ended(over.crawl_id)
        world.runs.settled(world.peers.view)
        await asyncio.sleep(1)
        assert world.running == [goes_on.crawl_id]


async def test_one_node_tells_so_many_new_crawls_at_once_and_others_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_records, "TOLD_MAX", 2)
    async with a_world() as world:
        for number in range(2):
            assert await world.hear("crawl_tell", {"record": to_wire(record(number))}) == {}
        beyond = await world.hear("crawl_tell", {"record": to_wire(record(2))})
        assert isinstance(beyond, Refused)
        assert beyond.reason == "full"
        assert await world.hear("crawl_tell", {"record": to_wire(record(1, version=2, state="paused"))}) == {}
        assert await world.hear("crawl_tell", {"record": to_wire(record(2))}, node(2)) == {}
        assert len(world.crawls.ids()) == 3
        # A swarm lives for months: whoever submits its crawls told a thousand in the end, and no node took one more.
        for number in range(3, 6):
            await asyncio.sleep(TOLD_AGAIN_S)
            assert await world.hear("crawl_tell", {"record": to_wire(record(number))}) == {}
            assert isinstance(await world.hear("crawl_tell", {"record": to_wire(record(9))}), Refused)


async def test_a_crawl_that_was_told_the_last_of_all_versions_can_still_be_stopped_and_resumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with a_world() as world, a_world() as other:
        crawl = record().crawl_id
        for each in (world, other):
            await each.crawls.learn(record(version=3))
        for _ in range(3):
            await world.hear("crawl_tell", {"record": to_wire(record(version=VERSION_MAX, state="paused"))})
        known = world.crawls.get(crawl)
        assert known is not None
        assert (known.state, world.crawls.leaps) == ("paused", 3)
        assert len(caplog.messages) == 1
        assert f"is told with version {VERSION_MAX}, far beyond what is known here" in caplog.messages[0]
        for state in (STOPPING, RUNNING):
            now = world.crawls.get(crawl)
            assert now is not None
            del world.peers.called[:]
            await world.crawls.publish(changed(now, state))
            for _ in range(4):  # a coordinator tells those that have something else in every wave
                assert await other.hear("crawl_tell", {"record": world.peers.called[0][2]["record"]}) == {}
            heard = other.crawls.get(crawl)
            assert heard is not None
            assert heard.state == state


async def test_a_newcomer_pulls_a_crawl_that_was_changed_thousands_of_times() -> None:
    async with a_world() as world:
        told = record(version=4_500, state="paused")
        world.peers.calls["crawl_list"] = always({"crawls": [[told.crawl_id, told.digest]]})
        world.peers.calls["crawl_get"] = always({"record": to_wire(told)})
        assert await world.crawls.pull(node(1))
        assert world.crawls.get(told.crawl_id) == told


async def test_who_catches_up_learns_the_targets_that_a_member_knows_and_hears_who_is_silent() -> None:
    async with a_world() as world:
        crawl = (await world.crawls.learn(record())).crawl_id
        target = redirect_targets.made(SimKey(node(2)), crawl, SPEC.seeds[0], "http://b.example/")
        told = record(targets={target.name: target.packed()})
        world.peers.calls["crawl_list"] = always({"crawls": [[crawl, told.digest]]})
        world.peers.calls["crawl_get"] = lambda args: {"record": to_wire(told)}
        assert await world.crawls.catch_up(crawl)
        assert world.crawls.get(crawl) == told
        del world.peers.called[:]
        assert await world.crawls.catch_up(crawl)
        assert [name for _, name, _ in world.peers.called] == ["crawl_list"] * 2, "there is nothing to learn"
        world.peers.calls["crawl_list"] = always({"crawls": []})
        assert await world.crawls.catch_up(crawl), "one that does not know the crawl has answered"
        world.peers.calls["crawl_list"] = lambda args: GONE
        assert not await world.crawls.catch_up(crawl)


async def test_a_record_has_room_for_an_alias_until_it_is_nearly_full() -> None:
    rng = random.Random(1)
    urls: list[str] = []
    for step in (500, 50, 5):
        while fits_the_wire(record(author=None, aliases=sorted(urls))):
            urls += [f"http://b.example/{rng.randbytes(300).hex()}" for _ in range(step)]
        del urls[-step:]
    async with a_world() as world:
        crawl = (await world.crawls.learn(record(author=None, aliases=sorted(urls[:-300])))).crawl_id
        assert world.crawls.has_room(crawl)
        await world.crawls.learn(record(author=None, aliases=sorted(urls[:-150])))
        assert not world.crawls.has_room(crawl)


async def test_targets_that_a_node_does_not_believe_take_no_room_from_those_that_it_does() -> None:
    rng, urls, packed = random.Random(1), list[str](), dict[str, bytes]()
    while has_room(full := record(targets=packed), 2 * URL_CHARS_MAX):
        for _ in range(20):
            urls.append(f"http://b.example/{rng.randbytes(400).hex()}")
            target = RedirectTarget(SPEC.seeds[0], urls[-1], rng.randbytes(20), bytes(32), bytes(64))
            packed[target.name] = target.packed()
    async with a_world() as world:
        crawl = (await world.crawls.learn(full)).crawl_id
        assert world.crawls.has_room(crawl)
        await world.crawls.learn(replace(full, aliases=urls))
        assert not world.crawls.has_room(crawl)


async def test_a_record_with_as_many_aliases_or_targets_as_it_may_have_has_no_room_for_another() -> None:
    """A task died as out of scope then, whose URL a further seed redirects to."""
    urls = [f"http://b.example/{number:04}" for number in range(ALIASES_MAX)]
    targets = [RedirectTarget(url, urls[0], bytes(20), bytes(32), bytes(64)) for url in urls]
    packed = {target.name: target.packed() for target in targets}
    async with a_world() as world:
        crawl = (await world.crawls.learn(record(aliases=urls[1:]))).crawl_id
        assert world.crawls.has_room(crawl)
        await world.crawls.learn(record(aliases=urls))
        assert not world.crawls.has_room(crawl)
    async with a_world() as world:
        await world.crawls.learn(record(targets=packed))
        assert world.crawls.has_room(crawl), "it believes none of them"
        await world.crawls.learn(record(targets=packed, aliases=urls[:1]))
        assert not world.crawls.has_room(crawl)


async def test_two_changes_that_together_could_not_be_told_any_more_are_not_both_learned() -> None:
    """Each is valid. Nodes that have neither could not learn the crawl at all if both were."""
    rng = random.Random(1)
    urls = [f"http://b.example/{rng.randbytes(300).hex()}" for _ in range(4_000)]
    halves = [record(author=None, aliases=sorted(urls[at::2])) for at in (0, 1)]
    assert all(map(fits_the_wire, halves))
    async with a_world() as world:
        await world.crawls.learn(record(author=None))
        await asyncio.gather(*(world.hear("crawl_tell", {"record": to_wire(half)}) for half in halves))
        known = world.crawls.get(record().crawl_id)
        assert known in halves
        await world.hear("crawl_tell", {"record": to_wire(replace(halves[1], version=1, state="paused"))})
        await world.hear("crawl_tell", {"record": to_wire(record(author=None, version=2, state="paused"))})
        assert world.crawls.get(record().crawl_id) == replace(known, version=2, state="paused")


def urls_of(count: int, size: int, seed: int = 1) -> list[str]:
    """URLs that take little more than `size` bytes of a record each."""
    rng = random.Random(seed)
    return sorted(f"http://b.example/{rng.randbytes(size).hex()}" for _ in range(count))


@pytest.fixture
def short_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_record, "WIRE_BYTES_MAX", 100 << 10)


@pytest.mark.usefixtures("short_records")
async def test_a_record_that_is_full_takes_a_stop_and_an_end_all_the_same() -> None:
    rng = random.Random(2)
    totals = {f"counter_{number}": rng.getrandbits(53) for number in range(100)}
    async with a_world() as world:
        crawl = (await world.crawls.learn(record(author=None, aliases=urls_of(19, 4_000)))).crawl_id
        for url in urls_of(60, 300, seed=2):
            await world.hear("crawl_tell", {"record": to_wire(record(author=None, aliases=[url]))})
        full = world.crawls.get(crawl)
        assert full is not None
        assert 19 < len(full.aliases) < 79
        await world.crawls.stop(crawl, "stopped")
        stopping = world.crawls.get(crawl)
        assert stopping is not None
        assert (stopping.state, stopping.cause, stopping.aliases) == (STOPPING, "stopped", full.aliases)
        over = await world.crawls.publish(changed(stopping, STOPPING, cause="stopped", ended="stopped", totals=totals))
        assert (over.ended, over.totals, over.aliases) == ("stopped", totals, full.aliases)
        assert fits_the_wire(over)


@pytest.mark.usefixtures("short_records")
async def test_what_two_nodes_add_at_once_to_a_record_that_becomes_full_both_have_in_the_end() -> None:
    begun = record(author=None, aliases=urls_of(7, 4_000))
    more = iter(urls_of(24, 2_800, seed=2))
    async with a_world() as one, a_world() as other:
        for world in (one, other):
            await world.crawls.learn(begun)
        for _ in range(12):
            told = []
            for world in (one, other):
                await world.crawls.announce(begun.crawl_id, SPEC.seeds[0], next(more))
                told.append(world.crawls.get(begun.crawl_id))
            for world, news in zip((other, one), told, strict=True):
                assert news is not None
                await world.hear("crawl_tell", {"record": to_wire(news)})
        records = [world.crawls.get(begun.crawl_id) for world in (one, other)]
        assert records[0] == records[1] != begun
        assert not one.crawls.has_room(begun.crawl_id)


async def test_the_longest_delay_is_that_of_the_crawls_that_have_not_ended() -> None:
    async with a_world() as world:
        assert world.crawls.delay_s == 0.0
        slow = record(1)
        await world.crawls.learn(record())
        await world.crawls.learn(with_settings(slow, replace(slow.settings, delay_s=300.0)))
        assert world.crawls.delay_s == 300.0
        await world.crawls.learn(replace(slow, version=1, ended="stopped"))
        assert world.crawls.delay_s == record().settings.delay_s


async def test_depths_count_in_records_that_come_before_the_crawl_is_started() -> None:
    async with asyncio.TaskGroup() as group:
        world = CrawlsBench(group)
        for depth, ended, counts in ((3, "", True), (-1, "", False), (3, "complete", False)):
            spec = make_spec(["a.example"], CrawlSettings(depth=depth))
            known = CrawlRecord(spec.crawl_id(ended.encode()), spec, ended.encode(), ended=ended)
            await world.crawls.learn(known)
            terms = world.runs.terms(known.crawl_id, itertools.count())
            assert terms is not None
            assert terms.depth_matters == counts


async def test_a_crawl_that_two_tell_of_at_once_runs_once() -> None:
    async with a_world() as world:
        args = {"record": to_wire(record())}
        await asyncio.gather(world.hear("crawl_tell", args), world.hear("crawl_tell", args))
        assert len(world.started) == 1


async def test_what_is_told_while_a_run_is_made_reaches_it() -> None:
    async with a_world() as world:
        known = record()
        async with asyncio.TaskGroup() as group:
            group.create_task(world.crawls.learn(known))
            await asyncio.sleep(0.1)
            group.create_task(world.crawls.learn(replace(known, aliases=["http://b.example/"])))
        assert world.started[0].record().aliases == ["http://b.example/"]


async def test_participants_are_told_by_their_places_among_the_members_that_we_see_and_no_others() -> None:
    async with asyncio.TaskGroup() as group:
        world = CrawlsBench(group)
        await world.hear("crawl_tell", {"record": to_wire(record())})
        ids, others = world.peers.view.ids, view_of([1, 2, 3])
        names = {view: replace(record(), participants=[view[1].hex()]) for view in (ids, others.ids)}
        told = to_wire(names[others.ids], record(), others.ids)
        for fingerprint, wrong in (
            (others.fingerprint[:VIEW_BYTES], "record"),
            (None, "view"),
            (b"", "view"),
            (world.peers.view.fingerprint, "view"),
        ):
            args = {"crawl": record().crawl_id, "record": told, "view": fingerprint}
            assert await world.hear("crawl_tell", args) == Refused("bad-args", wrong)
        args = {"crawl": record().crawl_id, "record": to_wire(names[ids], record(), ids)}
        assert await world.hear("crawl_tell", args) == Refused("bad-args", "record"), "of no view at all"
        assert world.crawls.get(record().crawl_id) == record()
        fingerprint = world.peers.view.fingerprint[:VIEW_BYTES]
        assert await world.hear("crawl_tell", {**args, "view": fingerprint}) == {}
        assert world.crawls.get(record().crawl_id) == names[ids]
        await world.runs.stop()


async def test_a_node_that_joins_once_more_while_it_leaves_starts_nothing() -> None:
    """What it fetched then would not be among the pages that its heir has taken."""
    async with a_world() as world:
        await world.crawls.publish(record())
        world.runs.hold(True)  # it was taken for dead
        world.runs.start_no_more()  # it leaves
        world.runs.hold(False)  # it has joined
        await world.crawls.publish(record(1))
        assert [run.held for run in world.started] == [True, True]


async def test_a_crawl_that_has_ended_does_not_run() -> None:
    async with a_world() as world:
        await world.crawls.learn(record(ended="complete"))
        assert world.started == []
        assert world.crawls.get(record().crawl_id) is not None


async def test_a_crawl_that_goes_on_while_its_last_run_writes_what_it_has_is_begun_again_once() -> None:
    async with a_world() as world:
        crawl = record().crawl_id
        await world.crawls.learn(record())
        await world.crawls.learn(record(version=1, ended="page limit"))
        await world.crawls.learn(record(version=2))
        assert len(world.started) == 1, "the first one is not over"
        world.runs.ended(crawl)
        await asyncio.sleep(1.0)
        assert len(world.started) == 2
        world.runs.ended(crawl)
        await asyncio.sleep(1.0)
        assert len(world.started) == 2, "a run that ends by itself is not begun again"


async def test_a_crawl_that_ended_while_its_run_was_made_and_goes_on_is_begun_again() -> None:
    async with a_world() as world:
        making = world.group.create_task(world.crawls.learn(record()))
        await asyncio.sleep(0.2)
        await world.crawls.learn(record(version=1, ended="complete"))
        await making
        await world.crawls.learn(record(version=2))
        world.runs.ended(record().crawl_id)
        await asyncio.sleep(1.0)
        assert len(world.started) == 2


async def test_a_node_that_reaches_a_limit_stops_a_crawl_that_runs_and_no_other() -> None:
    async with a_world() as world:
        crawl = record().crawl_id
        for state, cause in ((RUNNING, "disk limit"), (PAUSED, "")):
            version = world.crawls.get(crawl).version + 1 if world.crawls.get(crawl) else 0  # type: ignore[union-attr]
            await world.crawls.learn(record(version=version, state=state))
            await world.crawls.stop(crawl, "disk limit")
            known = world.crawls.get(crawl)
            assert known is not None
            assert (known.state, known.cause) == (STOPPING if cause else PAUSED, cause)
        await world.runs.stop()


async def test_stopping_waits_for_a_run_that_is_just_being_made() -> None:
    async with a_world() as world:
        learning = world.group.create_task(world.crawls.learn(record()))
        await asyncio.sleep(0.2)
        await world.runs.stop()
        await learning
        assert [run.interrupted for run in world.started] == [True]
        assert world.running == []


async def test_a_crawl_that_is_heard_of_when_the_node_stops_is_noted_and_not_begun() -> None:
    async with a_world() as world:
        await world.runs.stop()
        await world.hear("crawl_tell", {"record": to_wire(record())})
        assert world.started == []
        assert world.crawls.get(record().crawl_id) is not None


async def test_a_crawl_from_before_authors_is_taken_from_a_neighbour_that_is_met_and_from_nobody_who_tells_it() -> None:
    async with a_world() as world:
        old = CrawlRecord(SPEC.crawl_id(bytes(16)), SPEC, bytes(16))
        forged = replace(record(1), author=record(2).author)
        known = {made.crawl_id: made for made in (old, forged)}
        world.peers.calls["crawl_list"] = always({"crawls": [[crawl, known[crawl].digest] for crawl in sorted(known)]})
        world.peers.calls["crawl_get"] = lambda args: {"record": to_wire(known[args["crawl"]])}
        told = await world.hear("crawl_tell", {"record": to_wire(old)})
        assert isinstance(told, Refused)
        assert not await world.crawls.catch_up_with(node(1), old.crawl_id), "it is not met"
        assert world.crawls.ids() == []
        assert await world.crawls.pull(node(1))
        assert world.crawls.ids() == [old.crawl_id]


async def test_a_newcomer_pulls_all_crawls_of_a_node_page_by_page() -> None:
    async with a_world() as world:
        theirs = {made.crawl_id: made for made in (record(n, ended="complete") for n in range(CRAWLS_A_LIST + 5))}

        def listed(args: dict[str, Any]) -> Any:
            found = sorted(crawl for crawl in theirs if crawl > args["after"])[:CRAWLS_A_LIST]
            return {"crawls": tuple((crawl, theirs[crawl].digest) for crawl in found)}

        world.peers.calls |= {
            "crawl_list": listed,
            "crawl_get": lambda args: {"record": to_wire(theirs[args["crawl"]])},
        }
        assert await world.crawls.pull(node(1))
        assert {known.crawl_id for known in world.crawls} == set(theirs)
        asked = len(world.peers.called)
        assert await world.crawls.pull(node(1))
        assert len(world.peers.called) == asked + 2, "what is known is not asked for again"


async def test_a_list_that_makes_no_sense_or_never_ends_is_no_answer() -> None:
    async with a_world() as world:
        page = tuple((bytes([n % 256, n // 256]) + bytes(14), b"digest!!") for n in range(CRAWLS_A_LIST))
        world.peers.calls["crawl_get"] = lambda args: Refused("unknown-crawl")
        for crawls in (3, ((b"short", b""),), page):
            world.peers.calls["crawl_list"] = always({"crawls": crawls})
            assert not await world.crawls.pull(node(1))


async def test_of_a_list_without_an_end_no_more_crawls_are_taken_than_a_node_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crawl_records, "CRAWLS_MAX", CRAWLS_A_LIST + 5)
    async with a_world() as world:
        theirs = sorted((record(n, ended="complete") for n in range(8)), key=lambda made: made.crawl_id)
        await world.crawls.learn(theirs[0])

        def listed(args: dict[str, Any]) -> Any:
            after = int.from_bytes(args["after"], "big")
            ids = [(after + n).to_bytes(16, "big") for n in range(1, CRAWLS_A_LIST + 1)]
            return {"crawls": [(crawl, b"digest!!") for crawl in ids]}

        world.peers.calls |= {"crawl_list": listed, "crawl_get": lambda args: Refused("unknown-crawl")}
        assert await world.crawls.pull(node(1))
        assert len(world.peers.called) < 4 * CRAWLS_A_LIST
        monkeypatch.setattr(crawl_records, "CRAWLS_MAX", 3)
        later = replace(theirs[0], participants=["ab" * 20])
        known = {made.crawl_id: made for made in (later, *theirs[1:])}
        world.peers.calls["crawl_list"] = always({"crawls": [[crawl, known[crawl].digest] for crawl in sorted(known)]})
        world.peers.calls["crawl_get"] = lambda args: {"record": to_wire(known[args["crawl"]])}
        assert await world.crawls.pull(node(1))
        assert world.crawls.ids() == [made.crawl_id for made in theirs[:3]]
        assert world.crawls.get(later.crawl_id) == later, "what is known is brought in step all the same"


async def test_who_is_asked_for_a_crawl_and_answers_with_another_has_told_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a member could tell any number of crawls, past the bounds of what one may tell and a node keeps."""
    monkeypatch.setattr(crawl_records, "CRAWLS_MAX", 1)
    async with a_world() as world:
        known = await world.crawls.learn(record())
        new = (record(number, version=9_999_999) for number in itertools.count(1))
        old = CrawlRecord(SPEC.crawl_id(bytes(16)), SPEC, bytes(16))
        world.peers.calls["crawl_list"] = always({"crawls": [[known.crawl_id, b"digest!!"]]})
        for answer in (lambda args: {"record": to_wire(next(new))}, lambda args: {"record": to_wire(old)}):
            world.peers.calls["crawl_get"] = answer
            assert not await world.crawls.catch_up_with(node(1), known.crawl_id)
            assert await world.crawls.pull(node(1))
            assert world.crawls.ids() == [known.crawl_id]
        assert sum(name == "crawl_get" for _, name, _ in world.peers.called) == 4, "once for each list"


async def test_whom_a_record_names_is_known_and_everybody_may_be_once_it_has_room_for_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crawl_records, "PARTICIPANTS_MAX", 2)
    leaver, heir = SimKey(node(5)), node(6)
    left = bequests.made(leaver, record().crawl_id, heir, 1)
    one, two, other = ("ab" * 20, "cd" * 20, "ef" * 20)
    async with a_world() as world:
        known = await world.crawls.learn(record(participants=[one], bequests={left.name: left.packed()}))
        named = [one, leaver.node_id.hex(), heir.hex(), two]
        assert [world.crawls.is_named(known.crawl_id, each) for each in named] == [True, True, True, False]
        await world.crawls.learn(replace(known, participants=[one, two]))
        assert [world.crawls.is_named(known.crawl_id, each) for each in (two, other)] == [True, True]


@pytest.mark.parametrize("fields", [{"ended": "complete"}, {"state": PAUSED}])
async def test_a_limit_stops_a_crawl_that_runs_and_no_other(fields: dict[str, str]) -> None:
    async with a_world() as world:
        over, runs = await world.crawls.learn(record(1, **fields)), await world.crawls.learn(record(2))
        for each in (over, runs):
            await world.crawls.stop(each.crawl_id, "disk limit")
        assert world.crawls.get(over.crawl_id) == over
        stopped = world.crawls.get(runs.crawl_id)
        assert stopped is not None
        assert (stopped.state, stopped.cause) == (STOPPING, "disk limit")


async def test_all_members_have_answered_only_if_each_has() -> None:
    async with a_world() as world:
        known = await world.crawls.learn(record())
        world.peers.calls["crawl_list"] = always({"crawls": [[known.crawl_id, known.digest]]})
        assert await world.crawls.catch_up(known.crawl_id)
        answers = itertools.cycle([{"crawls": [[known.crawl_id, known.digest]]}, GONE])
        world.peers.calls["crawl_list"] = lambda args: next(answers)  # type: ignore[assignment, return-value]
        assert not await world.crawls.catch_up(known.crawl_id)


async def test_calls_with_arguments_that_make_no_sense_are_refused() -> None:
    async with a_world() as world:
        bad: list[dict[str, Any]] = [{}, {"crawl": 3, "keys": (b"x",)}, {"record": b"nonsense"}, {"after": 7}]
        for name in world.registry.served():
            for args in bad:
                reply = await world.hear(name, args)
                assert isinstance(reply, Refused), (name, args)
                assert reply.reason == "bad-args"


async def test_calls_about_a_crawl_that_is_not_known_are_refused_as_such() -> None:
    async with a_world() as world:
        for args in (
            GetCrawl(bytes(16)), AskProgress(bytes(16)), AuditCrawl(bytes(16), bytes(16)), ClaimPages(bytes(16), 1),
            Lend(bytes(16), (), (), {}), Recall(bytes(16), ()), ReportLent(bytes(16), ()),
        ):  # fmt: skip
            assert await world.hear(args.terms.name, args.to_map()) == Refused("unknown-crawl")


# A crawl that has ended, and work that is left here


async def ended_with(world: CrawlsBench, ended: str, *, owner: int = 0, number: int = 0) -> CrawlRecord:
    """A crawl that has ended, though a task that `owner` owns is queued in the store here."""
    known = record(number, ended=ended, version=3)
    links = [link(f"http://h{number}.example/") for number in range(60)]
    queued = [each for each in links if world.peers.view.owner(placement(each.key)).id == node(owner)]  # type: ignore[union-attr]

    def write(txn: Txn) -> None:
        tasks.accept(txn, known.crawl_id, queued[:1], itertools.count(), depth_matters=False)

    await world.committer.submit(write)
    await world.crawls.learn(known)
    assert world.started == []
    return known


async def test_a_crawl_said_to_be_complete_goes_on_when_a_node_comes_back_with_work() -> None:
    async with a_world() as world:
        known = await ended_with(world, "complete")
        world.runs.settled(world.peers.view)
        await asyncio.sleep(1)
        now = world.crawls.get(known.crawl_id)
        assert now is not None
        assert (now.ended, now.state, now.version) == ("", "running", 4)
        assert len(world.started) == 1
        told = {to for to, name, _ in world.peers.called if name == "crawl_tell"}
        assert told == {node(1), node(2)}


async def test_an_end_that_a_user_or_a_limit_wanted_stays_one() -> None:
    async with a_world() as world:
        for number, ended in enumerate(("stopped", "page limit", "time limit")):
            known = await ended_with(world, ended, number=number)
            world.runs.settled(world.peers.view)
            await asyncio.sleep(1)
            assert world.crawls.get(known.crawl_id) == known


async def test_work_that_somebody_else_owns_is_not_ours_to_reopen_a_crawl_for() -> None:
    async with a_world() as world:
        known = await ended_with(world, "complete", owner=1)
        world.runs.settled(world.peers.view)
        await asyncio.sleep(1)
        assert world.crawls.get(known.crawl_id) == known


async def test_while_we_do_not_know_what_is_ours_nothing_is_reopened() -> None:
    async with a_world() as world:
        known = await ended_with(world, "complete")
        world.runs.settled(None)
        await asyncio.sleep(1)
        assert world.crawls.get(known.crawl_id) == known


async def test_a_run_that_is_being_made_is_waited_for() -> None:
    async with a_world() as world:
        assert await world.runs.once_made(record().crawl_id) is None
        made = world.group.create_task(world.crawls.publish(record()))
        await asyncio.sleep(0.1)
        run = await world.runs.once_made(record().crawl_id)
        assert run is world.started[0]
        await made
