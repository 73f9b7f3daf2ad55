"""`dhtcrawl crawl --nodes N`: a private swarm of N processes on this machine, for one crawl.

    OUT.node/nodes/1 … N   a data directory a node; gone once the crawl is complete
    OUT.node/logs          what the nodes logged; it is on the terminal, too
    OUT.node/store         the collection's store
    OUT/…                  the collection, as of any crawl

The processes are nodes like those of `dhtcrawl join`, on loopback ports that
the system chose, in a swarm that is closed: its secret is drawn anew for each
run, told to the processes on their stdin, and kept nowhere. The same command
goes on with them after an interruption.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from dhtcrawl.cli import differs
from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.child import order_of
from dhtcrawl.cli.children import Child, started
from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.collected import tell_gathered
from dhtcrawl.cli.earlier import holds_failed, is_deeper
from dhtcrawl.cli.ended_nodes import ended_nodes
from dhtcrawl.cli.gather import gather
from dhtcrawl.cli.main import fail, tell
from dhtcrawl.cli.new_keys import keys_for
from dhtcrawl.cli.node_logs import kept_log, last_message, relayed_logs
from dhtcrawl.cli.orphans import freed
from dhtcrawl.cli.places import check_whole, node_dir, nodes_dir, remove_left, remove_nodes, remove_unbegun
from dhtcrawl.cli.runtime import STORE_DIR, locked, raise_file_limit
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.signals import ENDING, hang_ups
from dhtcrawl.cli.source import ask_about
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.cli.wait import Interrupted, follow
from dhtcrawl.cli.words import some
from dhtcrawl.closed.secret import SECRET_BYTES, Ring
from dhtcrawl.config import Config, CrawlSettings, NodeSettings
from dhtcrawl.crawl.budget import is_raised
from dhtcrawl.errors import DhtcrawlError, Exit, StorageFull, UsageError
from dhtcrawl.identity import FILE_NAME
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR
from dhtcrawl.storage.store.crawl_record import STOPPED
from dhtcrawl.units import parse_address

LOGS_DIR = "logs"
SLOW_S = 15.0
STOP_S = 30.0  # and what requests in flight may take
_ANY_PORT: Final = ("127.0.0.1", 0)


def crawl_with(nodes: int, config: Config, spec: CrawlSpec, out: Path, as_json: bool) -> int:
    """Crawl to the end with `nodes` processes; the exit code.

    Raises:
        UsageError: the directory holds another crawl, or this one complete.
        StoreInUse: another command is at work there.
        ConfigError, UsageError: `fetch.concurrency` takes more open files than the system allows.
        NothingFetched: no seed brought a page.
        StorageError: the outputs cannot be written.
        DhtcrawlError: a node does not start, or sends nonsense.
    """
    raise_file_limit(config)  # here, where the option is known; the nodes inherit it
    _check(nodes, nodes_dir(out), out, spec)
    with started(nodes, closed=True) as children:
        return asyncio.run(_crawl(children, config, spec, out, as_json))


def _check(nodes: int, base: Path, out: Path, spec: CrawlSpec) -> None:
    there = _nodes_in(base)
    if there and len(there) != nodes:
        remove_unbegun(out)
        there = _nodes_in(base)
    if there and len(there) != nodes:
        raise UsageError(f"{out} holds a crawl with {len(there)} nodes; use --nodes {len(there)} to go on with it")
    if not there:
        remove_left(out)
        if (node_dir(out) / FILE_NAME).exists():
            raise UsageError(f"{out} holds a crawl by one node; leave out --nodes, or name another --out")
        if (node_dir(out) / STORE_DIR).exists() and not holds_failed(node_dir(out)):
            way = ", or leave out --nodes: one node goes on to this --depth" if is_deeper(node_dir(out), spec) else ""
            raise UsageError(f"{out} holds another crawl, or this one complete; name another directory with --out{way}")
        check_whole(out, node_dir(out))


def _nodes_in(base: Path) -> list[str]:
    return sorted(path.name for path in base.glob("*") if path.is_dir()) if base.is_dir() else []


async def _crawl(children: Sequence[Child], config: Config, spec: CrawlSpec, out: Path, as_json: bool) -> int:
    base = nodes_dir(out)
    if not (out / ARCHIVE_DIR).is_dir():
        # Outputs that were removed are gathered once more: the nodes have all of it.
        shutil.rmtree(node_dir(out) / STORE_DIR, ignore_errors=True)
    nodes, drain_s = len(children), config.node.drain_timeout_s
    ring = Ring.of((secrets.token_bytes(SECRET_BYTES),))
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(base))  # which makes it; a second command is told so at once
        await freed([base / str(number) for number in range(1, nodes + 1)], Screen())
        logs = await stack.enter_async_context(relayed_logs())
        swarm: list[_Process] = []
        keys = await keys_for([base / str(number) for number in range(1, nodes + 1)], (), ring)
        for number, child in enumerate(children, 1):
            data_dir = base / str(number)
            data_dir.mkdir(exist_ok=True)
            log = node_dir(out) / LOGS_DIR / f"{number}.log"
            since = stack.enter_context(kept_log(log))
            logs.follow(log, since)
            process = _Process(child, data_dir, _Log(log, since))
            stack.push_async_callback(process.end)
            process.run(config, ring, swarm[0].address if swarm else None, keys[number - 1])
            swarm.append(process)
            if number == 1:
                await process.ready()
        for process in swarm[1:]:
            await process.ready()
        client = await stack.enter_async_context(NodeClient(parse_address(swarm[0].admin)))
        crawl, resumed = await _find_or_submit(client, spec, out)
        screen = Screen()
        screen.say(f"{'going on with' if resumed else 'crawling'} {some(spec.all_seeds)} with {nodes} nodes")
        try:
            end: dict[str, Any] | None = await _follow(client, crawl, screen, swarm, drain_s)
        except Interrupted:
            end = None
            await _drain(swarm, drain_s)
        asked = await ask_about(client, crawl)
        await _stop(swarm, drain_s)
    data_dirs = {process.node: process.data_dir for process in swarm}
    with ended_nodes(asked.record.crawl_id, asked.nodes, data_dirs) as source, locked(node_dir(out)):
        check_whole(out, node_dir(out))
        summary, _ = await gather(source, asked.record, out, node_dir(out), asked.facts, sync=config.storage.sync)
        if summary.complete and end is not None:
            remove_nodes(out)
    return await tell_gathered(summary, STOPPED if end is None else str(end.get("ended", "")), out, as_json=as_json)


async def _follow(
    client: NodeClient, crawl: str, screen: Screen, swarm: list[_Process], drain_s: float
) -> dict[str, Any]:
    """The crawl as it was in the end.

    Raises:
        Interrupted: the user wants no more of it.
        DhtcrawlError: a process ended before, for want of space most likely; the others were stopped.
    """
    gone: list[_Process] = []
    interrupted = False
    end: dict[str, Any] = {}

    async def watch(process: _Process) -> None:
        await process.wait()
        gone.append(process)
        following.cancel()

    async def run() -> None:
        nonlocal end, interrupted
        try:
            end = await follow(client, crawl, screen)
        except Interrupted:
            interrupted = True
        finally:
            for watcher in watchers:
                watcher.cancel()

    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(watch(process)) for process in swarm]
        following = group.create_task(run())
    if interrupted:
        raise Interrupted
    if gone:
        screen.clear()
        await _stop([process for process in swarm if process is not gone[0]], drain_s)
        raise gone[0].failure()
    return end


async def _find_or_submit(client: NodeClient, spec: CrawlSpec, out: Path) -> tuple[str, bool]:
    """The crawl of these nodes: the one that the same command began, or a new one."""
    for known in await client.crawls():
        crawl = str(known.get("crawl", ""))
        told = (await client.crawl(crawl)).get("spec")
        begun = differs.told(told)
        if not differs.is_like(begun, spec):
            raise differs.refusal(out, begun, spec)
        changes, ended = differs.changes(begun, spec), str(known.get("ended", ""))
        goes_on = not ended or is_raised(ended, differs.settings_of(begun, spec), spec.settings)
        if changes and goes_on:
            Screen().say(f"other limits from here on: {differs.changes_told(begun, spec)}")
        if goes_on and (changes or ended):
            await client.control(crawl, "resume", changes)
        return crawl, True
    return str((await client.submit(spec)).get("crawl", "")), False


# Processes


def settings_of(config: Config, data_dir: Path, *, first: bool) -> Config:
    """The settings of one of the nodes: of what the command was given, all but what the crawl is, and its place.

    The `first` one looks at the disk for all of them.
    """
    said = config.node
    own = NodeSettings(
        data_dir=str(data_dir),
        log_level=said.log_level,
        log_format="json",
        drain_timeout_s=said.drain_timeout_s,
        labels=said.labels,
        allowed_policies=said.allowed_policies,
        private_networks=said.private_networks,
    )
    storage = config.storage if first else dataclasses.replace(config.storage, disk_limit="")
    return dataclasses.replace(config, crawl=CrawlSettings(), node=own, storage=storage)


async def patiently(line: Awaitable[str], slow: Callable[[], None]) -> str:
    """What a node says once it takes part, however long that takes: there are many nodes, or it has much to read.

    `slow` is called once it takes longer than `SLOW_S`.
    """
    telling = asyncio.get_running_loop().call_later(SLOW_S, slow)
    try:
        return await line
    finally:
        telling.cancel()


class _Log(NamedTuple):
    """A node's log, and where in it this run begins."""

    path: Path
    since: int


