"""`dhtcrawl join --nodes N`: several nodes of a swarm on this machine, each a process of its own.

    start ─▶ all take part ─▶ asked to leave ─▶ all have left
      `── one does not ──────────▲

Each node is one of `dhtcrawl join`, with its own ports and data directory (`counted`). Without `--bootstrap` the first
one begins the swarm, and the others join through it. One that ends by itself is told, and the others go on: they take
over what it held, as from any node of a swarm. A signal to a node's own process is for that node alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.child import order_of
from dhtcrawl.cli.children import Child, started
from dhtcrawl.cli.counted import NodePlace, command_of, counted, not_run
from dhtcrawl.cli.main import fail, say, tell
from dhtcrawl.cli.new_keys import keys_for
from dhtcrawl.cli.runtime import raise_file_limit
from dhtcrawl.cli.service import ServiceManager
from dhtcrawl.cli.signals import orderly_end
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.closed.secret import parse_ring
from dhtcrawl.config import Config
from dhtcrawl.errors import Exit
from dhtcrawl.units import parse_address


def run_nodes(nodes: int, config: Config, join: JoinOptions) -> int:
    """Run so many nodes until they are stopped; the exit code of the first that did not end well, else 0.

    Raises:
        UsageError: there is no room for so many.
        DhtcrawlError: the system does not allow so many processes, or open files.
    """
    raise_file_limit(config)  # here, where the option is known; the nodes inherit it
    data_dir = Path(config.node.data_dir)
    places = counted(nodes, join, data_dir)
    left = not_run(nodes, data_dir)
    if left:
        more = f" and {len(left) - 1} more hold" if len(left) > 1 else " holds"
        STDERR.note(
            f"{left[0]}{more} nodes of an earlier run that do not run now; --nodes {nodes + len(left)} starts them, too"
        )
    with started(nodes, closed=bool(join.secrets)) as children:
        return asyncio.run(_Nodes(config, places, children).run())


class _Node:
    """One of the processes."""

    def __init__(self, config: Config, place: NodePlace, child: Child) -> None:
        self.place = place
        self.child = child
        self.address = ""
        self._config = config

    def start(self, bootstrap: str | None, key: str) -> None:
        """Have it run; `bootstrap` is a node to join through besides those that the user named, `key` its own."""
        join = dataclasses.replace(self.place.join, as_json=True, as_soon=True, key=key)
        if bootstrap is not None:
            join = dataclasses.replace(join, bootstrap=(parse_address(bootstrap),))
        node = dataclasses.replace(self._config.node, data_dir=str(self.place.data_dir))
        config = dataclasses.replace(self._config, node=node)
        label = f"node {self.place.number}"
        self.child.run(order_of(config, join, label=label, quiet=STDERR.quiet, signals=True))

    async def listens(self) -> bool:
        """Return once it has an address; False if it ended instead."""
        if not self.address:
            said = await self.child.next_line()
            self.address = said
        return bool(self.address)

    async def ready(self, of: int) -> bool:
        """Say where it is once it takes part; False if it ended instead."""
        if not await self.listens():
            return False
        line = await self.child.next_line()
        if not line:
            return False
        said = json.loads(line)
        if self.place.join.as_json:
            say(json.dumps({**said, "data_dir": str(self.place.data_dir)}))
        else:
            scheme = "https" if self._config.node.admin_cert else "http"
            say(
                f"node {self.place.number} of {of}, {said['node'][:12]}, at {said['address']}; "
                f"commands and browsers: {scheme}://{said['admin']}/; data: {self.place.data_dir}"
            )
        return True

    def command(self) -> str:
        """What starts it again alone."""
        return command_of(self.place, self._config)


class _Nodes:
    """All of them, from their start to their end."""

    def __init__(self, config: Config, places: Sequence[NodePlace], children: Sequence[Child]) -> None:
        self._nodes = [_Node(config, place, child) for place, child in zip(places, children, strict=True)]
        self._through = bool(places[0].join.bootstrap)
        self._open = places[0].join.open_swarm and not places[0].join.as_json
        self._all_there = self._leaving = False
        self._code = int(Exit.COMPLETE)

    async def run(self) -> int:
        at_once = "stopped at once; what the nodes acknowledged is on their disks"
        with orderly_end(self._asked, at_once=at_once):
            async with asyncio.TaskGroup() as around:
                following = around.create_task(ServiceManager(os.environ).follow(self._state))
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._start())
                    for node in self._nodes:
                        group.create_task(self._watch(node))
                following.cancel()
        return self._code

    def _state(self) -> str:
        return "leaving" if self._leaving else "active" if self._all_there else "joining"

    async def _start(self) -> None:
        join = self._nodes[0].place.join
        ring = parse_ring(join.secrets, "secrets") if join.secrets else None
        keys = await keys_for([node.place.data_dir for node in self._nodes], join.bootstrap, ring)
        first, *others = self._nodes
        first.start(None, keys[0])
        # Not "takes part": a node that knew others takes its time to find that none is there.
        if not self._through and not await first.listens():
            return
        for node, key in zip(others, keys[1:], strict=True):
            node.start(None if self._through else first.address, key)
        for node in self._nodes:
            if not await node.ready(len(self._nodes)):
                return
        self._all_there = True
        if self._open:
            tell("this swarm is open: whoever reaches its ports takes part; keep them inside networks you trust")

    async def _watch(self, node: _Node) -> None:
        code = await node.child.wait()
        self._code = self._code or (code if code > 0 else Exit.FAILURE if code < 0 else Exit.COMPLETE)
        if self._leaving and code >= 0:
            return  # what was wrong, the node itself has said
        how = _how(code)
        if not self._all_there:
            fail(f"node {node.place.number} {how} and does not take part: the others are stopped, too")
            self._leave()
        else:
            who = f"node {node.place.number} (process {node.child.pid})"
            more = "" if self._leaving else f"; the others go on, and this starts it again: {node.command()}"
            (tell if code == Exit.COMPLETE else fail)(f"{who} {how}{more}")

    def _asked(self) -> None:
        tell(f"leaving; {len(self._nodes)} nodes hand over what they hold (again: at once)")
        self._leave()

    def _leave(self) -> None:
        self._leaving = True
        for node in self._nodes:
            node.child.leave()


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}" if code else "has left"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}"
