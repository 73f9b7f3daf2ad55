"""The changes to be told: each so many times, the least told first, then the newest; without I/O.

Changes travel on the datagrams that are sent anyway (SWIM, Das et al. 2002,
section 4.1). With n members a change is told about 3 log2(n + 1) times by
every node that hears it; the chance that it misses a member is then small,
and what gossip misses the exchange of all records mends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from dhtcrawl.rpc.discovery.datagram import packed_bytes
from dhtcrawl.rpc.membership.hello import ROWS_A_DATAGRAM_MAX, MemberRecord, Row

RETRANSMIT_FACTOR = 3
# So many entries of rumours that are no more may lie between the others, and as many as there are others.
STALE_MIN = 64


def tellings(members: int) -> int:
    """How often each node tells a change in a swarm of that size."""
    return math.ceil(RETRANSMIT_FACTOR * math.log2(members + 1))


# How often it was told, its number with the newest first, whom it is about.
_Entry = tuple[int, int, bytes]


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
        # By length of the row, who is told of first; the entry of a rumour that was replaced or dropped is passed over.
        self._orders: dict[int, list[_Entry]] = {}
        self._entries = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def put(self, record: MemberRecord) -> None:
        row = record.row()
        self._count += 1
        rumour = self._by_id[record.id] = _Rumour(row, packed_bytes(row), self._count)
        self._enter(record.id, rumour)
        if self._entries > STALE_MIN + 2 * len(self._by_id):
            self._orders, self._entries = {}, 0
            for node_id, known in self._by_id.items():
                self._enter(node_id, known)

    def drop(self, node_id: bytes) -> None:
        self._by_id.pop(node_id, None)

    def take(self, room_bytes: int, members: int, rows_max: int = ROWS_A_DATAGRAM_MAX) -> list[Row]:
        """Take as many rows as fit; they count as told once more."""
        rows: list[Row] = []
        told: list[tuple[bytes, _Rumour]] = []
        firsts = [(order[0], row_bytes, order) for row_bytes, order in self._orders.items() if self._trim(order)]
        heapify(firsts)
        while firsts and len(rows) < rows_max:
            (_, _, node_id), row_bytes, order = firsts[0]
            if row_bytes > room_bytes:
                heappop(firsts)  # nor does what is as long
                continue
            room_bytes -= row_bytes
            rumour = self._by_id[node_id]
            rows.append(rumour.row)
            told.append((node_id, rumour))
            heappop(order)
            self._entries -= 1
            if self._trim(order):
                heapreplace(firsts, (order[0], row_bytes, order))
            else:
                heappop(firsts)
        enough = tellings(members)
        for node_id, rumour in told:
            rumour.told += 1
            if rumour.told < enough:
                self._enter(node_id, rumour)
            else:
                del self._by_id[node_id]
        return rows

    def _enter(self, node_id: bytes, rumour: _Rumour) -> None:
        heappush(self._orders.setdefault(rumour.row_bytes, []), (rumour.told, -rumour.number, node_id))
        self._entries += 1

    def _trim(self, order: list[_Entry]) -> bool:
        """Whether anything is left, once what is no more has gone from the top."""
        by_id = self._by_id
        while order:
            _, place, node_id = order[0]
            rumour = by_id.get(node_id)
            if rumour is not None and rumour.number == -place:
                return True
            heappop(order)
            self._entries -= 1
        return False
