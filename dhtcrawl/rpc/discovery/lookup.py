"""One look-up: who is closest to a key (Kademlia 2002, section 2.3), without I/O.

A contact is in one of four states, in go-libp2p-kad-dht's words:

    HEARD ──ask──▶ WAITING ──reply──▶ QUERIED
      ▲               │
      └─ other addr. ─┴──no reply──▶ UNREACHABLE     and stays so for this look-up

It is over when the `width` closest that are not unreachable have answered,
when `asks_max` have been asked, or when no contact is left to ask. `width` = k is
the paper's look-up; 1 finds the owner alone, in about a quarter of the RPCs.

Two rules are there for contacts that somebody makes up, who has any number of ids but one network. Where the `width`
closest are all of a network with a crowd, and none of that network has named the contacts outside it that are closest
to the key, these have to answer, too: an honest node near the key would have named them. And a network from which
several were silent and none has answered is left out, once contacts of another one have answered.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from operator import attrgetter

from dhtcrawl.rpc.contact import Contact, network_of

K = 20  # Kademlia 2002, section 2.2
ALPHA = 3  # section 2.3
ASKS_MAX = 128  # six times k: only a peer that invents contacts makes a look-up longer
CANDIDATES_MAX = 512
ADDRESSES_MAX = 3  # for one id, in one look-up
CROWD = 4  # contacts of one network
OUTSIDERS = 2  # that are asked beside a crowd
SILENT_MAX = 5  # of one network
_BY_DISTANCE = attrgetter("distance")


class LookupState(Enum):
    """How far a look-up has got with a contact."""

    HEARD = auto()
    WAITING = auto()
    QUERIED = auto()
    UNREACHABLE = auto()


@dataclass(slots=True)
class _Candidate:
    contact: Contact
    state: LookupState
    network: str
    distance: int
    others: list[Contact] = field(default_factory=list)  # the same id at other addresses, still to be tried
    tried: list[Contact] = field(default_factory=list)


class _Networks:
    """What one look-up knows of networks."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()  # contacts of each
        self.silent: Counter[str] = Counter()
        self.named: dict[str, set[bytes]] = {}  # which contacts outside it, by those of a network that have answered

    def is_left_out(self, network: str) -> bool:
        return self.silent[network] >= SILENT_MAX and network not in self.named and bool(self.named)


