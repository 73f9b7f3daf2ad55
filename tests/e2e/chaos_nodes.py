"""Nodes of a swarm on hosts of their own: what `swarm` has, in namespaces, and what can be done to them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dhtcrawl.units import format_address

from .crawler import Crawler, Running
from .netns import SUBNET, Hosts
from .swarm import Node, Swarm

PORT = 8468
ADMIN = "127.0.0.1:8469"
WELL_KNOWN = 3  # nodes that everybody is started with as --bootstrap


class Guest(Node):
    """A node on a host of its own."""

    def __init__(self, hosts: Hosts, name: str, home: Path, options: Sequence[str], *, forked: bool = False) -> None:
        super().__init__(OnHost(home, hosts, name, forked=forked), home / "data", options)
        self.home = home
        self.host = name
        self.admin = ADMIN
        self._hosts = hosts
        self._listen = format_address((hosts.address(name), PORT))

    def start(self, *bootstrap: str, listen: str = "") -> Self:
        return super().start(*bootstrap, listen=listen or self._listen)

    def ask(self, path: str) -> Any:
        with self._hosts.on(self.host):
            return super().ask(path)

    def signal(self, number: signal.Signals) -> None:
        """To its process; one that has ended takes no notice."""
        if self.alive:
            self.running.send(number)

    def said(self) -> str:
        """All that it ever printed on stderr, over all its starts."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.home.glob("*.err")))


class OnHost(Crawler):
    """Commands run on a host; those that are forked have the host's network, and nothing else of its wrapper."""

    def __init__(self, home: Path, hosts: Hosts, name: str, *, forked: bool = False) -> None:
        super().__init__(home)
        self._wrapper = hosts.wrapper(name)
        self._namespace = hosts.file(name) if forked else None
        # A node is started again and again: what it imports is compiled once for all of them, even where Python is not
        # to leave that beside the source.
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(home.parent / "compiled")}
        self._env = compiled if os.environ.get("PYTHONDONTWRITEBYTECODE") else {}

    def start(self, *argv: str | Path, env: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()) -> Running:
        if self._namespace is not None and not wrapper:
            return Running([str(word) for word in argv], self.home, env or {}, namespace=self._namespace)
        return super().start(*argv, env=self._env | dict(env or {}), wrapper=[*self._wrapper, *wrapper])


# They are each other's other machines, and the site is on their network.
REACHABLE = ["--open-swarm", "--allow-network", f"{SUBNET}.0/24"]


class Guests(Swarm):
    """Nodes on hosts."""

    def __init__(self, home: Path, hosts: Hosts, *options: str, forked: bool = False) -> None:
        super().__init__(home, *options)
        self.guests: list[Guest] = []
        self._hosts = hosts
        self._forked = forked

    def again(self, number: int) -> None:
        """Start a node as a service would: with the same few nodes to join through, whoever of them is there."""
        others = [guest.address for guest in self.guests if guest is not self.guests[number]]
        self.guests[number].start(*others[:WELL_KNOWN])

    def add(self, *options: str) -> Node:
        name = f"node{len(self.nodes)}"
        options = (*REACHABLE, *self._options, *options)
        guest = Guest(self._hosts, name, self._home / name, options, forked=self._forked)
        self.nodes.append(guest)
        self.guests.append(guest)
        return guest
