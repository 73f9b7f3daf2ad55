"""Hosts in regions: what `e2e.netns` has, with distances between the hosts in place of a bridge.

A host has an IPv4 address, an IPv6 address, or both; one that is hidden lets in answers only, as a NAT does.

Needs root, iproute2 and a kernel with TUN devices; `Unavailable` says what is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from e2e.netns import SUBNET, Hosts, Unavailable

from wan_lab.router import DEVICE, MTU_BYTES
from wan_lab.ways import Distance

TUN: Final = Path("/dev/net/tun")
READY: Final = "ready\n"
NEAR: Final = Distance(0.0005)
NETWORK6: Final = "fd77::/64"
FAMILIES: Final = {"ipv4": (4,), "ipv6": (6,), "dual": (4, 6)}
_HIDDEN: Final = """
table inet nat {
  chain input {
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
  }
}
"""


class Regions(Hosts):
    """Named hosts in regions, which reach one another over distances, until the block is left."""

    def __init__(
        self,
        places: Mapping[str, str],
        between: Mapping[tuple[str, str], Distance],
        *,
        seed: int = 1,
        family: str = "ipv4",
    ) -> None:
        """`places` has each host's region; `between`, what lies between two regions, one way, or within one.

        What is not said within a region is `NEAR`; all else has to be there, both ways. `family` is one of `FAMILIES`.
        """
        super().__init__(list(places))
        self._places = dict(places)
        self._between = dict(between)
        self._seed = seed
        self._versions = FAMILIES[family]
        self._router_process: subprocess.Popen[str] | None = None
        self._closed: set[tuple[str, str]] = set()

    def of(self, region: str) -> list[str]:
        """The hosts of a region."""
        return [name for name, place in self._places.items() if place == region]

    def addresses(self, name: str) -> list[str]:
        """All of a host, IPv4 first."""
        of_version = {4: super().address(name), 6: f"fd77::{1 + self.names.index(name):x}"}
        return [of_version[version] for version in self._versions]

    def address(self, name: str) -> str:
        """The first of a host."""
        return self.addresses(name)[0]

    def hide(self, name: str) -> None:
        """From here on nothing gets into a host but answers."""
        _run([*self.wrapper(name), "nft", "-f", "-"], _HIDDEN)

    def cut(self, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """From now on nothing of these senders reaches those receivers; the other way is open."""
        self._closed |= {(here, there) for here in senders for there in receivers}
        self._tell()

    def heal(self) -> int:
        """Every way is open again; what was dropped is not counted here, so 0."""
        self._closed.clear()
        self._tell()
        return 0

    def _tell(self) -> None:
        router = self._router_process
        assert router is not None, "entered"
        assert router.stdin is not None, "a pipe"
        router.stdin.write(json.dumps({"cut": sorted(self._closed)}) + "\n")
        router.stdin.flush()

    def distance(self, here: str, there: str) -> Distance:
        """What lies between two hosts, one way."""
        regions = self._places[here], self._places[there]
        return self._between.get(regions, NEAR) if regions[0] == regions[1] else self._between[regions]

    def _make(self) -> None:
        if not TUN.exists():
            raise Unavailable(f"{TUN} is missing: the kernel has no TUN devices")
        for name in self.names:
            _run(["ip", "netns", "add", self._namespace(name)])
        pairs = [(here, there) for here in self.names for there in self.names if here != there]
        config = {
            "seed": self._seed,
            "hosts": {n: {"namespace": self._namespace(n), "addresses": self.addresses(n)} for n in self.names},
            "distances": [(here, there, asdict(self.distance(here, there))) for here, there in pairs],
        }
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(config, file)
            file.flush()
            argv = [sys.executable, str(Path(__file__).with_name("router.py")), file.name]
            self._router_process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert self._router_process.stdout is not None, "a pipe"
            if self._router_process.stdout.readline() != READY:
                raise Unavailable("the router did not start")
        for name in self.names:
            up = ["link set lo up", f"link set {DEVICE} mtu {MTU_BYTES} up"]
            for address in self.addresses(name):
                length, network = (128, NETWORK6) if ":" in address else (32, f"{SUBNET}.0/24")
                # Nobody else has it: to look for one who has would take a second.
                nodad = " nodad" if ":" in address else ""
                up += [f"address add {address}/{length} dev {DEVICE}{nodad}", f"route add {network} dev {DEVICE}"]
            _run(["ip", "-netns", self._namespace(name), "-batch", "-"], "\n".join(up) + "\n")

    def _remove(self) -> None:
        super()._remove()
        if self._router_process is not None:
            self._router_process.kill()
            self._router_process.communicate()
            self._router_process = None


def _run(argv: Sequence[str], stdin: str = "") -> None:
    subprocess.run(list(argv), input=stdin, check=True, capture_output=True, text=True, timeout=60, env=os.environ)
