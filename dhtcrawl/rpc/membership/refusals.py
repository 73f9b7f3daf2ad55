"""What a node does not take from others about members: numbers that leap, members beyond the bound. No I/O.

Only a node itself raises its numbers: a start adds one to its incarnation, a
change of its state or a refutation one to its epoch. Who names a number far
beyond the known one lies, or we have not heard of the node for very long. From
here both look alike, so the number is taken, but by `STEP_MAX` in each
`STEP_S` at most: an honest node, which says its number again and again, is
known as it is after a few seconds, and a lie leaves its victim room to
outbid it (`docs/protocol-members.md`, "Steps").
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from dhtcrawl.rpc.membership.hello import MemberRecord

STEP_MAX: Final = 1_000
STEP_S: Final = 1.0

Life = tuple[int, int]  # incarnation and epoch, as `MemberRecord.life`


class Refusals:
    """Takes off what is too much. `full` are newcomers without a place, `leaps` records whose numbers were lowered."""

    def __init__(self) -> None:
        self.full = 0
        self.leaps = 0
        self.leapt: MemberRecord | None = None  # the last of these, as it was told
        # What was known of a node when its numbers rose last, those first that rose first; for `STEP_S` only.
        self._began: OrderedDict[bytes, tuple[float, Life]] = OrderedDict()

    def lowered(self, record: MemberRecord, known: Life, now: float) -> MemberRecord:
        """The record with numbers that are plausible beside the `known` ones; the same object where they are."""
        if record.life <= known:
            return record
        while self._began and now - next(iter(self._began.values()))[0] >= STEP_S:
            self._began.popitem(last=False)
        _, base = self._began.setdefault(record.id, (now, known))
        incarnation, epoch = furthest(record.life, base)
        if (incarnation, epoch) == record.life:
            return record
        self.leaps += 1
        self.leapt = record
        return replace(record, incarnation=incarnation, epoch=epoch)


def furthest(life: Life, base: Life) -> Life:
    """How far numbers may come towards `life` in one step from `base`."""
    incarnation, epoch = life
    if incarnation > base[0] + STEP_MAX:
        return base[0] + STEP_MAX, 0
    begins = base[1] if incarnation == base[0] else 0
    return incarnation, min(epoch, begins + STEP_MAX)
