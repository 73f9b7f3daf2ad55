"""The committer of a simulated node: the real one's groups, run between the turns of the event loop.

The real thread takes a transaction at any moment between its submission and its
outcome, and the loop goes on meanwhile. So here a transaction is held, by a
seed, for some turns of the loop or up to a part of the commit's latency; it is
run in between, whatever the loop has changed since; and the caller hears of it
when the group is written, some turns later. What a transaction reads of the
loop's state, or a caller takes for unchanged after it, shows as a fault.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.store.committer import GROUP_JOBS_MAX, Group, GroupRunner, Job, Outcome, deliver
from dhtcrawl.storage.store.txn import Txn

T = TypeVar("T")

# A transaction is held for fewer turns of the loop than this, and its outcome for fewer again.
TURNS: Final = 4


class LoopCommitter:
    """Groups on the event loop's clock, written `latency_s` after their first transaction was submitted.

    submit ──▶ held ──turns, time──▶ run ──▶ the group is written ──turns──▶ the outcome is told
    """

    def __init__(self, runner: GroupRunner, *, latency_s: float = 0.004, rng: Random | None = None) -> None:
        """`rng` draws how long transactions are held; it is the committer's own."""
        self._runner = runner
        self._latency_s = latency_s
        self._rng = Random(0) if rng is None else rng
        self._jobs: deque[Job] = deque()  # not run yet
        self._group: Group | None = None  # of those that were run and are not written
        self._told: deque[list[Outcome]] = deque()  # written, and not told yet
        self._due: asyncio.TimerHandle | None = None  # the write
        self._held = False  # something will run the first of the jobs, in a while
        self._closing = False
        self._loop = asyncio.get_running_loop()

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        assert not self._closing, "it would never run"
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.append((function, future))
        if self._due is None:
            self._due = self._loop.call_later(self._latency_s, self._write)
        if not self._held:
            self._hold()
        return future

    @property
    def failed(self) -> StorageError | None:
        return self._runner.failed

    async def close(self) -> None:
        self._closing = True
        while self._jobs or self._group is not None or self._told:  # noqa: ASYNC110 - the timers are our own
            await asyncio.sleep(self._latency_s)

    @property
    def _may_run(self) -> bool:
        """Whether something waits to be run, and is of the group that comes next."""
        return bool(self._jobs) and (self._group is None or len(self._group) < GROUP_JOBS_MAX)

    def _hold(self) -> None:
        """Run the first of the jobs after some time, or some turns."""
        self._held = True
        turns = self._rng.randrange(TURNS)
        if self._rng.random() < 0.5:
            self._loop.call_later(self._latency_s * self._rng.random(), self._turn, turns)
        else:
            self._loop.call_soon(self._turn, turns)

    def _turn(self, turns: int) -> None:
        """Count one turn of the loop; after the last run a job, or several in one go."""
        if turns:
            self._loop.call_soon(self._turn, turns - 1)
            return
        self._held = False
        while self._may_run:
            self._run_first()
            if self._rng.random() < 0.5:
                break
        if self._may_run:
            self._hold()

    def _run_first(self) -> None:
        if self._group is None:
            self._group = Group(self._runner)
        self._group.run(self._jobs.popleft())

    def _finish(self) -> None:
        while self._may_run:
            self._run_first()

    def _write(self) -> None:
        """Run what is left of the group, and write it; its callers hear of it some turns later."""
        self._due = None
        self._finish()
        assert self._group is not None, "something was submitted"
        self._told.append(self._group.commit())
        self._group = None
        self._tell(self._rng.randrange(TURNS))
        if self._jobs:
            self._due = self._loop.call_later(self._latency_s, self._write)
            if not self._held:
                self._hold()

    def _tell(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._tell, turns - 1)
        elif self._told:
            deliver(self._told.popleft())


class CrashingCommitter(LoopCommitter):
    """Dies in the middle of a group: files were appended to, the batch was not written."""

    crashed = False

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        if not self.crashed:
            return super().submit(function)
        future: asyncio.Future[T] = self._loop.create_future()
        future.cancel()  # the code that tidies up after a crash is gone with it
        return future

    def crash(self, *, written: bool = False) -> None:
        """Everything that was submitted is run; `written`: the batch reached the disk, and no caller heard of it."""
        self.crashed = True
        self._finish()
        untold = [future for outcomes in self._told for future, _, _ in outcomes]
        untold += [future for _, future in self._jobs]
        if self._group is not None:
            untold += self._group.futures
            if written:
                self._group.commit()
        for future in untold:
            future.cancel()
        if self._due is not None:
            self._due.cancel()
        self._due, self._group = None, None
        self._jobs.clear()
        self._told.clear()

    def fail(self) -> None:
        self._runner.failed = StorageFull("the simulated disk is full; give it space")

    async def close(self) -> None:
        if not self.crashed:
            await super().close()
