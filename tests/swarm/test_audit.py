"""A link that no node has a record of is found before a crawl is said to be complete (I10)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from storage.stores import CRAWL, SPEC

from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.swarm.calls.lifecycle import AuditKeys, AuditResult, MissingKeys
from dhtcrawl.swarm.lifecycle import audit as looking
from dhtcrawl.swarm.lifecycle.audit import CALLS_AT_ONCE, KEYS_A_CALL, PAGES_A_READ, AskedAudit, Auditor, CrawlAudit
from swarm.fake_peers import FakePeers, node, view_of
from swarm.sync_swarm import copy

PAGES = [copy(n).key for n in range(1_000, 1_003)]
LINKS = [copy(n).key for n in range(9)]


async def audit(
    answer: Any, *, pages: dict[bytes, list[bytes]], seeds: list[bytes] | None = None
) -> tuple[int, dict[bytes, set[bytes]], FakePeers]:
    engine, peers = MemoryEngine(), FakePeers(view_of([1, 2]))
    engine.write({keys.LINKS + CRAWL + page: b"".join(links) for page, links in pages.items()}, sync=False)
    peers.calls["audit_keys"] = answer
    resent: dict[bytes, set[bytes]] = {}
    auditor = Auditor(peers, LoopCommitter(GroupRunner(engine, sync=False)))
    return await auditor.audit(CRAWL, 20, seeds or [], resent.__setitem__), resent, peers


def lacking(*lost: bytes) -> Any:
    return lambda args: {"missing": tuple(key for key in args["keys"] if key in lost)}


THREE = {page: LINKS[3 * n : 3 * n + 3] for n, page in enumerate(PAGES)}


async def test_where_every_link_has_a_record_nothing_is_missing() -> None:
    assert (await audit(lacking(), pages=THREE))[:2] == (0, {})


async def test_a_page_with_a_lost_link_sends_its_links_again_and_is_told_which_are_lost() -> None:
    """Or it would take them for known: an owner acked them before it lost them."""
    assert (await audit(lacking(LINKS[4]), pages=THREE))[:2] == (1, {PAGES[1]: {LINKS[4]}})


async def test_a_lost_seed_counts() -> None:
    assert (await audit(lacking(LINKS[0]), pages={}, seeds=LINKS[:2]))[:2] == (1, {})


async def test_an_owner_that_does_not_answer_may_have_lost_everything() -> None:
    gone = Failure(FailureKind.TIMEOUT, "no answer")
    missing, resent, _ = await audit(lambda args: gone, pages=THREE)
    assert (missing, sorted(resent)) == (9, sorted(PAGES))


async def test_an_answer_that_makes_no_sense_is_none() -> None:
    assert (await audit(lambda args: {"missing": 7}, pages=THREE))[0] == 9
    assert (await audit(lambda args: {"missing": (b"n" * 20,)}, pages=THREE))[0] == 9


async def test_each_owner_is_asked_for_its_keys_and_never_for_too_many_at_once() -> None:
    many = [copy(n).key for n in range(3 * KEYS_A_CALL)]
    _, _, peers = await audit(lacking(), pages={PAGES[0]: many})
    assert {to for to, _, _ in peers.called} == {node(1), node(2)}
    assert sum(len(args["keys"]) for _, _, args in peers.called) == len(many)
    assert max(len(args["keys"]) for _, _, args in peers.called) <= KEYS_A_CALL


async def test_all_pages_are_looked_at_however_many_there_are() -> None:
    pages = {copy(n).key: [copy(n).key] for n in range(PAGES_A_READ + 20)}
    _, _, peers = await audit(lacking(), pages=pages)
    assert sum(len(args["keys"]) for _, _, args in peers.called) == len(pages)


async def test_a_lost_link_is_sent_again_by_all_pages_that_have_it_and_a_found_one_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looking, "PAGES_A_READ", 1)
    same = dict.fromkeys(PAGES, LINKS[:2])
    missing, resent, peers = await audit(lacking(LINKS[1]), pages=same)
    assert (missing, resent) == (3, {each: {LINKS[1]} for each in PAGES})
    asked = [key for _, _, args in peers.called for key in args["keys"]]
    assert (asked.count(LINKS[0]), asked.count(LINKS[1])) == (1, 3)
    monkeypatch.setattr(looking, "KNOWN_MAX", 0)
    _, _, peers = await audit(lacking(), pages=same)
    assert len([key for _, _, args in peers.called for key in args["keys"]]) == 6, "no more are remembered"


class Slow:
    """An audit that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0
        self.end: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

    async def run(self) -> tuple[int, int]:
        self.begun += 1
        try:
            return await asyncio.shield(self.end)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def test_an_audit_that_takes_long_is_asked_after_and_its_result_is_kept_where_nothing_was_missing() -> None:
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        asked = AskedAudit(slow.run, 3.0)
        assert await asked.result(b"still", group) == AuditResult(running=True)
        slow.end.set_result((0, 0))
        for _ in range(2):
            assert await asked.result(b"still", group) == AuditResult(0, 0)
    assert (slow.begun, slow.cancelled) == (1, 0)


