"""An asyncio event loop whose time is a number: it jumps to the next timer.

A program that waits only for timers and for itself runs here unmodified, as
fast as its callbacks, and twice the same. The idea is FoundationDB's (Zhou et
al. 2021, section 4): one thread, no sockets, and time that passes only when
nobody has anything left to do.

- `time()` is virtual. When nothing is ready the clock jumps to the next timer.
- Nothing ready and no timer, while `run_until_complete` waits: `Deadlock`.
- `run_in_executor` runs inline: there are no threads to come in between.
- Datagrams go through `network`, where one is set (`dhtcrawl.sim.net`). Other
  sockets, pipes, signals and subprocesses raise NotImplementedError, as
  asyncio's base loop does for everything that a subclass leaves out.

What asyncio itself orders by object identity stays unordered: the order in
which a TaskGroup cancels its tasks, and the sets that `asyncio.wait` returns.
Code that shall run the same twice must not let that order show: keep tasks in
a list and stop them by an event, as the node does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WALL_START = datetime(2026, 1, 1, tzinfo=UTC)
_RESOLUTION_S = 1e-9
_STUCK_TASKS_SHOWN = 10


class Deadlock(RuntimeError):
    """Nothing is scheduled, so what is awaited can never happen."""


class Datagrams(Protocol):
    """What stands in for UDP."""

    def open_datagram(
        self, factory: Callable[[], asyncio.DatagramProtocol], local_addr: tuple[str, int]
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        """Bind an endpoint.

        Raises:
            OSError: the address is taken.
        """
        ...


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `run` wraps what asyncio.run does around one."""

    network: Datagrams | None = None

    # What stands in for TCP, where it is set: `dhtcrawl.sim.streams`.
    streams: Any = None

    # What the base loop keeps and typeshed leaves out.
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _Jump(self)
        # Timers within one resolution count as due; with 0 a timer that
        # floating point puts just after `time()` would be waited for for ever.
        self._clock_resolution = _RESOLUTION_S
        self._waited_for: asyncio.Future[Any] | None = None

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

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

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

    def jump(self, timeout: float | None) -> None:
        """Let `timeout` pass; None when no timer is set."""
        if timeout is None:
            if self._stopping:
                return
            raise Deadlock(self._stuck())
        if timeout > 0:
            # To the timer itself: `time() + timeout` may round to just before it.
            timers = self._scheduled
            self._now = max(self._now, timers[0].when() if timers else self._now + timeout)
            # After 97 days a nanosecond is less than a float can tell, and a
            # timer that is due now would never be found due.
            self._clock_resolution = max(_RESOLUTION_S, 2 * math.ulp(self._now))

    def _stuck(self) -> str:
        others = sorted(repr(task) for task in asyncio.all_tasks(self) if task is not self._waited_for)
        shown = "".join(f"\n  and {other}" for other in others[:_STUCK_TASKS_SHOWN])
        return f"nothing is scheduled, so this can never end: {self._waited_for!r}{shown}"

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no sockets, hence no events."""

    def _write_to_self(self) -> None:
        """Nobody waits in a system call that would have to be woken."""


class _Jump:
    """What the base loop takes for its selector: `select` is where time passes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.jump(timeout)
        return []


class VirtualClock:
    """`dhtcrawl.clock.Clock` on a loop's time; the wall clock starts at `WALL_START`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> datetime:
        return WALL_START + timedelta(seconds=self._loop.time())


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a new `VirtualLoop`.

    Raises:
        Deadlock: `main` waits for what can never happen.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
