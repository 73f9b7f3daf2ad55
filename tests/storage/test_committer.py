"""What both committers promise: order, groups, and nothing said before it is true."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.loop import VirtualLoop
from dhtcrawl.storage.store.committer import GROUP_JOBS_MAX, Committer, GroupRunner, ThreadCommitter
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.txn import Batch, Txn

HANGS_AFTER_S = 30.0


class Disk(MemoryEngine):
    """Remembers its batches; fails, or looks around, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[dict[bytes, bytes | None]] = []
        self.error: Exception | None = None
        self.on_write: Callable[[], None] = lambda: None

    def write(self, batch: Batch, *, sync: bool) -> None:
        self.on_write()
        if self.error is not None:
            raise self.error
        assert sync
        self.batches.append(dict(batch))
        super().write(batch, sync=sync)

    def content(self) -> dict[bytes, bytes]:
        return dict(self.scan(b"", b"\xff"))


@dataclass
class Bench:
    """A committer's kind, with a disk under it."""

    kind: str
    disk: Disk = field(default_factory=Disk)

    def __post_init__(self) -> None:
        self.runner = GroupRunner(self.disk, sync=True)

    @asynccontextmanager
    async def committer(self) -> AsyncIterator[Committer]:
        committer = self._make()
        async with asyncio.timeout(HANGS_AFTER_S):
            yield committer
            await committer.close()

    def _make(self) -> Committer:
        return LoopCommitter(self.runner) if self.kind == "loop" else ThreadCommitter(self.runner)


@pytest.fixture
async def bench() -> Bench:
    return Bench("loop" if isinstance(asyncio.get_running_loop(), VirtualLoop) else "thread")


@contextmanager
def one_group(committer: Committer) -> Iterator[None]:
    """What is submitted inside is one group."""
    if isinstance(committer, LoopCommitter):
        yield
        return
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: Txn) -> None:
        begun.set()
        go_on.wait(HANGS_AFTER_S)

    committer.submit(wait)
    begun.wait(HANGS_AFTER_S)
    try:
        yield
    finally:
        go_on.set()


def put(key: bytes, value: bytes = b"") -> Callable[[Txn], None]:
    return lambda txn: txn.put(key, value)


def fail_after(*steps: Callable[[Txn], None], error: Exception) -> Callable[[Txn], None]:
    def function(txn: Txn) -> None:
        for step in steps:
            step(txn)
        raise error

    return function


@pytest.mark.loops("asyncio", "virtual")
async def test_transactions_run_in_the_order_they_were_submitted_in(bench: Bench) -> None:
    def number(txn: Txn) -> int:
        count = int(txn.get(b"n") or b"0") + 1
        txn.put(b"n", b"%d" % count)
        return count

    async with bench.committer() as committer:
        assert await asyncio.gather(*(committer.submit(number) for _ in range(1000))) == list(range(1, 1001))
    assert bench.disk.content() == {b"n": b"1000"}
    assert bench.runner.groups == len(bench.disk.batches)


@pytest.mark.loops("asyncio", "virtual")
async def test_what_came_meanwhile_is_one_group_and_a_group_is_bounded(bench: Bench) -> None:
    async with bench.committer() as committer:
        with one_group(committer):
            writes = [committer.submit(put(b"%03d" % i)) for i in range(GROUP_JOBS_MAX + 1)]
        await asyncio.gather(*writes)
    assert [len(batch) for batch in bench.disk.batches] == [GROUP_JOBS_MAX, 1]


@pytest.mark.loops("asyncio", "virtual")
async def test_nobody_is_told_before_it_is_on_disk(bench: Bench) -> None:
    futures: list[asyncio.Future[None]] = []
    told_early: list[bool] = []
    bench.disk.on_write = lambda: told_early.extend(future.done() for future in futures)

    async with bench.committer() as committer:
        with one_group(committer):
            futures.extend(committer.submit(put(b"%d" % i)) for i in range(3))
        await futures[0]
        assert len(bench.disk.content()) == 3
    assert told_early == [False, False, False]


