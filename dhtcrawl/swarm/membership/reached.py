"""Whether the others reach a node where it says that it is, and what to do where they do not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dhtcrawl.rpc.contact import Address
from dhtcrawl.units import format_address


@dataclass(frozen=True, slots=True)
class Attempt:
    """What another node found that tried: whether a datagram and a connection reached us, and whence it sees us."""

    datagram: bool
    connection: bool
    seen: str | None = None  # an IP address; None: it did not say


def unreached(told: Address, attempts: Sequence[Attempt]) -> str | None:
    """What is wrong with the address that a node tells the others, and the remedy; None where it was reached.

    There is at least one attempt.
    """
    datagram = any(attempt.datagram for attempt in attempts)
    connection = any(attempt.connection for attempt in attempts)
    if datagram and connection:
        return None
    missing = " nor ".join(name for name, there in (("UDP", datagram), ("TCP", connection)) if not there)
    who = "one node tried and does" if len(attempts) == 1 else f"{len(attempts)} nodes tried and do"
    neither = "" if datagram or connection else "neither "
    text = f"{who} not reach this node at {format_address(told)}, {neither}by {missing}"
    elsewhere = next((attempt.seen for attempt in attempts if attempt.seen not in (None, told[0])), None)
    if elsewhere is not None and not (datagram or connection):
        seen = format_address((elsewhere, told[1]))
        return (
            f"{text}, but see it at {elsewhere}: name that with --advertise {seen}, and where it is a router's, have"
            f" that pass TCP and UDP port {told[1]} on to this machine, or take part with --outbound-only"
        )
    if elsewhere is not None and connection:
        return (
            f"{text}: open UDP port {told[1]} in the firewalls on the way, or, as its datagrams come from {elsewhere}"
            " and an answer has to come from the address that was asked, listen on that alone, with --listen"
            f" {format_address(told)}"
        )
    ports = " and ".join(name for name, there in (("TCP", connection), ("UDP", datagram)) if not there)
    return (
        f"{text}: open {ports} port {told[1]} in the firewalls on the way, name another address with --advertise, or"
        " take part with --outbound-only"
    )
