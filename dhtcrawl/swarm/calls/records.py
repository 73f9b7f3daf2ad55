"""Calls of `swarm/records`: which records a node has. No I/O."""

from typing import Annotated, Final

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.tasks.rows import ITEMS_MAX
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap, octets_up_to
from dhtcrawl.swarm.calls.words import _KEY_WIDTHS, Crawl

HASH_BYTES: Final = 8


class HaveAnswer(WireMap):
    """Answer to `have`."""

    have: Annotated[bytes, octets_up_to(ITEMS_MAX), "a byte for each, 1 where that node has it just so, on disk"]


class Have(CallArgs[HaveAnswer], name="have"):
    """A node that hands records over, or owns a task whose holder is gone, asks which records another has."""

    crawl: Crawl
    keys: Annotated[bytes, octets_up_to(ITEMS_MAX * 2 * KEY_BYTES, 1, in_rows_of=KEY_BYTES), "task keys, joined"]
    hashes: Annotated[
        bytes,
        octets_up_to(ITEMS_MAX * HASH_BYTES, HASH_BYTES, in_rows_of=HASH_BYTES),
        "for each, of its key and what copies agree in",
    ]

    def wrong(self) -> str:
        width, rest = divmod(len(self.keys), self.count)
        return "" if not rest and width in _KEY_WIDTHS else "keys"

    @property
    def count(self) -> int:
        """How many records are asked for."""
        return len(self.hashes) // HASH_BYTES

    def misfit(self, reply: HaveAnswer) -> str:
        return "" if len(reply.have) == self.count else "have"
