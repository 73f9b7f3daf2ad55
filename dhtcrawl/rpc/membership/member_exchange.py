"""All records, both ways: the call `members` of the task plane (memberlist's push-pull).

Gossip reaches nearly everybody nearly always; the exchange mends the rest, and
gives a newcomer what happened before it came. Both sides send their records in
order of id, a page at a time:

    members  {"rows": [row, …], "cursor": id or b"", "sees": n}  →  the same

The cursor of a question is that of the answer before; an empty one in an
answer says that it was the last page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.contact import Address, parse_id
from dhtcrawl.rpc.membership.hello import ROW_BYTES_MAX, MemberRecord, Row, parse_records, parse_sees
from dhtcrawl.rpc.membership.members import Learned, Members
from dhtcrawl.rpc.membership.probe import GossipCounters
from dhtcrawl.rpc.tasks.frame import LIST_ITEMS_MAX
from dhtcrawl.rpc.tasks.messages import Refused

ROWS_A_CALL_MAX = LIST_ITEMS_MAX
# The longest answer: `reply_bytes_max` of the call.
REPLY_BYTES_MAX = ROWS_A_CALL_MAX * ROW_BYTES_MAX + 1024
# 4,096 members and 1,024 that are gone make 10 pages; a peer that never comes to an end is left alone.
CALLS_MAX = 16
# A cursor that nothing comes after: the other side has told all, we have not.
_BEHIND_ALL = b"\xff" * KEY_BYTES
_id_of = attrgetter("id")

# Ask the node with this address and id for `members`: its answer, or None.
AskMembers = Callable[[Address, bytes, dict[str, Any]], Awaitable[dict[str, Any] | None]]


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

    def rows(self) -> list[Row]:
        """All records, by id."""
        return [record.row() for record in self._members.records(self._clock.monotonic())]

    def learn(self, rows: Any, sender: bytes | None, sees: Any = 0, *, news: bool = True) -> None:
        """Take in rows that a node sent, as far as they are any; of an unknown node, as if it was where we are."""
        known = None if sender is None else self._members.get(sender)
        records, bad = parse_records(rows, (known or self._members.me).host, ROWS_A_CALL_MAX)
        self.counters.bad_rows += bad
        learned = self._members.learn(records, self._clock.monotonic(), sender=sender, sees=parse_sees(sees), news=news)
        self._heard(learned, known)

    def answer(self, asker: bytes, args: dict[str, Any]) -> dict[str, Any] | Refused:
        """The handler of `members`."""
        cursor = args.get("cursor", b"")
        if not isinstance(args.get("rows"), list | tuple) or not (cursor == b"" or parse_id(cursor)):
            return Refused("bad-args", "members: rows and cursor")
        self.learn(args["rows"], asker, args.get("sees"))
        return self._page(cursor)

    async def with_(self, address: Address, node_id: bytes, *, news: bool = True) -> bool:
        """Exchange all records with a node; False when it did not answer, or not to the end."""
        theirs = ours = b""
        more = True
        for _ in range(CALLS_MAX):
            page = self._page(ours if more else _BEHIND_ALL)
            ours, more = page["cursor"], page["cursor"] != b""
            answer = await self._ask(address, node_id, {**page, "cursor": theirs})
            if answer is None or not (parse_id(answer.get("cursor")) or answer.get("cursor") == b""):
                self.counters.exchanges_failed += 1
                return False
            self.learn(answer.get("rows"), node_id, answer.get("sees"), news=news)
            theirs = answer["cursor"] or _BEHIND_ALL
            if theirs == _BEHIND_ALL and not more:
                self.counters.exchanges += 1
                return True
        self.counters.exchanges_failed += 1
        return False

    def _page(self, cursor: bytes) -> dict[str, Any]:
        """The records after the cursor, and the next cursor."""
        records = self._members.records(self._clock.monotonic())
        first = bisect_right(records, cursor, key=_id_of)
        page = records[first : first + ROWS_A_CALL_MAX]
        after = page[-1].id if len(records) > first + len(page) else b""
        return {"rows": [record.row() for record in page], "cursor": after, "sees": self._members.sees()}
