"""An asyncio event loop whose time is a number: it jumps to the next timer.

A program that waits only for timers and for itself runs here unmodified, as
fast as its callbacks, and twice the same. The idea is FoundationDB's (Zhou et
al. 2021, section 4): one thread, no sockets, and time that passes only when
no task has anything left to do.

- `time()` is virtual. When nothing is ready the clock jumps to the next timer.
- Nothing ready and no timer, while `run_until_complete` waits: `Deadlock`.
- `run_in_executor` runs inline: there are no threads to come in between.
- `pause` holds back everything that runs for one host, as SIGSTOP holds a
  process: whose a callback is says `current_host` in its context. `resume`
  lets it go on, in order, with whatever has come due or arrived meanwhile.
- Datagrams go through `network`, where one is set (`dhtcrawl.sim.net`). Other
  sockets, pipes, signals and subprocesses raise NotImplementedError, as
  asyncio's base loop does for everything that a subclass leaves out.

What asyncio itself orders by object identity stays unordered: the order in
which a TaskGroup cancels its tasks, and the sets that `asyncio.wait` returns.
Code that shall run the same twice must not let that order show: keep tasks in
a list and stop them by an event, as the node does.
"""

# ruff: noqa: SLF001 - a loop runs asyncio's handles, which offer nothing public to what runs them

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WALL_START = datetime(2026, 1, 1, tzinfo=UTC)
_RESOLUTION_S = 1e-9
_STUCK_TASKS_SHOWN = 10
# Cancelled timers are swept out of the heap once there are so many, and more than of the others.
_CANCELLED_MIN = 100

# The host that code runs on; tasks and callbacks inherit it.
current_host: ContextVar[str] = ContextVar("host", default="127.0.0.1")


class Deadlock(RuntimeError):
    """Nothing is scheduled, so what is awaited can never happen."""


@contextmanager
def on_host(name: str) -> Iterator[None]:
    """Within, code runs on this host, and so do the tasks that it makes."""
    token = current_host.set(name)
    try:
        yield
    finally:
        current_host.reset(token)


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `run` wraps what asyncio.run does around one."""

    # What stands in for UDP and TCP, where they are set: `dhtcrawl.sim.net`, `dhtcrawl.sim.streams`.
    network: Any = None
    streams: Any = None

    # What the base loop keeps and typeshed leaves out.
    _ready: deque[Any]
    _scheduled: list[tuple[float, int, Any]]  # when, in which order they were set, the timer
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        # Timers within one resolution count as due; with 0 a timer that
        # floating point puts just after `time()` would be waited for for ever.
        self._clock_resolution = _RESOLUTION_S
        self._waited_for: asyncio.Future[Any] | None = None
        self._timers_set = 0
        self._paused: dict[str, list[Any]] = {}  # host → what it would have run

    def time(self) -> float:
        return self._now

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        before, self._waited_for = self._waited_for, task
        try:
            return super().run_until_complete(task)
        finally:
            self._waited_for = before

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; timers of the same moment fire in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._scheduled, (when, self._timers_set, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def pause(self, host: str) -> None:
        self._paused.setdefault(host, [])

    def resume(self, host: str) -> None:
        self._ready.extend(self._paused.pop(host, ()))

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self.streams is None:
            raise NotImplementedError("a virtual loop has no sockets")
        return await self.streams.create_connection(*args, **kwargs)

    async def create_datagram_endpoint(
        self,
        protocol_factory: Callable[[], Any],
        local_addr: Any = None,
        remote_addr: Any = None,
        **kwargs: Any,
    ) -> Any:
        if self.network is None or local_addr is None or remote_addr is not None:
            raise NotImplementedError("a virtual loop has no sockets")
        return self.network.open_datagram(protocol_factory, local_addr)

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        if self.streams is None:
            raise NotImplementedError("a virtual loop has no sockets")
        return await self.streams.create_server(*args, **kwargs)

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("a virtual loop has no name server")

    async def getnameinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("a virtual loop has no name server")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Nothing to do: there never was one."""

    def _run_once(self) -> None:
        """One turn: let time pass if no task has anything to do, then run what is due."""
        self._sweep()
        timers, ready = self._scheduled, self._ready
        if not (ready or self._stopping):
            self._jump()
        due_at = self._now + self._clock_resolution
        while timers and timers[0][0] < due_at:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if self._paused:
                held = self._paused.get(handle._context.get(current_host, ""))
                if held is not None:
                    held.append(handle)
                    continue
            handle._run()

    def _sweep(self) -> None:
        timers = self._scheduled
        if self._timer_cancelled_count > max(_CANCELLED_MIN, len(timers) // 2):
            for _, _, timer in timers:
                timer._scheduled = not timer._cancelled
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)[2]._scheduled = False
            self._timer_cancelled_count -= 1

    def _jump(self) -> None:
        if not self._scheduled:
            raise Deadlock(self._stuck())
        self._now = max(self._now, self._scheduled[0][0])
        # After 97 days a nanosecond is less than a float can tell, and a
        # timer that is due now would never be found due.
        self._clock_resolution = max(_RESOLUTION_S, 2 * math.ulp(self._now))

    def _stuck(self) -> str:
        others = sorted(repr(task) for task in asyncio.all_tasks(self) if task is not self._waited_for)
        shown = "".join(f"\n  and {other}" for other in others[:_STUCK_TASKS_SHOWN])
        return f"nothing is scheduled, so this can never end: {self._waited_for!r}{shown}"

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits in a system call."""


class VirtualClock:
    """`dhtcrawl.clock.Clock` on a loop's time; the wall clock starts at `WALL_START`.

    Another machine's clock began to count at another moment, and its wall clock is wrong: `started` and `off_s` are
    added, in seconds. `off_s` may jump; `rate` is how fast it runs.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, started: float = 0.0, off_s: float = 0.0, rate: float = 1.0
    ) -> None:
        self._loop = loop
        self._started = started
        self._rate = rate
        self.off_s = off_s

    def monotonic(self) -> float:
        return self._started + self._loop.time() * self._rate

    def wall(self) -> datetime:
        return WALL_START + timedelta(seconds=self._loop.time() + self.off_s)


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a new `VirtualLoop`.

    Raises:
        Deadlock: `main` waits for what can never happen.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
