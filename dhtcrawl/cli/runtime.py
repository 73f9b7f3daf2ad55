"""The real world: what a node runs on outside the simulator."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import random
import resource
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dhtcrawl.cli.machine import Machine
from dhtcrawl.cli.reach import NetworkReach
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.clock import SystemClock
from dhtcrawl.config import Config
from dhtcrawl.crawl.services import Silent
from dhtcrawl.errors import StoreInUse, first_of
from dhtcrawl.fetch.aiohttp_client import AiohttpClient
from dhtcrawl.identity import node_key
from dhtcrawl.node.single import Node, Ports, open_node
from dhtcrawl.storage.store.committer import ThreadCommitter
from dhtcrawl.storage.store.engine import OPEN_FILES_MAX, LevelEngine, storage_error

T = TypeVar("T")
STORE_DIR, LOCK_FILE = "store", "lock"


FILES_SPARE = 100  # logs, archive, spools, pipes, libraries
# What it takes where the system allows: of a swarm's node hundreds of connections and the archives of its crawls come
# on top of what it needs, and where it may open no more files it cannot read its store. As in the unit of a service.
FILES_WANTED = 65_536

# glibc's malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_HEAP_KEPT_BYTES = 32 << 20


def keep_heap() -> None:
    """Let malloc keep what was freed, up to `_HEAP_KEPT_BYTES`, instead of giving it back at once.

    A parser takes and frees a few hundred kilobytes a page. glibc returns such
    an amount to the system every time, and the next page faults it in anew:
    a third of the time of parsing. Elsewhere than on glibc nothing is changed.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _HEAP_KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _HEAP_KEPT_BYTES)
        mallopt(_M_TOP_PAD, 1 << 20)


def run_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on uvloop.

    Raises:
        Exception: the coroutine's; of a group that task groups raise, its first.
    """
    import uvloop

    keep_heap()
    gc.freeze()  # modules and classes live as long as the process: no collection needs to look at them
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(main())
        except BaseExceptionGroup as group:
            raise first_of(group) from group


def raise_file_limit(config: Config) -> None:
    """Let this process open as many files as it may need, where the system allows.

    Raises:
        ConfigError: it does not.
        UsageError: the same, and `--concurrency` asked for so many.
    """
    concurrency = config.fetch.concurrency
    needed = concurrency + OPEN_FILES_MAX + FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= max(needed, FILES_WANTED):
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        most = hard - OPEN_FILES_MAX - FILES_SPARE
        remedy = f"use {most} or less, or raise 'ulimit -n'" if most > 0 else f"raise 'ulimit -n' to {needed} or more"
        raise config.refusal(
            "fetch.concurrency",
            f" is {concurrency}, which needs {needed} open files, but the system allows {hard}; {remedy}",
        )
    wanted = max(needed, FILES_WANTED)
    try:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    except (ValueError, OSError):  # some systems have a bound below a hard limit that says there is none
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(needed, soft), hard))


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold a node's data directory, which is made where it is missing.

    Raises:
        StoreInUse: another process holds it.
        StorageError: it cannot be used.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        fd = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise storage_error(error, f"cannot use the data directory {data_dir}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise storage_error(error, f"cannot lock {data_dir}") from error
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise StoreInUse(f"{data_dir} is in use by {who}; wait for it or stop it first") from None
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        except OSError as error:
            raise storage_error(error, f"cannot use the data directory {data_dir}") from error
        yield
    finally:
        os.close(fd)


@asynccontextmanager
async def real_node(config: Config, data_dir: Path, reach: NetworkReach | None = None) -> AsyncIterator[Node]:
    """A node on this machine's disk, clocks and network; `data_dir` is locked by the caller.

    Without `reach` no other machine takes part.

    Raises:
        IdentityError, StoreTooNew, StorageError: the data directory cannot be used.
        ConfigError, UsageError: `fetch.concurrency` takes more open files than the system allows.
    """
    raise_file_limit(config)
    key = node_key(data_dir)
    STDERR.name_node(key.node_id.hex())
    engine = LevelEngine(data_dir / STORE_DIR, cache_bytes=config.storage.cache_bytes)
    clock = SystemClock()
    ports = Ports(
        clock=clock,
        rng=random.Random(secrets.randbits(256)),
        http=AiohttpClient(
            clock,
            data_dir,
            connections_max=config.fetch.concurrency,
            tls_verify=config.fetch.tls_verify,
            private_networks=partial(getattr, reach or NetworkReach(config, on_loopback=True), "networks"),
        ),
        engine=engine,
        make_committer=ThreadCommitter,
        offload=partial(asyncio.get_running_loop().run_in_executor, None),
        aside=_aside,
        key=key,
        observer=Silent(),
        machine=Machine(data_dir),
    )
    async with open_node(config, ports) as node:
        yield node


async def _aside(function: Callable[[], Any]) -> Any:
    """What `function` returns or raises, on a thread of its own that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_it(value)

    def run() -> None:
        try:
            done: tuple[Any, Any] = (future.set_result, function())
        except BaseException as error:
            done = (future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(settle, *done)

    threading.Thread(target=run, name="policy", daemon=True).start()
    return await future
