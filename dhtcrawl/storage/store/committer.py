"""Runs transactions one after another, and commits them in groups with one fsync.

A transaction is a function of a `Txn`. It runs off the event loop, sees every
write of the transactions before it, and its future is done only when its writes are
on disk: what a caller has been told is true after a power cut. Transactions that
arrive while a group is being written form the next group: they share the cost of
an fsync, and no caller waits for a timer.

One thread owns the engine and the archive, so transactions need no locks:
check-then-write (URL-seen, the lattice) is atomic by construction.
`ThreadCommitter` is the real one. The simulator's (`dhtcrawl.sim.committer`)
runs the same groups between the turns of its event loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from dhtcrawl.errors import StorageError
from dhtcrawl.loop_state import run_transaction
from dhtcrawl.storage.store.known_depths import KnownDepths
from dhtcrawl.storage.store.txn import Engine, Txn

T = TypeVar("T")

# Bounds the memory of a group and the time to its fsync; further transactions wait for the next group.
GROUP_JOBS_MAX = 256


class Participant(Protocol):
    """Commits its files together with the store, as the archive does."""

    def prepare(self, txn: Txn) -> None:
        """Make everything appended durable and write the new lengths into `txn`.

        Raises:
            StorageError: the disk failed.
        """

    def close(self) -> None:
        """Close the files; bytes that were not prepared do not count."""


class Committer(Protocol):
    """Runs transactions."""

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        """Run a transaction; the future gets its value once its writes are durable.

        An exception of the function undoes its writes and becomes the future's. A
        StorageError does more: the disk has failed, so this group's and every later
        future get the error.
        """

    @property
    def failed(self) -> StorageError | None:
        """The error after which nothing more is written, or None."""

    async def close(self) -> None:
        """Commit what was submitted, then stop; submitting more is a bug."""


Job = tuple[Callable[[Txn], Any], "asyncio.Future[Any]"]
Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Group:
    """Collects transactions that are written together. Blocks; no asyncio."""

    def __init__(self, runner: GroupRunner) -> None:
        self._runner = runner
        self._writes: dict[bytes, bytes | None] = {}
        self._outcomes: list[Outcome] = []

    def __len__(self) -> int:
        """How many transactions were run, or refused."""
        return len(self._outcomes)

    @property
    def futures(self) -> list[asyncio.Future[Any]]:
        return [future for future, _, _ in self._outcomes]

    def run(self, job: Job) -> None:
        """Run one transaction, which sees the writes of those before it; once the disk has failed, refuse it."""
        function, future = job
        value, error = None, None
        if self._runner.failed is None:
            try:
                value, error = self._run(function)
            except StorageError as failure:  # the disk fails, or a record is damaged: no transaction may follow
                self._runner.failed = failure
        self._outcomes.append((future, value, error))

    def commit(self) -> list[Outcome]:
        """Write the group; the outcome of each transaction, in order, once all that succeeded is durable."""
        if self._runner.failed is None:
            self._runner.write(self._writes)
        if self._runner.failed is not None:
            return [(future, None, self._runner.failed) for future, _, _ in self._outcomes]
        return self._outcomes

    def _run(self, function: Callable[[Txn], Any]) -> tuple[Any, BaseException | None]:
        writes: dict[bytes, bytes | None] = {}
        txn = Txn(self._runner.engine, writes, self._runner.known, self._writes)
        try:
            value = run_transaction(function, txn)
        except StorageError:
            raise
        except StopIteration as error:  # a future does not accept it
            stopped = RuntimeError("a transaction raised StopIteration")
            stopped.__cause__ = error
            return None, stopped
        except Exception as error:  # a bug of the caller, which gets it
            return None, error
        self._writes |= writes
        return value, None


class GroupRunner:
    """Runs groups of transactions against the engine. Blocks; no asyncio."""

    def __init__(self, engine: Engine, *, sync: bool) -> None:
        self.engine = engine
        self.known = KnownDepths()
        self.participants: list[Participant] = []
        self.groups = 0
        self.failed: StorageError | None = None
        self._sync = sync

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """The outcome of each job, in order, once all that succeeded is durable."""
        group = Group(self)
        for job in jobs:
            group.run(job)
        return group.commit()

    def write(self, writes: dict[bytes, bytes | None]) -> None:
        """Make a group's writes and its participants' files durable; set `failed` if that is impossible."""
        if not writes:
            return
        try:
            final = Txn(self.engine, writes)
            for participant in self.participants:
                run_transaction(participant.prepare, final)
            self.engine.write(writes, sync=self._sync)
            self.known.written(writes)
            self.groups += 1
        except StorageError as error:
            # Which part of the group reached the disk is unknown, and LevelDB
            # refuses writes after a failed one: only a restart, which reads
            # what is really there, goes on from here.
            self.failed = error
        except Exception as error:  # a bug of ours must end the node, not hang its callers
            self.failed = StorageError(f"committing failed: {error!r}; please report this")
            self.failed.__cause__ = error


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
    """The real `Committer`: runs transactions on a thread of its own."""

    def __init__(self, runner: GroupRunner) -> None:
        self._runner = runner
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._closed = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        assert not self._closing, "it would never run"
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
