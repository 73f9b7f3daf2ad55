"""A page is done when the last of its links is with its owner, also those of a shorter way (I3)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.bench import Bench
from storage.stores import CRAWL, SPEC

from dhtcrawl.crawl.copy_barrier import CopyBarrier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.resend_queue import ResendQueue
from dhtcrawl.crawl.round_transaction import RoundTransaction
from dhtcrawl.crawl.round_writer import RoundWriter
from dhtcrawl.crawl.rounds import CrawlCounters, Fetched, Kill, Relinked
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.ownership import NOTHING
from dhtcrawl.storage.store.records import Place, SkipReason, State, Task, unpack_task
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import FetchedPage, Link

PAGE = SPEC.key_of("http://a/")
FIRST, SECOND = (Link(SPEC.key_of(url), url, 1, "http://a/", 0) for url in ("http://a/1", "http://a/2"))


class RoundBench(Bench):
    """A node that owns nothing: its links go out and are acked, and its pages are copied, when a test says so."""

    def __init__(self, *, copies: int) -> None:
        super().__init__()
        self.sent: list[Link] = []
        self.room = 1_000  # for links
        self.buried: list[TaskReplica] = []
        self.copying: list[Callable[[bytes, tuple[bytes, ...]], None]] = []
        together = SimpleNamespace(
            alone=False,
            owns=lambda key: False,
            owned=lambda keys: [],
            mine=lambda key: False,
            awaited=lambda key: False,
            snapshot=lambda _: NOTHING,
            send=self._send,
            keep=self._keep,
            when_kept=lambda key, then: False,
            copy=self._copy,
        )
        place = Place("ab" * 20, "a.warc.gz", 0, 9)
        services: Any = SimpleNamespace(
            committer=self.committer,
            ports=SimpleNamespace(ownership=together, replication=together, record=together),
            archive=SimpleNamespace(append=lambda item: (place, "sha1:0")),
        )
        nothing: Callable[..., None] = lambda *_: None  # noqa: E731
        self.told: list[str] = []  # what matters of what the listener hears, in its order
        listener: Any = SimpleNamespace(
            written=lambda _: self.told.append("written"), spared=lambda: self.told.append("spared"),
            expected=nothing, queued=nothing, settled=nothing,
        )  # fmt: skip
        self.next = NextRound(Outbox(depth_matters=True), CopyBarrier(copies - 1), [], ResendQueue())
        self.writer = RoundWriter(
            services,
            self.next,
            RoundTransaction(CRAWL, services.archive, itertools.count(1), True, copies - 1),
            CrawlCounters(),
            listener,
            cast(Any, SimpleNamespace(append=nothing, shown=True)),
        )

    def _send(self, links: Sequence[Link]) -> list[Link]:
        taken = self.room - len(self.sent)
        self.sent += links[:taken]
        return list(links[taken:])

    @property
    def resent(self) -> int:
        return self.next.resends.pending

    def _copy(self, pages: Sequence[bytes], then: Callable[[bytes, tuple[bytes, ...]], None], *, again: bool) -> None:
        self.copying += [then] * len(pages)

    def _keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False) -> None:
        self.buried += copies if over else ()
        then()

    def arrives(self, links: Iterable[Link], url: str = "http://a/") -> None:
        """A page, found at depth 3."""
        found = Task(url, 3, 1, "")
        self.engine.write({keys.TASK + CRAWL + SPEC.key_of(url): found.pack()}, sync=False)
        fields = {"url": url, "status": 200, "depth": 3, "referrer": None}
        body: Any = SimpleNamespace(size=9, spooled=False, close=lambda: None)
        page = FetchedPage(SPEC.key_of(url), 3, fields, b"", [])
        self.next.page(Fetched("a", cast(Any, None), body, page), list(links), None)

    def copied(self) -> None:
        """All copies that were asked for are there."""
        copying, self.copying = self.copying, []
        for then in copying:
            then(PAGE, (b"x" * 20,))

    @property
    def is_done(self) -> bool:
        value = self.engine.get(keys.TASK + CRAWL + PAGE)
        assert value is not None
        return unpack_task(value).state == State.DONE


@asynccontextmanager
async def a_world(*, copies: int = 1) -> AsyncIterator[RoundBench]:
    async with asyncio.TaskGroup() as group:
        world = RoundBench(copies=copies)
        running = group.create_task(world.writer.run())
        yield world
        running.cancel()


async def a_moment() -> None:
    await asyncio.sleep(0.1)


async def test_links_that_are_refused_stay_in_the_outbox_until_there_is_room() -> None:
    async with a_world() as world:
        world.room = 1
        world.arrives([FIRST, SECOND])
        await a_moment()
        assert world.sent == [FIRST]
        world.room = 2
        world.next.acked([FIRST])
        await a_moment()
        assert world.sent == [FIRST, SECOND]
        assert not world.is_done
        world.next.acked([SECOND])
        await a_moment()
        assert world.is_done


async def test_a_page_is_done_when_its_last_link_is_acked() -> None:
    async with a_world() as world:
        world.arrives([FIRST, SECOND])
        await a_moment()
        assert world.sent == [FIRST, SECOND]
        for acked in (FIRST, SECOND):
            world.next.acked([acked])
            await a_moment()
            assert world.is_done == (acked is SECOND)


async def test_a_page_that_waits_for_its_copies_when_a_shorter_way_is_found_waits_for_the_links_of_that_way() -> None:
    """Its links of before were acked, and it had only to be copied."""
    async with a_world(copies=2) as world:
        world.arrives([FIRST])
        await a_moment()
        world.next.acked([FIRST])
        await a_moment()
        world.next.resend([PAGE])
        world.next.send_again(PAGE, [SECOND], Relinked(SECOND.key, 3, []))
        await a_moment()
        assert (world.resent, world.sent) == (1, [FIRST, SECOND])
        world.copied()
        await a_moment()
        assert not world.is_done
        world.next.acked([SECOND])
        await a_moment()
        assert world.is_done


async def test_what_was_acked_before_a_shorter_way_was_found_does_not_make_a_page_done() -> None:
    """The store knows of the shorter way before the crawl does: it still has to send its links after a crash."""
    async with a_world() as world:
        world.arrives([FIRST])
        await a_moment()
        mark = keys.FETCHED + CRAWL + PAGE
        shorter = Task("http://a/", 2, 1, "", state=State.FETCHED)
        world.engine.write({keys.TASK + CRAWL + PAGE: shorter.pack()}, sync=False)
        world.next.acked([FIRST])
        await a_moment()
        assert not world.is_done
        assert world.engine.get(mark) is not None
        world.next.resend([PAGE])
        world.next.send_again(PAGE, [SECOND], Relinked(SECOND.key, 2, []))
        world.next.acked([SECOND])
        await a_moment()
        assert world.is_done
        assert world.engine.get(mark) is None


async def test_a_page_whose_links_are_acked_before_it_is_written_is_done_after_it_is_written() -> None:
    """Another page has the same links, and was a moment faster."""
    async with a_world() as world:
        world.arrives([FIRST], url="http://a/other")
        await a_moment()
        world.arrives([FIRST])
        world.next.acked([FIRST])
        await a_moment()
        assert world.is_done
        assert [copy.task.state for copy in world.buried] == [State.DONE] * 2


@pytest.mark.parametrize(("found_at", "spared"), [(3, False), (2, True)])
async def test_a_task_beyond_a_lowered_limit_stays_if_a_shorter_way_to_it_came_meanwhile(
    found_at: int, spared: bool
) -> None:
    async with a_world() as world:
        url = "http://a/deep"
        known = Task(url, found_at, 1, "")
        world.engine.write({keys.TASK + CRAWL + SPEC.key_of(url): known.pack()}, sync=False)
        world.next.kill(Kill("a", SPEC.key_of(url), SkipReason.DEPTH, "", 0, depth=3))
        await asyncio.sleep(1)
        value = world.engine.get(keys.TASK + CRAWL + SPEC.key_of(url))
        assert value is not None
        assert unpack_task(value).state is (State.PENDING if spared else State.DEAD)
        assert world.told == ["written", *["spared"] * spared], "so that it is read from its queue once more"