@pytest.mark.parametrize("found", [(2, 0), (0, 1), (2, 1)])
async def test_an_audit_that_found_something_is_made_anew_by_the_next_call(found: tuple[int, int]) -> None:
    slow = Slow()
    slow.end.set_result(found)
    async with asyncio.TaskGroup() as group:
        asked = AskedAudit(slow.run, 3.0)
        for _ in range(2):
            assert await asked.result(b"still", group) == AuditResult(*found)
    assert slow.begun == 2


async def test_an_audit_of_another_state_ends_the_one_that_runs() -> None:
    slow = Slow()
    async with asyncio.TaskGroup() as group:
        asked = AskedAudit(slow.run, 3.0)
        first = group.create_task(asked.result(b"still", group))
        await asyncio.sleep(1.0)
        assert await asked.result(b"other", group) == AuditResult(running=True)
        assert await first == AuditResult(running=True), "who asked for it does not take it for audited"
        assert (slow.begun, slow.cancelled) == (2, 1)
        asked.cancel()
    assert slow.cancelled == 2


async def test_the_handler_names_what_has_no_record_here() -> None:
    engine = MemoryEngine()
    engine.write({keys.TASK + CRAWL + copy(1).key: copy(1).task.pack()}, sync=False)
    auditor = Auditor(FakePeers(view_of([0])), LoopCommitter(GroupRunner(engine, sync=False)))
    found = await auditor.on_audit_keys(node(1), AuditKeys(CRAWL, (copy(1).key, copy(2).key)))
    assert found == MissingKeys((copy(2).key,))


class Sends:
    """What of a corridor an audit uses."""

    def __init__(self) -> None:
        self.lost_of: dict[bytes, set[bytes]] = {}

    def lost(self, page: bytes, links: set[bytes]) -> None:
        self.lost_of[page] = links


async def settled(_: bytes) -> bool:
    return True


async def not_settled(_: bytes) -> bool:
    return False


async def play_crawl(
    doubt: bool, *views: list[int], scope_settled: Callable[[bytes], Awaitable[bool]] = settled
) -> tuple[tuple[int, int], Sends, int]:
    """The audit of a node whose view changed like that; and how many calls it made."""
    engine, peers, sends = MemoryEngine(), FakePeers(view_of(views[-1])), Sends()
    engine.write({keys.LINKS + CRAWL + PAGES[0]: b"".join(LINKS)}, sync=False)
    peers.calls["audit_keys"] = lacking(LINKS[3])
    auditor = Auditor(peers, LoopCommitter(GroupRunner(engine, sync=False)))
    record = CrawlRecord(CRAWL, SPEC, b"")
    audit = CrawlAudit(auditor, record, cast(Any, sends), scope_settled, doubt=doubt)
    for before, view in itertools.pairwise(views):
        audit.view_changed(view_of(before), view_of(view))
    return await audit.run(), sends, len(peers.called)


async def test_a_node_that_nobody_has_left_has_nothing_to_look_for() -> None:
    assert (await play_crawl(False, [1, 2], [1, 2, 3]))[0::2] == ((0, 0), 0)


@pytest.mark.parametrize(
    ("doubt", "views"), [(False, ([1, 2, 3], [1, 2])), (False, ([1, 2, 3], [1, 2], [1, 2, 4])), (True, ([1, 2],))]
)
async def test_it_looks_once_an_owner_has_gone_or_it_was_away_itself(doubt: bool, views: tuple[list[int], ...]) -> None:
    (missing, resent), sends, calls = await play_crawl(doubt, *views)
    assert (missing, resent, sends.lost_of) == (1, 1, {PAGES[0]: {LINKS[3]}})
    assert calls > 0


async def test_while_the_scope_is_not_settled_something_may_be_missing() -> None:
    assert (await play_crawl(False, [1, 2], scope_settled=not_settled))[0] == (1, 0)
    assert (await play_crawl(True, [1, 2], scope_settled=not_settled))[0] == (2, 1)


async def test_only_so_many_are_asked_at_the_same_moment() -> None:
    asked: list[int] = []
    now = 0

    class Slow(FakePeers):
        async def call(self, *args: Any, **options: Any) -> Any:
            nonlocal now
            now += 1
            asked.append(now)
            await asyncio.sleep(1)
            now -= 1
            return MissingKeys(())

    many = [Member(bytes([2 * n]) + bytes(19), ("10.0.0.1", n + 1)) for n in range(4 * CALLS_AT_ONCE)]
    peers = Slow(View(many))
    engine = MemoryEngine()
    engine.write({keys.LINKS + CRAWL + PAGES[0]: b"".join(copy(n).key for n in range(2_000))}, sync=False)
    auditor = Auditor(peers, LoopCommitter(GroupRunner(engine, sync=False)))
    result = await auditor.audit(CRAWL, 20, [], lambda page, links: None)
    assert result == 0
    assert max(asked) == CALLS_AT_ONCE < len(asked)
