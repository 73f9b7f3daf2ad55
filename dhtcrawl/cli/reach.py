"""Which private networks a node reaches: those that it names, or what crawls allow while all are of this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from dhtcrawl.config import Config
from dhtcrawl.fetch.guard import AS_CRAWLS_ALLOW, PrivateNetworks
from dhtcrawl.units import Address, format_address, is_loopback

log = logging.getLogger(__name__)


class NetworkReach:
    """The private networks of one node.

    A node with loopback addresses alone may still come into a swarm of several machines, through a node of its machine
    that is in it or through nodes that it remembers. It meets them before it knows their crawls.
    """

    def __init__(self, config: Config, *, on_loopback: bool) -> None:
        """`on_loopback` says that the node's own addresses are all there."""
        words = [word for word in config.node.private_networks if word]  # an empty one is an unset variable
        self.networks = AS_CRAWLS_ALLOW if on_loopback and not words else PrivateNetworks.named(words)

    def met(self, addresses: Iterable[Address]) -> None:
        """Once one of these is beyond loopback, allow nothing more until the node ends, but what a setting names."""
        if self.networks is not AS_CRAWLS_ALLOW:
            return
        far = next((address for address in addresses if not is_loopback(address[0])), None)
        if far is not None:
            log.warning(
                "the swarm has a node on another machine, at %s: from now on this one reaches no private addresses,"
                " for crawls may come from there; name those that it may with --allow-network",
                format_address(far),
            )
            self.networks = PrivateNetworks(())
