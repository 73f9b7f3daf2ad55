"""Calls of `swarm/membership`: a newcomer is tried, and begins to own. No I/O."""

from typing import Annotated, NamedTuple

from dhtcrawl.keyspace import CRAWL_ID_BYTES, INCARNATION_MAX, KEY_BYTES
from dhtcrawl.rpc.contact import HOST_CHARS_MAX
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap, flag, integer, octets, or_nil, rows, text
from dhtcrawl.swarm.calls.hosts import HOST_ROWS_MAX, HostStateRow, is_host_state
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done, TaskKeys
from dhtcrawl.units import PORT_MAX


class HeldRow(NamedTuple):
    """Tasks of a crawl that the newcomer owns now and that are in flight at a node."""

    crawl: Annotated[bytes, octets(CRAWL_ID_BYTES)]
    keys: TaskKeys
    node: Annotated[bytes | None, or_nil(octets(KEY_BYTES))]


class Activated(WireMap):
    """Answer to `activate`."""

    held: Annotated[
        tuple[HeldRow, ...],
        rows(HeldRow, KEYS_MAX),
        "what the answering node has in flight (nil), or another, of the newcomer's; up to 8,000 keys in all",
    ]
    hosts: Annotated[
        tuple[HostStateRow, ...],
        rows(HostStateRow, HOST_ROWS_MAX, where=is_host_state),
        "hosts whose gatekeeper the newcomer is now",
    ]


class Activate(CallArgs[Activated], name="activate", reply_bytes_max=512 * 1024):
    """A newcomer owns from now on. Refused: `not-a-member`, where gossip does not know it yet."""

    incarnation: Annotated[int, integer(0, INCARNATION_MAX)]


class TriedAddress(WireMap):
    """Answer to `try_me`."""

    datagram: Annotated[bool, flag(), "whether a datagram from a new port was answered by the asker"]
    connection: Annotated[bool, flag(), "whether a new connection was"]


class TryMe(CallArgs[TriedAddress], name="try_me", timeout_s=10.0):
    """A newcomer asks whether it can be reached at the address that it tells.

    Refused: `not-a-member`, where that is not the address in its record, and `busy`.
    """

    host: Annotated[str, text(HOST_CHARS_MAX, 1)]
    port: Annotated[int, integer(1, PORT_MAX)]


class Here(CallArgs[Done], name="here", timeout_s=4.0):
    """A node that was asked to try reaches the asker, over a connection of its own."""

    node: Annotated[bytes, octets(KEY_BYTES), "the one that is looked for"]
