"""All records, both ways: the call `members` of the task plane (memberlist's push-pull).

Gossip reaches nearly every member nearly always; the exchange brings the rest, and
tells a newcomer what happened before it came. Both sides send their records in
order of id, a page at a time (`MemberRows`). The cursor of a question is that
of the answer before; an empty one in an answer says that it was the last page.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any, NamedTuple

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.hello import MemberRecord, parse_records
from dhtcrawl.rpc.membership.member_rows import ROWS_A_CALL_MAX, ExchangeMembers, MemberRows
from dhtcrawl.rpc.membership.members import Learned, Members
from dhtcrawl.rpc.membership.probe import GossipCounters

# 4,096 members and 1,024 that are gone make 10 pages; a peer that never comes to an end is left alone.
CALLS_MAX = 16
ROWS_A_TURN = 64
# A cursor that nothing comes after: the other side has told all, we have not.
_BEHIND_ALL = b"\xff" * KEY_BYTES
_id_of = attrgetter("id")


# Ask the node with this address and id for `members`: its answer, or None.
AskMembers = Callable[[Address, bytes, ExchangeMembers], Awaitable[MemberRows | None]]


class TaskPlane(NamedTuple):
    """What membership has of the task plane."""

    ask_members: AskMembers
    # The seconds since a node was heard over a connection that it made; None without one.
    heard_s: Callable[[bytes], float | None]


class MemberExchange:
    """One node's side of it, asking and asked."""

    def __init__(
        self,
        members: Members,
        ask: AskMembers,
        clock: Clock,
        counters: GossipCounters,
        heard: Callable[[Learned, MemberRecord | None], None],
    ) -> None:
        self._members = members
        self._ask = ask
        self._clock = clock
        self.counters = counters
        self._heard = heard

    def learn(self, rows: Any, sender: bytes | None, sees: int = 0, *, news: bool = True, of_us: bool = True) -> None:
        """Take in rows that a node sent, as far as they are any; of an unknown node, as if it was where we are.

        Without `of_us` what they say of this node does not count.
        """
        known = None if sender is None else self._members.get(sender)
        records, bad = parse_records(rows, (known or self._members.me).host, ROWS_A_CALL_MAX)
        self.counters.bad_rows += bad
        if not of_us:
            records = [record for record in records if record.id != self._members.me.id]
        learned = self._members.learn(records, self._clock.monotonic(), sender=sender, sees=sees, news=news)
        self._heard(learned, known)

    def answer(self, asker: bytes, asked: ExchangeMembers) -> MemberRows:
        # Anybody may ask. What one that never was a member says of this node would have it refute, or join again; who
        # took it for dead says so when this node asks.
        self.learn(asked.rows, asker, asked.sees, of_us=self._members.get(asker) is not None)
        return self._page(asked.cursor)

    async def with_(self, address: Address, node_id: bytes, *, news: bool = True) -> bool:
        """Exchange all records with a node; False when it did not answer, or not to the end."""
        theirs = ours = b""
        more = True
        for _ in range(CALLS_MAX):
            page = self._page(ours if more else _BEHIND_ALL)
            ours, more = page.cursor, page.cursor != b""
            answer = await self._ask(address, node_id, ExchangeMembers(page.rows, theirs, page.sees))
            if answer is None:
                self.counters.exchanges_failed += 1
                return False
            for first in range(0, len(answer.rows), ROWS_A_TURN):
                self.learn(answer.rows[first : first + ROWS_A_TURN], node_id, answer.sees, news=news)
                if first + ROWS_A_TURN < len(answer.rows):
                    await asyncio.sleep(0)  # to check the signatures of hundreds takes its time
            theirs = answer.cursor or _BEHIND_ALL
            if theirs == _BEHIND_ALL and not more:
                self.counters.exchanges += 1
                return True
        self.counters.exchanges_failed += 1
        return False

    def _page(self, cursor: bytes) -> MemberRows:
        records = self._members.records(self._clock.monotonic())
        first = bisect_right(records, cursor, key=_id_of)
        page = records[first : first + ROWS_A_CALL_MAX]
        after = page[-1].id if len(records) > first + len(page) else b""
        return MemberRows(tuple(record.row() for record in page), after, self._members.sees())
