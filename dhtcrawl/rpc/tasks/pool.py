"""Which connections a node has, which of them serves an address, and which one makes room for another.

    serving(address, node) the connection that requests to a node at an address take
    made_by(node)          the one that a node has made which listens nowhere
    take_least_used()      the idle one that may go
    part_with(connection)  it no longer counts, and waits for the peer's goodbye
    opened(connection)     the handshake is done: which ones are doubles of others now

Nothing is sent or closed here: the pool says which connection is to go, and `TaskTransport` lets it go.
"""

from __future__ import annotations

from dhtcrawl.rpc.tasks.connection import Address, Connection
from dhtcrawl.rpc.tasks.link import LinkState
from dhtcrawl.rpc.tasks.loads import Loads

_UNPROVEN = (LinkState.GREETED, LinkState.PROVING)


class ConnectionPool:
    """At most `connections_max` connections, and as many more that are parting."""

    def __init__(self, connections_max: int) -> None:
        self.loads = Loads()  # by address
        self._connections_max = connections_max
        self._connections: dict[Connection, None] = {}  # in the order they were made
        self._by_address: dict[Address, Connection] = {}
        self._callers: dict[bytes, dict[Connection, None]] = {}  # made by nodes that do not listen, the latest last
        # So that a node with hundreds of connections does not look at all of them for each new one:
        self._opened: dict[Address, dict[Connection, None]] = {}
        self._greeting: dict[Connection, None] = {}  # accepted, and not opened yet
        self._unused: list[tuple[float, Connection]] = []  # idle ones at some moment, the least used last
        self._parting: dict[Connection, None] = {}  # that made room, and wait for the peer's goodbye

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, connection: object) -> bool:
        """Whether a connection counts."""
        return connection in self._connections

    def open(self) -> list[Connection]:
        """The connections that count, in the order in which they were made."""
        return list(self._connections)

    def all(self) -> list[Connection]:
        """The connections that count, and those that are ending."""
        return [*self._connections, *self._parting]

    def greeting(self) -> list[Connection]:
        """Accepted ones that have not said who they are, the first to come first."""
        return [connection for connection in self._greeting if connection.link.state in _UNPROVEN]

    @property
    def has_room(self) -> bool:
        """Whether there may be one more."""
        return len(self._connections) < self._connections_max

    def serving(self, address: Address, node_id: bytes | None = None) -> Connection | None:
        """The connection that requests to an address take, where there is a usable one; with `node_id`, to that node.

        Who has made a connection only says at which port it listens. Behind a NAT that may be the port by which another
        node is reached, so where another has said it the address is to be dialed.
        """
        connection = self._by_address.get(address)
        if connection is None or not connection.usable:
            return None
        if node_id is None or _is_with(connection, node_id):
            return connection
        made = (each for each in self._opened.get(address, ()) if each.usable and _is_with(each, node_id))
        return next(made, connection if connection.address is not None else None)

    def made_by(self, node_id: bytes) -> Connection | None:
        """The latest usable connection that a node has made which does not listen; None where there is none."""
        return next((each for each in reversed(self._callers.get(node_id, {})) if each.usable), None)

    def add(self, connection: Connection) -> None:
        """A new one; one that we dial serves its address at once, also while it is being made."""
        self._connections[connection] = None
        if connection.address is None:
            self._greeting[connection] = None
        else:
            self._by_address[connection.address] = connection

    def opened(self, connection: Connection, node_id: bytes) -> list[Connection]:
        """The peer said that it is `node_id`; which connections to its address are to go, this one perhaps."""
        self._greeting.pop(connection, None)
        address = listening_address(connection)
        if address is None:
            self._callers.setdefault(node_id, {})[connection] = None  # an earlier one ends by itself
            return []
        opened = self._opened.setdefault(address, {})
        others = [other for other in opened if other is not connection and other.link.state is LinkState.OPEN]
        opened[connection] = None
        best, doubles = connection, []
        for other in others:
            assert other.link.peer is not None
            if other.link.peer.node_id != node_id:
                # Another node than before has taken its place, if both were found there and have not only said so.
                if connection.address is not None and other.address is not None:
                    doubles.append(other)
            # Both ends see both connections and choose the same.
            elif _dialer(other) < _dialer(connection):
                best = other
                doubles.append(connection)
            else:
                doubles.append(other)
        known = self._by_address.get(address)
        # One that we are just dialing keeps its callers; it will meet this one when it opens.
        if known is None or not known.usable or known.link.state is LinkState.OPEN:
            self._by_address[address] = best
        return doubles

    def take_least_used(self) -> Connection | None:
        """The least recently used of those that are open and idle, of several the one made first.

        It is no longer looked at by the next call.
        """
        found = self._unused_since_then()
        if found is None:
            latest_first = reversed(self._connections)
            links = [(c.link.used_at, c) for c in latest_first if c.link.state is LinkState.OPEN and c.link.idle]
            self._unused = sorted(links, key=_used_at, reverse=True)  # as they were, where used at the same moment
            found = self._unused_since_then()
        return found

    def _unused_since_then(self) -> Connection | None:
        # What was used since comes after all that was not.
        while self._unused:
            used_at, connection = self._unused.pop()
            link = connection.link
            unused = link.used_at == used_at and link.state is LinkState.OPEN and link.idle
            if unused and connection in self._connections:
                return connection
        return None

    def part_with(self, connection: Connection) -> Connection | None:
        """Give its place away; where too many are parting, the one that has been for the longest, to be cut."""
        self.forget(connection)
        self._parting[connection] = None
        if len(self._parting) <= self._connections_max:
            return None
        longest = next(iter(self._parting))
        del self._parting[longest]
        return longest

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is gone, or does not count any more."""
        self.loads.close(connection)
        for held in (self._connections, self._greeting, self._parting):
            held.pop(connection, None)
        address, peer = listening_address(connection), connection.link.peer
        if address is None:
            if peer is not None and (made := self._callers.get(peer.node_id)) is not None:
                made.pop(connection, None)
                if not made:
                    del self._callers[peer.node_id]
            return
        if self._by_address.get(address) is connection:
            del self._by_address[address]
        if opened := self._opened.get(address):
            opened.pop(connection, None)
            if not opened:
                del self._opened[address]


def listening_address(connection: Connection) -> Address | None:
    """Where the peer of a connection takes connections itself; None where it does not say."""
    if connection.address is not None:
        return connection.address
    peer = connection.link.peer
    return (connection.remote_host, peer.port) if peer is not None and peer.port else None


def _is_with(connection: Connection, node_id: bytes) -> bool:
    """Whether a node is at the other end of a connection, or may be: it has not said yet who it is."""
    peer = connection.link.peer
    return peer is None or peer.node_id == node_id


def _used_at(item: tuple[float, Connection]) -> float:
    return item[0]


def _dialer(connection: Connection) -> bytes:
    """The node that made a connection."""
    link = connection.link
    assert link.peer is not None
    return link.hello.node_id if connection.address is not None else link.peer.node_id
