"""Calls of `swarm/membership`: a newcomer begins to own. No I/O."""

from typing import Annotated, NamedTuple

from dhtcrawl.keyspace import CRAWL_ID_BYTES, INCARNATION_MAX, KEY_BYTES
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap, integer, octets, or_nil, rows
from dhtcrawl.swarm.calls.hosts import HOST_ROWS_MAX, HostStateRow, is_host_state
from dhtcrawl.swarm.calls.words import KEYS_MAX, TaskKeys


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
