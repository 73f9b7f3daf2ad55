"""The stock library's routing table interface, over ours.

The library and code written for it speak of `Node`s and of `find_neighbors`;
`RoutingTable` speaks of contacts and takes the time. Nothing is kept here.
"""

from __future__ import annotations

from typing import Any

from kademlia.node import Node
from kademlia.routing import RoutingTable as StockTable

from dhtcrawl.rpc.contact import Contact
from dhtcrawl.rpc.discovery.table import RoutingTable


class Router(StockTable):  # type: ignore[misc]  # the library has no types
    """`KademliaProtocol.router`, for the methods that the library calls."""

    def flush(self) -> None:
        """Forget all contacts."""
        self._table.clear()

    def find_neighbors(self, node: Node, k: int | None = None, exclude: Node | None = None) -> list[Node]:
        """The k closest contacts that answer, closest first."""
        contacts = self._table.closest(node.id, (k or self.ksize) + 1, exclude=exclude.id if exclude else None)
        return [Node(*contact) for contact in contacts if contact.id != node.id][: k or self.ksize]

    def add_contact(self, node: Node) -> None:
        """Ping it: it adds itself by its answer."""
        self.protocol.verifier.verify(Contact(node.id, node.ip, node.port))

    def remove_contact(self, node: Node) -> None:
        """It is gone for certain."""
        self._table.drop(node.id)

    def is_new_node(self, node: Node) -> bool:
        """No contact of this id has been verified."""
        return self._table.get(node.id) is None

    def lonely_buckets(self) -> list[Any]:
        """None: `RoutingTable.stale_keys` says what to refresh."""
        return []

    @property
    def _table(self) -> RoutingTable:
        table: RoutingTable = self.protocol.table
        return table