@pytest.mark.loops("asyncio", "virtual")
async def test_a_failing_transaction_undoes_its_own_writes_and_no_others(bench: Bench) -> None:
    boom = fail_after(
        put(b"new"), put(b"mine", b"bad"), lambda txn: txn.delete(b"other"), put(b"mine", b"worse"),
        lambda txn: txn.delete(b"old"), lambda txn: txn.delete(b"never"), error=ValueError("boom"),
    )  # fmt: skip

    async with bench.committer() as committer:
        await committer.submit(put(b"old", b"1"))
        with one_group(committer):
            before = [committer.submit(put(b"mine", b"1")), committer.submit(put(b"other", b"1"))]
            failed = committer.submit(boom)
            after = committer.submit(lambda txn: [txn.get(k) for k in (b"new", b"mine", b"other", b"old", b"never")])
        await asyncio.gather(*before)
        with pytest.raises(ValueError, match="boom"):
            await failed
        assert await after == [None, b"1", b"1", b"1", None]
    assert bench.disk.content() == {b"mine": b"1", b"old": b"1", b"other": b"1"}
    assert bench.disk.batches[-1] == {b"mine": b"1", b"other": b"1"}


@pytest.mark.loops("asyncio", "virtual")
async def test_a_transaction_that_only_reads_costs_no_write(bench: Bench) -> None:
    async with bench.committer() as committer:
        assert await committer.submit(lambda txn: txn.get(b"k")) is None
        with pytest.raises(ValueError, match="boom"):
            await committer.submit(fail_after(put(b"k"), error=ValueError("boom")))
    assert (bench.disk.batches, bench.runner.groups) == ([], 0)


@pytest.mark.loops("asyncio", "virtual")
async def test_a_stop_iteration_reaches_its_caller_and_nobody_hangs(bench: Bench) -> None:
    async with bench.committer() as committer:
        with one_group(committer):
            failed = committer.submit(fail_after(put(b"undone"), error=StopIteration()))
            fine = committer.submit(put(b"k"))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await failed
        await fine
    assert bench.disk.content() == {b"k": b""}


@pytest.mark.parametrize("error", [StorageError("broken"), StorageFull("full")])
@pytest.mark.loops("asyncio", "virtual")
async def test_a_disk_that_fails_fails_the_group_and_all_that_follow(bench: Bench, error: StorageError) -> None:
    async with bench.committer() as committer:
        await committer.submit(put(b"safe"))
        bench.disk.error = error
        with one_group(committer):
            group: list[asyncio.Future[Any]] = [committer.submit(put(b"a")), committer.submit(put(b"b"))]
            read = committer.submit(lambda txn: txn.get(b"a"))
            bug = committer.submit(fail_after(put(b"c"), error=ValueError("boom")))
        for future in (*group, read, bug):
            with pytest.raises(type(error), match=str(error)):
                await future
        # The disk's good days come too late: what is on it is not known.
        bench.disk.error = None
        for late in (put(b"late"), lambda txn: txn.get(b"safe")):
            with pytest.raises(type(error), match=str(error)):
                await committer.submit(late)
    assert bench.disk.content() == {b"safe": b""}
    assert bench.runner.failed is error


@pytest.mark.loops("asyncio", "virtual")
async def test_a_storage_error_within_a_transaction_fails_its_group_unwritten(bench: Bench) -> None:
    async with bench.committer() as committer:
        with one_group(committer):
            before = committer.submit(put(b"a"))
            failed = committer.submit(fail_after(put(b"b"), error=StorageFull("the archive is full")))
            after = committer.submit(put(b"c"))
        for future in (before, failed, after):
            with pytest.raises(StorageFull, match="the archive is full"):
                await future
    assert bench.disk.batches == []


@pytest.mark.loops("asyncio", "virtual")
async def test_closing_commits_what_was_submitted(bench: Bench) -> None:
    futures: list[asyncio.Future[None]] = []

    async with bench.committer() as committer:
        futures.extend(committer.submit(put(b"%03d" % i)) for i in range(2 * GROUP_JOBS_MAX + 1))
        await committer.close()
        assert len(bench.disk.content()) == 2 * GROUP_JOBS_MAX + 1
        await asyncio.gather(*futures)


