"""Transactions, one after another, committed in groups with one fsync.

A transaction is a function of a `Txn`. It runs off the event loop, sees every
write of the transactions before it, and its future is done only when what it
wrote is on disk: what a caller has been told is true after a power cut.
Transactions that arrive while a group is being written form the next group, so
that the cost of an fsync is shared by as many as there are and nobody waits
for a timer.

One thread owns the engine and the archive, which is why transactions need no
locks: check-then-write (URL-seen, the lattice) is atomic by construction.
`ThreadCommitter` is the real one; `LoopCommitter` runs the same groups on the
event loop's clock and is what the simulator uses.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from dhtcrawl.errors import StorageError
from dhtcrawl.storage.store.txn import Engine, Txn

T = TypeVar("T")

# Bounds the memory of a group and the time to its fsync; more waits its turn.
GROUP_JOBS_MAX = 256


class Participant(Protocol):
    """What commits together with the store: the archive."""

    def prepare(self, txn: Txn) -> None:
        """Make everything appended durable and record how much that is."""
        ...

    def close(self) -> None:
        """Give files back; what was not prepared is void."""
        ...


class Committer(Protocol):
    """Runs transactions."""

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        """A future of the function's value, done once its writes are durable.

        An exception of the function undoes its writes and becomes the
        future's, but for a StorageError: a disk that fails closes the
        committer, and that group's and every later future get the error.
        """
        ...

    @property
    def failed(self) -> StorageError | None:
        """Why the disk takes nothing more, once a write has failed."""
        ...

    async def close(self) -> None:
        """Commit what was submitted, then stop; to submit more is a bug."""
        ...


Job = tuple[Callable[[Txn], Any], "asyncio.Future[Any]"]
Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class GroupRunner:
    """Runs one group of transactions against the engine. Blocks; no asyncio."""

    def __init__(self, engine: Engine, *, sync: bool) -> None:
        self.engine = engine
        self.participants: list[Participant] = []
        self.groups = 0
        self.failed: StorageError | None = None
        self._sync = sync

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """The outcome of each job, in order, once all that succeeded is durable."""
        if self.failed is not None:
            return [(future, None, self.failed) for _, future in jobs]
        writes: dict[bytes, bytes | None] = {}
        outcomes: list[Outcome] = []
        try:
            for function, future in jobs:
                outcomes.append(self._run_one(function, future, writes))
            if writes:
                final = Txn(self.engine, writes)
                for participant in self.participants:
                    participant.prepare(final)
                self.engine.write(writes, sync=self._sync)
                self.groups += 1
        except StorageError as error:
            # Which part of the group reached the disk is unknown, and LevelDB
            # refuses writes after a failed one: only a restart, which reads
            # what is really there, goes on from here.
            self.failed = error
        except Exception as error:  # a bug of ours must end the node, not hang its callers
            self.failed = StorageError(f"committing failed: {error!r}; please report this")
            self.failed.__cause__ = error
        if self.failed is not None:
            return [(future, None, self.failed) for _, future in jobs]
        return outcomes

    def _run_one(
        self, function: Callable[[Txn], Any], future: asyncio.Future[Any], writes: dict[bytes, bytes | None]
    ) -> Outcome:
        txn = Txn(self.engine, writes)
        try:
            return future, function(txn), None
        except StorageError:  # a disk that fails, or a record that is damaged: we cannot go on
            raise
        except StopIteration as error:  # which no future takes
            txn.rollback()
            stopped = RuntimeError("a transaction raised StopIteration")
            stopped.__cause__ = error
            return future, None, stopped
        except Exception as error:  # the caller's bug: the caller's to handle
            txn.rollback()
            return future, None, error


def deliver(outcomes: list[Outcome]) -> None:
    """Resolve futures, on their loop, in the order of their transactions."""
    for future, value, error in outcomes:
        if future.done():  # the caller was cancelled; the write stands
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


class ThreadCommitter:
    """Transactions on a thread of their own."""

    def __init__(self, runner: GroupRunner) -> None:
        self._runner = runner
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._closed = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        assert not self._closing, "nobody would ever run it"
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((function, future))
        return future

    @property
    def failed(self) -> StorageError | None:
        return self._runner.failed

    async def close(self) -> None:
        self._closing = True
        self._jobs.put(None)
        await asyncio.shield(self._closed)

    def _work(self) -> None:
        open_ = True
        while open_:
            jobs: list[Job] = []
            job = self._jobs.get()
            while True:
                if job is None:
                    open_ = False
                    break
                jobs.append(job)
                if len(jobs) >= GROUP_JOBS_MAX or self._jobs.empty():
                    break
                job = self._jobs.get()
            if jobs:
                self._loop.call_soon_threadsafe(deliver, self._runner.run(jobs))
        self._loop.call_soon_threadsafe(self._closed.set_result, None)


class LoopCommitter:
    """The same groups on the event loop, `latency_s` of its clock after the first job."""

    def __init__(self, runner: GroupRunner, *, latency_s: float = 0.004) -> None:
        self._runner = runner
        self._latency_s = latency_s
        self._jobs: list[Job] = []
        self._closing = False
        self._loop = asyncio.get_running_loop()

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        assert not self._closing, "nobody would ever run it"
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._jobs:
            self._loop.call_later(self._latency_s, self._run)
        self._jobs.append((function, future))
        return future

    @property
    def failed(self) -> StorageError | None:
        return self._runner.failed

    async def close(self) -> None:
        self._closing = True
        while self._jobs:  # noqa: ASYNC110 - the timer that empties it is our own
            await asyncio.sleep(self._latency_s)

    def _run(self) -> None:
        jobs, self._jobs = self._jobs[:GROUP_JOBS_MAX], self._jobs[GROUP_JOBS_MAX:]
        if self._jobs:
            self._loop.call_later(self._latency_s, self._run)
        deliver(self._runner.run(jobs))
