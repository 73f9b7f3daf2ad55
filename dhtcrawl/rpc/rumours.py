"""What is still to be told: each change so many times, the least told first, then the newest; without I/O.

Changes travel on the datagrams that are sent anyway (SWIM, Das et al. 2002,
section 4.1). With n members a change is told about 3 log2(n + 1) times by
every node that hears it; the chance that it misses somebody is then small,
and what gossip misses the exchange of all records mends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dhtcrawl.rpc.datagram import packed_bytes
from dhtcrawl.rpc.hello import ROWS_A_DATAGRAM_MAX, MemberRecord, Row

RETRANSMIT_FACTOR = 3


def tellings(members: int) -> int:
    """How often each node tells a change in a swarm of that size."""
    return math.ceil(RETRANSMIT_FACTOR * math.log2(members + 1))


@dataclass(slots=True)
class _Rumour:
    row: Row
    row_bytes: int
    number: int
    told: int = 0


class Rumours:
    """At most one a node: a newer change replaces the older."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, _Rumour] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, record: MemberRecord) -> None:
        """A change, to be told from now on."""
        row = record.row()
        self._count += 1
        self._by_id[record.id] = _Rumour(row, packed_bytes(row), self._count)

    def drop(self, node_id: bytes) -> None:
        """Nobody has to hear of this node any more."""
        self._by_id.pop(node_id, None)

    def take(self, room_bytes: int, members: int, rows_max: int = ROWS_A_DATAGRAM_MAX) -> list[Row]:
        """As many rows as fit; they count as told once more."""
        rows: list[Row] = []
        enough = tellings(members)
        for node_id, rumour in sorted(self._by_id.items(), key=lambda item: (item[1].told, -item[1].number)):
            if len(rows) >= rows_max:
                break
            if rumour.row_bytes > room_bytes:
                continue
            room_bytes -= rumour.row_bytes
            rows.append(rumour.row)
            rumour.told += 1
            if rumour.told >= enough:
                del self._by_id[node_id]
        return rows