@pytest.mark.loops("asyncio", "virtual")
async def test_closing_twice_is_fine_and_submitting_afterwards_is_a_bug(bench: Bench) -> None:
    async with bench.committer() as committer:
        await committer.close()
        await committer.close()
        with pytest.raises(AssertionError):
            committer.submit(put(b"k"))


@pytest.mark.loops("asyncio", "virtual")
async def test_the_write_of_a_caller_that_was_cancelled_stands(bench: Bench) -> None:
    async def wait_for(future: asyncio.Future[None]) -> None:
        await future

    async with bench.committer() as committer:
        with one_group(committer):
            caller = asyncio.ensure_future(wait_for(committer.submit(put(b"a"))))
            failing = asyncio.ensure_future(wait_for(committer.submit(fail_after(put(b"x"), error=ValueError("boom")))))
            other = committer.submit(put(b"b"))
            await asyncio.sleep(0)
            caller.cancel()
            failing.cancel()
            await asyncio.wait([caller, failing])
        await other
        assert caller.cancelled()
        assert failing.cancelled()
    assert bench.disk.content() == {b"a": b"", b"b": b""}


# Participants


class Register:
    """Counts its calls, and writes what it has counted with the group."""

    def __init__(self, error: Exception | None = None) -> None:
        self.prepared = 0
        self._error = error

    def prepare(self, txn: Txn) -> None:
        self.prepared += 1
        if self._error is not None:
            raise self._error
        txn.put(b"prepared", b"%d" % self.prepared)

    def close(self) -> None:
        """Nothing to give back."""


@pytest.mark.loops("asyncio", "virtual")
async def test_participants_commit_with_every_group_that_writes(bench: Bench) -> None:
    register = Register()
    bench.runner.participants.append(register)

    async with bench.committer() as committer:
        await committer.submit(lambda txn: txn.get(b"k"))
        for key in (b"a", b"b"):
            await committer.submit(put(key))
    assert bench.disk.batches == [{b"a": b"", b"prepared": b"1"}, {b"b": b"", b"prepared": b"2"}]


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), StorageFull("full"), StopIteration()])
@pytest.mark.loops("asyncio", "virtual")
async def test_a_participant_that_raises_ends_the_committer_and_nobody_hangs(bench: Bench, error: Exception) -> None:
    bench.runner.participants.append(Register(error))
    told = "full" if isinstance(error, StorageFull) else "please report this"

    async with bench.committer() as committer:
        with one_group(committer):
            futures: list[asyncio.Future[Any]] = [committer.submit(put(b"a"))]
            futures.append(committer.submit(lambda txn: txn.get(b"a")))
        for future in (*futures, committer.submit(put(b"b"))):
            with pytest.raises(StorageError, match=told):
                await future
    assert bench.disk.batches == []


@pytest.mark.loops("asyncio", "virtual")
async def test_an_engine_with_a_bug_ends_the_committer_and_nobody_hangs(bench: Bench) -> None:
    bench.disk.error = KeyError("a bug")

    async with bench.committer() as committer:
        for _ in range(2):
            with pytest.raises(StorageError, match=r"committing failed: KeyError.*please report this"):
                await committer.submit(put(b"a"))


# One kind only


@pytest.mark.loops("asyncio")
async def test_threads_keep_transactions_off_the_event_loop(bench: Bench) -> None:
    async with bench.committer() as committer:
        assert await committer.submit(lambda _: threading.current_thread()) is not threading.current_thread()


async def test_on_the_loop_a_group_takes_its_latency_of_virtual_time() -> None:
    loop = asyncio.get_running_loop()
    committer, times = LoopCommitter(GroupRunner(Disk(), sync=True), latency_s=0.5), []
    first = committer.submit(put(b"a"))
    await asyncio.sleep(0.25)
    second = committer.submit(put(b"b"))
    for future in (first, second, committer.submit(put(b"c"))):
        await future
        times.append(loop.time())
    assert times == [0.5, 0.5, 0.5]
