"""Every call that nodes answer: its name, its arguments, its answer and their limits. No I/O.

A call is a subclass of `CallArgs`, named after what is asked; the class in
brackets is the answer. It stands in the file of the room that answers it. A
node serves it with `CallRegistry.serve` in that room, and asks it with
`Peers.call`. `CALLS` is the table of all of them, and `docs/protocol-calls.md`
is made of it by `scripts/protocol_tables.py`. Links, records and tombstones do
not travel in calls but in messages of their own, `FRAMES`.

To add one: write the class, serve it, run the script. Where a call changes so
that an earlier version would misread it, raise `VERSION` in
`dhtcrawl.rpc.tasks.signals`.
"""

from types import ModuleType
from typing import Any, Final

from dhtcrawl.rpc.membership import member_rows
from dhtcrawl.rpc.tasks.messages import DeleteBackup, RefreshTask, StoreBackup, StoreTask
from dhtcrawl.rpc.tasks.schema import CallArgs
from dhtcrawl.swarm.calls import assignment, bodies, explain, hosts, lifecycle, membership, records

ROOMS: Final = (member_rows, membership, lifecycle, assignment, hosts, records, bodies, explain)


def _calls_of(room: ModuleType) -> list[type[CallArgs[Any]]]:
    own = [value for value in vars(room).values() if isinstance(value, type) and value.__module__ == room.__name__]
    return [value for value in own if issubclass(value, CallArgs)]


CALLS: Final = tuple(call for room in ROOMS for call in _calls_of(room))
BY_NAME: Final = {call.terms.name: call for call in CALLS}
# Requests with frames of their own: see `dhtcrawl.rpc.tasks.messages`.
FRAMES: Final = (StoreTask, StoreBackup, DeleteBackup, RefreshTask)
assert len(BY_NAME) == len(CALLS), "two calls have one name"