class _Process:
    """A node process that was started."""

    def __init__(self, child: Child, data_dir: Path, log: _Log) -> None:
        self.data_dir = data_dir
        self._log = log
        self.node = self.address = self.admin = ""
        self._child = child

    def run(self, config: Config, ring: Ring, bootstrap: str | None, key: str) -> None:
        """Have it run a node; what a crawl is goes with the crawl."""
        join = JoinOptions(
            bootstrap=(parse_address(bootstrap),) if bootstrap is not None else (),
            listen=_ANY_PORT,
            advertise=None,
            admin=_ANY_PORT,
            open_swarm=False,
            as_json=True,
            secrets=ring.text(),
            gathered=True,
            key=key,
        )
        own = settings_of(config, self.data_dir, first=bootstrap is None)
        self._child.run(order_of(own, join, log=self._log.path, signals=False))

    async def ready(self) -> None:
        """Return once it takes part.

        Raises:
            DhtcrawlError: it ended instead.
        """
        line = await patiently(self._child.next_line(), self._is_slow)
        if not line:
            await self._child.wait()
            raise DhtcrawlError(f"a node did not start: {self._last_words()}")
        said = json.loads(line)
        self.node, self.address, self.admin = said["node"], said["address"], said["admin"]

    def _is_slow(self) -> None:
        Screen().say(f"still waiting for a node to take part; its log: {self._log.path}")

    async def tell(self, what: Callable[[NodeClient], Awaitable[object]]) -> None:
        if self._child.exit_code is None:
            async with NodeClient(parse_address(self.admin)) as client:
                try:
                    await what(client)
                except DhtcrawlError as error:
                    fail(f"a node did not stop in order: {error}")

    async def wait(self) -> None:
        await self._child.wait()

    def failure(self) -> DhtcrawlError:
        kind = StorageFull if self._child.exit_code == Exit.DISK_FULL else DhtcrawlError
        return kind(f"a node ended ({self._last_words()}); the same command goes on from what was written")

    def kill(self) -> None:
        self._child.kill()

    async def end(self) -> None:
        self._child.kill()
        await self._child.wait()

    def _last_words(self) -> str:
        words = last_message(self._log.path, self._log.since)
        return f"{words}; its log: {self._log.path}" if words else f"it said nothing (exit {self._child.exit_code})"


async def _stop(swarm: list[_Process], drain_s: float) -> None:
    async with asyncio.TaskGroup() as group:
        for process in swarm:
            group.create_task(process.tell(NodeClient.shutdown))
    try:
        async with asyncio.timeout(STOP_S + drain_s):
            for process in swarm:
                await process.wait()
    except TimeoutError:
        fail("the nodes took too long to stop, and were killed; nothing that was acknowledged is lost")
        for process in swarm:
            await process.end()


async def _drain(swarm: list[_Process], drain_s: float) -> None:
    """Wait until no node has anything under way; a second signal ends all of them at once."""
    loop = asyncio.get_running_loop()

    def now() -> None:
        STDERR.clear()
        tell("stopped at once; the same command goes on from what was written")
        for process in swarm:
            process.kill()
        os._exit(Exit.FORCED)

    for number in ENDING:
        loop.add_signal_handler(number, now)
    for number in hang_ups():
        loop.add_signal_handler(number, lambda: None)  # this is what it asks for
    tell("stopping; waiting for requests in flight (again: at once)")
    # All of them, before the first one goes: what one has in flight ends at others.
    async with asyncio.TaskGroup() as group:
        for process in swarm:
            group.create_task(process.tell(lambda client: client.drain(drain_s)))
