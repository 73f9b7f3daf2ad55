"""Names to addresses, behind a port, with a small cache.

`SystemResolver` asks the operating system, so that /etc/hosts, search domains
and the local name server mean what they mean to every other program. It does
not tell how long an answer holds, hence one fixed time for all. Whether an
address may be used is not decided here but in `dhtcrawl.fetch.guard`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Any, ParamSpec, Protocol, TypeVar

from dhtcrawl.clock import Clock

# Browsers hold an answer for a minute where the system gives no time.
ANSWER_TTL_S = 60.0
# For requests that come together. A further try, after a wait of 1 s or more (`politeness.backoff_first_s`), asks anew:
# a name server that was down for a moment must not cost a site its pages.
FAILURE_TTL_S = 0.5
NAMES_MAX = 10_000
ADDRESSES_MAX = 16
# getaddrinfo blocks a thread for as long as the name servers take, some 30 s
# where none of three answers: three times as long as a request waits by default.
# With fewer threads, names that no server answers for keep all others waiting
# until their requests are given up, too. A thread is started when it is needed.
THREADS_A_REQUEST = 3
THREADS_MAX = 256


P = ParamSpec("P")
T = TypeVar("T")


class NameFailure(OSError):
    """A name does not resolve; the message is one line for people."""


class Resolver(Protocol):
    """What turns a name into addresses."""

    async def addresses(self, name: str) -> list[str]:
        """The addresses of `name`, best first, never empty.

        Raises:
            NameFailure: there are none, or no name server answered.
        """

    def close(self) -> None:
        """Give back threads or sockets."""


class _LookUps(Executor):
    """A `ThreadPoolExecutor` whose threads keep no process from ending, for nothing can end what they wait for.

    `submit` and `shutdown` are called by one thread.
    """

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._threads = 0
        self._idle = Semaphore(0)
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()  # None ends a thread
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._closed:
            raise RuntimeError("no name is looked up any more")
        future: Future[T] = Future()
        self._waiting.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._threads < self._threads_max:
            self._threads += 1
            Thread(target=self._work, name="dns", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more; it waits for nothing, and what has not begun is given up."""
        self._closed = True
        with suppress(Empty):
            while (each := self._waiting.get_nowait()) is not None:
                each[0].cancel()
        for _ in range(self._threads):
            self._waiting.put(None)

    def _work(self) -> None:
        while (each := self._waiting.get()) is not None:
            future, look_up = each
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(look_up())
                except BaseException as error:
                    future.set_exception(error)
            self._idle.release()


class SystemResolver:
    """getaddrinfo on threads of its own, for so many requests at a time."""

    def __init__(self, clock: Clock, requests: int = 1) -> None:
        self._clock = clock
        self._executor = _LookUps(min(THREADS_A_REQUEST * requests, THREADS_MAX))
        # Name to (until, addresses or why there are none), oldest first.
        self._cache: OrderedDict[str, tuple[float, list[str] | str]] = OrderedDict()

    async def addresses(self, name: str) -> list[str]:
        now = self._clock.monotonic()
        known = self._cache.get(name)
        if known is None or known[0] <= now:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._executor, _ask_system, name)
            ttl = FAILURE_TTL_S if isinstance(answer, str) else ANSWER_TTL_S
            self._cache[name] = (self._clock.monotonic() + ttl, answer)
            self._cache.move_to_end(name)
            if len(self._cache) > NAMES_MAX:
                self._cache.popitem(last=False)
        else:
            answer = known[1]
        if isinstance(answer, str):
            raise NameFailure(answer)
        return answer

    def close(self) -> None:
        self._executor.shutdown()


def _ask_system(name: str) -> list[str] | str:
    """The addresses, or why there are none."""
    try:
        # Bytes keep Python's IDNA codec out: a canonical host is ASCII already.
        infos = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return "the name server gave no answer"
        return "the name does not resolve"
    except (OSError, ValueError) as error:
        return f"the name does not resolve: {error}"
    # A scope (`fe80::1%eth0`) comes as the fourth part of an IPv6 address;
    # such an address is never public, so it is named and then refused.
    found = [
        f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] and "%" not in str(address[0]) else address[0]
        for _, _, _, _, address in infos
    ]
    return [str(ip) for ip in dict.fromkeys(found)][:ADDRESSES_MAX] or "the name has no address"
