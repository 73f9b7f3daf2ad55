"""A node whose address others do not reach, one that takes no connections, and one whose address changes."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from policy_bench.lab import site

from .chaos_nodes import ADMIN, PORT, OnHost
from .crawler import Running
from .deadline import until
from .netns import SBIN, SUBNET, Hosts, Unavailable
from .swarm import ASK_EVERY_S, DEADLINE_S

# What a NAT does to those outside: they get answers through, and nothing else.
BEHIND_NAT = """
table inet nat {
  chain input {
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
  }
}
"""


class Machines(Hosts):
    """A few hosts, and nodes on them that listen on every address."""

    def __init__(self, home: Path, names: list[str]) -> None:
        super().__init__(names)
        self._home = home

    def node(self, name: str, *options: str) -> Running:
        argv = ["join", "--json", "--open-swarm", "--admin", ADMIN, "--data-dir", str(self._home / name / "data")]
        argv += ["--allow-network", f"{SUBNET}.0/24"]
        # The whole site fits into one lease otherwise, and a node that comes later has none of it.
        argv += ["--set", "swarm.lease_requests=8"]
        return OnHost(self._home / name, self, name, forked=True).start(*argv, *options)

    def ask(self, name: str, path: str, body: object = None) -> Any:
        """What the node on a host answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{ADMIN}/api/v1/{path}", data, {"Content-Type": "application/json"})
        with self.on(name), urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def addresses(self, asked: str, state: str = "active") -> set[str]:
        """Where the node on a host knows the members of this state to be."""
        try:
            rows: list[dict[str, Any]] = self.ask(asked, "peers")
        except urllib.error.URLError:
            return set()  # it has just been started
        return {row["address"] for row in rows if row["state"] == state}

    def hide(self, name: str) -> None:
        """Let nothing into a host from here on but answers."""
        env = {"PATH": SBIN}
        subprocess.run([*self.wrapper(name), "nft", "-f", "-"], input=BEHIND_NAT, text=True, check=True, env=env)

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
def test_an_address_that_nobody_reaches_ends_a_node_or_it_fetches_for_others_and_one_that_changes_is_told(
    machines: Machines, tmp_path: Path
) -> None:
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
        machines.hide("second")
        hidden = machines.node("second", "--bootstrap", first, "--outbound-only")
        try:
            known = "the hidden one is a member"
            hidden_at = {f"{SUBNET}.22:{PORT}"}
            until(lambda: machines.addresses("first", "outbound") == hidden_at, known, DEADLINE_S, ASK_EVERY_S)
            with site(machines, tmp_path, 60, 2_000, "first") as web:
                settings = {"delay_s": "0.1", "allow_private": True, "policy": "balanced"}
                crawl = machines.ask("first", "crawls", {"seeds": [web.url], "settings": settings})["crawl"]
                ended = "the crawl ends"
                of_crawl = f"crawls/{crawl}"
                until(lambda: machines.ask("first", of_crawl)["ended"] != "", ended, DEADLINE_S, ASK_EVERY_S)
                assert machines.ask("first", of_crawl)["ended"] == "complete"
                facts = machines.ask("first", f"{of_crawl}/export/nodes")
                pages = [fact["counters"]["pages"] for fact in facts]
                assert (len(pages), sum(pages)) == (2, 60)
                assert min(pages) > 0, "owners lend to it"
                assert web.totals()[:2] == (60, 0)
        finally:
            hidden.kill()
        until(lambda: not machines.addresses("first", "outbound"), "it is missed", DEADLINE_S, ASK_EVERY_S)
    finally:
        one.kill()
