"""The routing plane of a closed swarm: which datagrams are let through, and which node a sealed one is for.

    what comes        its session is proven   it is not
    ────────────────  ──────────────────────  ─────────────────────────────────────────────
    opens not         dropped                 dropped
    an answer to us   let through             proves the session; let through
    a ping            let through             we ask, too, and then answer
    anything else     let through             dropped; we ask, and the sender asks again

A session is proven by the answer to a question that we ask now: the number of a
question is drawn at random, so no recording answers it. An old recording makes
us send one ping to the address that it seems to come from, and does nothing else.

Of a proven session, what comes under a counter that is seen is dropped, too, but for the answer to a question that was
asked after all of them had come: another member has sealed in its name then, and the session goes on from the answer.

Pure but for the `Sealer`, which counts.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto

from dhtcrawl.closed.sealing import OpenedDatagram, Sealer
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.datagram import DatagramReply, DatagramRequest, question_in

RECEIVERS_MAX = 4096
QUESTIONS_MAX = 4096  # as many as are in flight
# So many datagrams to an address without one from there: another node may have it now, which would not open ours.
UNHEARD_MAX = 8


class Admission(Enum):
    """What to do with a datagram that opened and is one."""

    TAKE = auto()
    ASK = auto()  # ask the sender; the datagram is dropped
    ASK_AND_ANSWER = auto()  # ask the sender, then answer its ping; nothing else comes of it
    DROP = auto()


class SealedPlane:
    """Seals and opens for one endpoint."""

    def __init__(self, sealer: Sealer) -> None:
        self.sealer = sealer
        self._receivers: OrderedDict[Address, tuple[bytes, int]] = (
            OrderedDict()
        )  # node, datagrams sent since it was heard
        self._questions: OrderedDict[bytes, int] = OrderedDict()  # message id → our counter when it was first asked

    def seal(self, datagram: bytes, address: Address, receiver: bytes | None = None) -> bytes:
        """A datagram for the node at an address: for `receiver`, or whichever node we know there."""
        if receiver is None and (known := self._receivers.get(address)) is not None:
            receiver, unheard = known
            if unheard < UNHEARD_MAX:
                self._receivers[address] = receiver, unheard + 1
            else:
                del self._receivers[address]
                receiver = None
        sealed = self.sealer.seal(datagram, receiver)
        question = question_in(datagram)
        if question is not None and question not in self._questions:
            self._questions[question] = self.sealer.sealed
            if len(self._questions) > QUESTIONS_MAX:
                self._questions.popitem(last=False)
        return sealed

    def admit(
        self, opened: OpenedDatagram, message: DatagramRequest | DatagramReply, address: Address, *, expected: bool
    ) -> Admission:
        """What to do with what was in a datagram; `expected`: it answers a question of ours to that address."""
        if opened.seen:
            if not (isinstance(message, DatagramReply) and expected and self._is_overtaken(opened, message)):
                return Admission.DROP
            self.sealer.prove(opened)
        elif not opened.proven:
            if isinstance(message, DatagramReply):
                if not expected:
                    return Admission.DROP
                self.sealer.prove(opened)
            else:
                known = self._receivers.get(address)
                if known is not None and known[0] != opened.sender:
                    del self._receivers[address]  # it may be true: then what we seal for the other would not be opened
                return Admission.ASK_AND_ANSWER if message.name == "ping" else Admission.ASK
        if isinstance(message, DatagramReply):
            self._questions.pop(message.message_id, None)
        self._receivers[address] = opened.sender, 0
        self._receivers.move_to_end(address)
        if len(self._receivers) > RECEIVERS_MAX:
            self._receivers.popitem(last=False)
        return Admission.TAKE

    def _is_overtaken(self, opened: OpenedDatagram, answer: DatagramReply) -> bool:
        question = self._questions.get(answer.message_id)
        return question is not None and self.sealer.is_overtaken(opened, question)