class Lookup:
    """The state of one look-up.

    `shunned` says of a contact that it did not answer lately. Such a one is
    unreachable from the start, whichever peer names it, unless no other is left.
    """

    def __init__(
        self,
        target: bytes,
        contacts: Iterable[Contact],
        *,
        own_id: bytes,
        width: int = K,
        alpha: int = ALPHA,
        asks_max: int = ASKS_MAX,
        shunned: Callable[[Contact], bool] = lambda _: False,
    ) -> None:
        self.target = target
        self.asked = 0
        self._number = int.from_bytes(target, "big")
        self._own_id = own_id
        self._width = width
        self._alpha = alpha
        self._asks_max = asks_max
        self._shunned = shunned
        self._by_id: dict[bytes, _Candidate] = {}
        self._ordered: list[_Candidate] = []  # closest first
        self._networks = _Networks()
        self._in_flight = 0
        self._add(contacts)
        if not any(candidate.state is LookupState.HEARD for candidate in self._ordered):
            self._last_resort()

    def next(self) -> list[Contact]:
        """The contacts to ask now: the closest not asked yet, at most `alpha` at a time. They become WAITING."""
        asks: list[Contact] = []
        for candidate in self._frontier():
            if self._in_flight >= self._alpha or self.asked >= self._asks_max:
                break
            if candidate.state is LookupState.HEARD:
                candidate.state = LookupState.WAITING
                candidate.tried.append(candidate.contact)
                self._in_flight += 1
                self.asked += 1
                asks.append(candidate.contact)
        return asks

    def answered(self, node_id: bytes, contacts: Iterable[Contact]) -> None:
        if self._leave_waiting(node_id, LookupState.QUERIED):
            contacts, network = list(contacts), self._by_id[node_id].network
            self._add(contacts)
            known = [self._by_id[contact.id] for contact in contacts if contact.id in self._by_id]
            outsiders = (candidate.contact.id for candidate in known if candidate.network != network)
            self._networks.named.setdefault(network, set()).update(outsiders)

    def failed(self, node_id: bytes) -> None:
        """`node_id` did not reply; another address that a peer named for it is tried next."""
        if not self._leave_waiting(node_id, LookupState.UNREACHABLE):
            return
        candidate = self._by_id[node_id]
        if candidate.others:
            candidate.contact = candidate.others.pop(0)
            candidate.state = LookupState.HEARD
            return
        self._networks.silent[candidate.network] += 1
        for other in self._ordered:
            if other.state is LookupState.HEARD and self._networks.is_left_out(other.network):
                other.state = LookupState.UNREACHABLE

    @property
    def done(self) -> bool:
        """Nothing that is still to come can change the result, or too much was asked."""
        if all(candidate.state is LookupState.QUERIED for candidate in self._frontier()):
            return True
        return self._in_flight == 0 and self.asked >= self._asks_max

    def closest(self, n: int | None = None) -> list[Contact]:
        """The contacts that answered, closest first, at most `n` (or `width`)."""
        queried = [candidate.contact for candidate in self._ordered if candidate.state is LookupState.QUERIED]
        return queried[: self._width if n is None else n]

    def heard(self, n: int) -> list[Contact]:
        """The contacts that were not asked, of the `n` closest that may be reachable."""
        reachable = [candidate for candidate in self._ordered if candidate.state is not LookupState.UNREACHABLE]
        return [candidate.contact for candidate in reachable[:n] if candidate.state is LookupState.HEARD]

    def _frontier(self) -> Iterator[_Candidate]:
        """Who has to answer: the `width` closest that are not unreachable, and some beside a crowd."""
        reachable = (candidate for candidate in self._ordered if candidate.state is not LookupState.UNREACHABLE)
        networks, answered = set(), True
        for candidate in islice(reachable, self._width):
            networks.add(candidate.network)
            answered = answered and candidate.state is LookupState.QUERIED
            yield candidate
        if answered and len(networks) == 1 and self._networks.heard[network := networks.pop()] >= CROWD:
            named = self._networks.named[network]
            outsiders = islice((candidate for candidate in reachable if candidate.network != network), OUTSIDERS)
            yield from (candidate for candidate in outsiders if candidate.contact.id not in named)

    def _leave_waiting(self, node_id: bytes, state: LookupState) -> bool:
        candidate = self._by_id.get(node_id)
        if candidate is None or candidate.state is not LookupState.WAITING:
            return False
        candidate.state = state
        self._in_flight -= 1
        return True

    def _add(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            known = self._by_id.get(contact.id)
            if known is None:
                self._insert(contact)
            elif known.contact != contact:
                self._another_address(known, contact)

    def _insert(self, contact: Contact) -> None:
        if contact.id == self._own_id:
            return
        network = network_of(contact.host)
        unreachable = self._networks.is_left_out(network) or self._shunned(contact)
        state = LookupState.UNREACHABLE if unreachable else LookupState.HEARD
        candidate = _Candidate(contact, state, network, contact.number ^ self._number)
        self._networks.heard[network] += 1
        self._by_id[contact.id] = candidate
        insort(self._ordered, candidate, key=_BY_DISTANCE)
        if len(self._ordered) > CANDIDATES_MAX:
            self._drop_furthest()

    def _drop_furthest(self) -> None:
        at = next(i for i in reversed(range(len(self._ordered))) if self._ordered[i].state is not LookupState.WAITING)
        dropped = self._ordered.pop(at)
        self._networks.heard[dropped.network] -= 1
        del self._by_id[dropped.contact.id]
        for named in self._networks.named.values():
            named.discard(dropped.contact.id)

    def _another_address(self, known: _Candidate, contact: Contact) -> None:
        # The peer that named the first address may have been wrong, or have lied.
        addresses = (known.contact, *known.others, *known.tried)
        if known.state is LookupState.QUERIED or contact in addresses or len(set(addresses)) >= ADDRESSES_MAX:
            return
        if self._shunned(contact):
            return
        if known.state is LookupState.UNREACHABLE:
            known.contact, known.state = contact, LookupState.HEARD
        else:
            known.others.append(contact)

    def _last_resort(self) -> None:
        for candidate in self._ordered:
            candidate.state = LookupState.HEARD
