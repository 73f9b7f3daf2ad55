"""A node of the routing plane: join, find who is closest to a key, set and get small values.

The stock `Server`, with its look-ups, joining and upkeep replaced. In the
order of a node's life:

    listen        bind; from here on others are answered
    run           upkeep, in the caller's TaskGroup, until `stop`
    bootstrap     the paper's join, all three steps (2002, section 2.3)
    find_owner    one key, one node, about five RPCs
    stop          every call in flight ends at once, without a result

Never look up per URL: `dhtcrawl.rpc.membership.view` knows the owner without asking.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from kademlia.network import Server
from kademlia.utils import digest

from dhtcrawl.clock import Clock
from dhtcrawl.closed.sealing import SESSION_BYTES, Sealer
from dhtcrawl.closed.secret import Ring
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.contact import Address, Contact, canonical_host, parse_contacts, parse_id
from dhtcrawl.rpc.discovery.datagram import VALUE_BYTES_MAX, packed_bytes
from dhtcrawl.rpc.discovery.lookup import ALPHA, ASKS_MAX, K, Lookup
from dhtcrawl.rpc.discovery.protocol import VALUE_TYPES, RoutingProtocol, is_storable
from dhtcrawl.rpc.discovery.sealed import SealedPlane
from dhtcrawl.rpc.discovery.upkeep import Upkeep
from dhtcrawl.rpc.discovery.values import ValueStore
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOKUP_TIMEOUT_S = 20.0
BOOTSTRAP_ADDRESSES_MAX = 64
# A name of a node may stand for several; the first that answers will do.
ADDRESSES_OF_A_NAME_MAX = 4


class RoutingServer(Server):  # type: ignore[misc]  # the library has no types
    """One node. `rng` also makes the message ids, so outside of simulations it is a `SystemRandom`."""

    protocol: RoutingProtocol | None

    def __init__(
        self,
        node_id: bytes,
        *,
        clock: Clock,
        rng: Random,
        storage: Any = None,
        ksize: int = K,
        alpha: int = ALPHA,
        ring: Ring | None = None,
    ) -> None:
        """Without the secrets of a `ring` the swarm is open."""
        super().__init__(ksize, alpha, node_id)
        # The library replaces a storage that is false, and an empty one with a length is.
        self.storage = ValueStore(clock) if storage is None else storage
        self._clock = clock
        self._rng = rng
        self._ring = ring
        self._upkeep = Upkeep(lambda: self.plane, self.refresh, clock, rng)

    def _create_protocol(self) -> RoutingProtocol:
        sealed = None
        if self._ring is not None:
            sealed = SealedPlane(Sealer(self._ring, self.node.id, self._rng.randbytes(SESSION_BYTES)))
        return RoutingProtocol(self.node, self.storage, self.ksize, clock=self._clock, rng=self._rng, sealed=sealed)

    @property
    def plane(self) -> RoutingProtocol:
        assert self.protocol is not None, "listen first"
        return self.protocol

    @property
    def address(self) -> Address:
        host, port = self.transport.get_extra_info("sockname")[:2]
        return host, port

    # A node's life

    async def listen(self, port: int, interface: str = "0.0.0.0") -> None:
        """Bind a UDP socket.

        Raises:
            OSError: the address is taken, or is not ours.
        """
        loop = asyncio.get_running_loop()
        self.transport, self.protocol = await loop.create_datagram_endpoint(
            self._create_protocol, local_addr=(interface, port)
        )

    async def run(self) -> None:
        await self._upkeep.run()

    def stop(self) -> None:
        """No more datagrams. May be called twice."""
        self._upkeep.stop()
        if self.protocol is not None:
            self.protocol.close()
        if self.transport is not None:
            self.transport.close()

    async def bootstrap(self, addrs: Sequence[Address]) -> list[Contact]:
        """Join through any of these nodes; the contacts closest to us, closest first.

        First their ids, then a look-up of our own id, then one in every bucket
        that this cannot have filled. Without the last step a node does not
        know nodes that are far, and these do not know it.

        Raises:
            BootstrapUnreachable: none of them answered, or the names of all are unknown.
        """
        asked = addrs[:BOOTSTRAP_ADDRESSES_MAX]
        answers = await together(self._bootstrap_node(addr) for addr in asked)
        contacts = [answer for answer in answers if isinstance(answer, Contact)]
        unknown = {addr: answer for addr, answer in zip(asked, answers, strict=True) if isinstance(answer, str)}
        if not contacts:
            raise unreachable(asked, unknown, also=_answered_elsewhere(self.plane.calls.elsewhere))
        for (host, _), reason in unknown.items():
            log.warning("bootstrap: the name %s was not found (%s); another of the nodes answers", host, reason)
        # To a stranger each names three contacts or so (`rpc.protocol`, amplification), too few to find all
        # neighbours. The second time those that are closest know us.
        await self._find(self.node.id, contacts, width=self.alpha)
        closest = await self._find(self.node.id)
        await together(self.refresh(key) for key in self.plane.table.far_keys(self._rng, closest))
        return closest

    async def refresh(self, key: bytes) -> None:
        """Fill the bucket of `key`.

        The paper asks the k closest to the key who is closer (2.3). We ask
        `alpha` of them and ping the others that they name: the same contacts
        hear of us and we of them, for half the datagrams.
        """
        lookup = self._lookup(key, width=self.alpha)
        await self._ask_until_done(lookup, "find_node")
        wanted = [contact for contact in lookup.heard(self.ksize) if self.plane.table.wants(contact.id)]
        await together(self._meet(contact.address) for contact in wanted)

    async def bootstrap_node(self, addr: Address) -> Contact | None:
        """The contact that answers there, which is in the table now, or None."""
        answer = await self._bootstrap_node(addr)
        return answer if isinstance(answer, Contact) else None

    async def _bootstrap_node(self, addr: Address) -> Contact | str | None:
        """The contact that answers there, None, or why the name is unknown."""
        hosts = await hosts_of(addr, ipv6=":" in self.address[0])
        if isinstance(hosts, str):
            return hosts
        for host in hosts:
            contact = await self._meet((host, addr[1]))
            if contact is not None:
                return contact
        return None

    async def nodes_at(self, addr: Address) -> list[Contact]:
        """All that answer there: a name may have several addresses, each of another node."""
        hosts = await hosts_of(addr, ipv6=":" in self.address[0])
        if isinstance(hosts, str):
            return []
        answers = await together(self._meet((host, addr[1])) for host in hosts)
        return [contact for contact in answers if contact is not None]

    async def _meet(self, address: Address) -> Contact | None:
        happened, value = await self.plane.ping(address, self.node.id)
        node_id = parse_id(value)
        if not happened or node_id is None or node_id == self.node.id:
            return None
        contact = Contact(node_id, *address)
        self.plane.verifier.entered(contact)
        return contact

    # Look-ups

    async def find_closest(self, key: bytes, n: int | None = None) -> list[Contact]:
        """The `n` (or k) nodes closest to `key` that answer, ourselves not among them, closest first."""
        return await self._find(key, width=n)

    async def find_owner(self, key: bytes) -> Contact:
        """The node closest to `key`, which may be ourselves."""
        found = await self._find(key, width=1)
        number = int.from_bytes(key, "big")
        own = Contact(self.node.id, *self.address)
        return min([own, *found[:1]], key=lambda contact: contact.number ^ number)

    async def _find(
        self, key: bytes, contacts: Sequence[Contact] | None = None, *, width: int | None = None
    ) -> list[Contact]:
        lookup = self._lookup(key, contacts, width)
        await self._ask_until_done(lookup, "find_node")
        return lookup.closest()

    def _lookup(self, key: bytes, contacts: Sequence[Contact] | None = None, width: int | None = None) -> Lookup:
        plane, now = self.plane, self._clock.monotonic()
        plane.table.looked_up(key, now)
        return Lookup(
            key,
            # Suspected ones too: they are all there is when our own line was down.
            plane.table.closest(key, suspected=True) if contacts is None else contacts,
            own_id=self.node.id,
            width=self.ksize if width is None else width,
            alpha=self.alpha,
            asks_max=ASKS_MAX,
            shunned=lambda contact: plane.table.shunned(contact, self._clock.monotonic()),
        )

    async def _ask_until_done(self, lookup: Lookup, rpc: str) -> Any:
        """Carry out a look-up. Where it is for a value, a reply that has one ends it and is returned."""
        plane = self.plane
        replies: asyncio.Queue[tuple[Contact, bool, Any]] = asyncio.Queue()
        asked = []
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                while not lookup.done:
                    for contact in lookup.next():
                        done = _into(replies, contact)
                        asked.append(plane.begin(contact, rpc, (self.node.id, lookup.target), done))
                    contact, happened, value = await replies.get()
                    if rpc == "find_value" and happened and _has_value(value):
                        return value["value"]
                    if happened:
                        lookup.answered(contact.id, self._contacts(value))
                    else:
                        lookup.failed(contact.id)
        except TimeoutError:
            return None  # those that answered so far are the result
        finally:
            plane.counters.lookups += 1
            plane.counters.lookup_calls += len(asked)
            for call in asked:
                call.cancel()
        return None

    def _contacts(self, value: Any) -> list[Contact]:
        contacts, bad = parse_contacts(value)
        self.plane.counters.bad_contacts += bad
        heard: list[Contact] = []
        for contact in contacts:
            known = self.plane.table.get(contact.id)
            if known is not None and known != contact:
                # The verified address of a contact comes before one that a peer tells.
                heard.append(known)
            heard.append(contact)
        return heard

    # Values

    async def get(self, key: Any) -> Any:
        """The value that was `set` for `key`, or None."""
        key_digest = digest(key)
        own = self.storage.get(key_digest)
        if own is not None or self.plane.calls.closed:
            return own
        lookup = self._lookup(key_digest)
        found = await self._ask_until_done(lookup, "find_value")
        # For the next node that asks (section 2.3): at the closest node that did not have it. A stock node may hold one
        # that fits into no datagram of ours.
        for contact in lookup.closest(1) if is_storable(found) else []:
            await self._store(contact, key_digest, found)
        return found

    async def set(self, key: Any, value: Any) -> bool:
        """Store a small value under `key`; False when no other node took it.

        Raises:
            TypeError: the value is neither int, float, bool, str nor bytes.
            ValueError: it does not fit into a datagram.
        """
        if type(value) not in VALUE_TYPES:
            raise TypeError("value must be of type int, float, bool, str or bytes")
        if packed_bytes(value) > VALUE_BYTES_MAX:
            raise ValueError(f"value has {packed_bytes(value)} bytes; at most {VALUE_BYTES_MAX} fit into a datagram")
        return await self.set_digest(digest(key), value)

    async def set_digest(self, dkey: bytes, value: Any) -> bool:
        """The same for a key that is a digest already."""
        contacts = await self._find(dkey)
        number, own = int.from_bytes(dkey, "big"), int.from_bytes(self.node.id, "big")
        if len(contacts) < self.ksize or own ^ number < contacts[-1].number ^ number:
            self.storage[dkey] = value
        return any(await together(self._store(contact, dkey, value) for contact in contacts))

    async def _store(self, contact: Contact, key: bytes, value: Any) -> bool:
        happened, stored = await self.plane.store(contact.address, self.node.id, key, value)
        return happened and stored is True


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of these return, in their order, once each has."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


def _into(replies: asyncio.Queue[tuple[Contact, bool, Any]], contact: Contact) -> Any:
    return lambda happened, value: replies.put_nowait((contact, happened, value))


def _has_value(reply: Any) -> bool:
    """Whether a reply holds what may have been stored."""
    return isinstance(reply, dict) and type(reply.get("value")) in VALUE_TYPES


async def hosts_of(addr: Address, *, ipv6: bool = True) -> list[str] | str:
    """The IP addresses that a host stands for, looked up anew each time; else why its name is unknown.

    Without `ipv6` those of IPv6 are left out where a name has others, too: nothing can be sent there.
    """
    host = canonical_host(addr[0])
    if host is not None:
        return [host]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(*addr)
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeError as error:
        return str(error)
    known = [canonical_host(str(sockaddr[0])) for *_, sockaddr in found]
    hosts = list(dict.fromkeys(host for host in known if host is not None))
    if not ipv6:
        hosts = [host for host in hosts if ":" not in host] or hosts
    return hosts[:ADDRESSES_OF_A_NAME_MAX]


def _answered_elsewhere(elsewhere: Mapping[Address, Address]) -> str:
    """What to tell of a node that has several addresses and answers from another than was asked."""
    if not elsewhere:
        return ""
    asked, source = map(format_address, next(iter(elsewhere.items())))
    return (
        f"what was asked of {asked} was answered from {source}, which does not count: on a machine with several "
        f"addresses the node has to listen on the one that it tells the others, with --listen {asked}"
    )


def unreachable(asked: Iterable[Address], unknown: Mapping[Address, str], *, also: str = "") -> BootstrapUnreachable:
    """What to raise where no node answered at these addresses; of those in `unknown` it says why the name is none.

    It ends with what is `also` to be told.
    """
    silent = ", ".join(format_address(address) for address in asked if address not in unknown)
    said = [f"no answer from {silent}; is a node listening there, and does UDP get through?"] if silent else []
    said += [
        f"the name {host} was not found ({reason}); check how it is written, and that the name server knows it"
        for (host, _), reason in unknown.items()
    ]
    text = f"bootstrap: {' '.join(said)}"
    error = BootstrapUnreachable(f"{text}; {also}" if also else text)
    error.unknown, error.also = dict(unknown), also
    return error
