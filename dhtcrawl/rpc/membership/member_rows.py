"""The call `members`: a page of member records for a page of the other side's.

The rows themselves are read by `dhtcrawl.rpc.membership.hello`.
"""

from typing import Annotated, Final

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.membership.hello import ROW_BYTES_MAX, SEES_MAX, Row
from dhtcrawl.rpc.tasks.frame import LIST_ITEMS_MAX
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap, anything, integer, items, octets

ROWS_A_CALL_MAX: Final = LIST_ITEMS_MAX
REPLY_BYTES_MAX: Final = ROWS_A_CALL_MAX * ROW_BYTES_MAX + 1024  # the longest answer


class MemberRows(WireMap):
    """Answer to `members`: the same from the other side."""

    # A row that is none is dropped and counted by `parse_records`: one bad record shall not hide the others.
    rows: Annotated[tuple[Row, ...], items(anything("member row"), ROWS_A_CALL_MAX), "records in order of id"]
    cursor: Annotated[bytes, octets(0, KEY_BYTES), "the last id of the page; empty: that was the last page"]
    sees: Annotated[int, integer(0, SEES_MAX), "how many other members answer the sender"]


class ExchangeMembers(CallArgs[MemberRows], name="members", timeout_s=5.0, reply_bytes_max=REPLY_BYTES_MAX):
    """Two nodes tell each other all member records: when one joins, was declared dead, and now and then."""

    rows: Annotated[tuple[Row, ...], items(anything("member row"), ROWS_A_CALL_MAX), "records in order of id"]
    cursor: Annotated[bytes, octets(0, KEY_BYTES), "that of the answer before; empty begins"] = b""
    sees: Annotated[int, integer(0, SEES_MAX), "how many other members answer the sender"] = 0
