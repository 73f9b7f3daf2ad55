"""A node whose address others do not reach, and one whose address changes, on machines of their own."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .chaos_nodes import ADMIN, PORT, OnHost
from .crawler import Running
from .deadline import until
from .netns import SUBNET, Hosts, Unavailable
from .swarm import ASK_EVERY_S, DEADLINE_S


class Machines(Hosts):
    """A few hosts, and nodes on them that listen on every address."""

    def __init__(self, home: Path, names: list[str]) -> None:
        super().__init__(names)
        self._home = home

    def node(self, name: str, *options: str) -> Running:
        argv = ["join", "--json", "--open-swarm", "--admin", ADMIN, "--data-dir", str(self._home / name / "data")]
        return OnHost(self._home / name, self, name).start(*argv, *options)

    def addresses(self, asked: str) -> set[str]:
        """Where the node on a host knows the active members to be."""
        try:
            with self.on(asked), urllib.request.urlopen(f"http://{ADMIN}/api/v1/peers", timeout=60) as answer:
                rows: list[dict[str, Any]] = json.load(answer)
        except urllib.error.URLError:
            return set()  # it has just been started
        return {row["address"] for row in rows if row["state"] == "active"}

    def move(self, name: str, address: str) -> None:
        """Give a host another address, as DHCP may."""
        for change in (["del", f"{self.address(name)}/24"], ["add", f"{address}/24"]):
            subprocess.run([*self.wrapper(name), "ip", "address", *change, "dev", "eth0"], check=True)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    try:
        with Machines(tmp_path, ["first", "second"]) as machines:
            yield machines
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.needs_root
def test_an_address_that_nobody_reaches_ends_a_node_and_one_that_changes_is_told(machines: Machines) -> None:
    first, second = (f"{machines.address(name)}:{PORT}" for name in ("first", "second"))
    one = machines.node("first", "--advertise", first)
    try:
        until(lambda: one.ended or bool(one.outcome().stdout), "the first node is up", DEADLINE_S, ASK_EVERY_S)
        nobody = f"{SUBNET}.99:{PORT}"
        wrong = machines.node("second", "--bootstrap", first, "--advertise", nobody).wait().ended_with(33)
        assert f"does not reach this node at {nobody}, neither by UDP nor TCP, but see it at" in wrong.one_line()
        other = machines.node("second", "--bootstrap", first)
        try:
            everybody = "both are members"
            until(lambda: machines.addresses("first") == {first, second}, everybody, DEADLINE_S, ASK_EVERY_S)
            machines.move("second", f"{SUBNET}.22")
            moved = {first, f"{SUBNET}.22:{PORT}"}
            until(lambda: machines.addresses("first") == moved, "the new address is known", DEADLINE_S, ASK_EVERY_S)
            assert machines.addresses("second") == moved
        finally:
            other.kill()
    finally:
        one.kill()
