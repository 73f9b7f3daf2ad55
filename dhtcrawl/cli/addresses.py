"""Where a node of a swarm listens and whom it joins, and what is refused before it starts.

Without a secret, any machine that reaches a node's port takes part: it may hand
out tasks and store records. So nothing but loopback is listened on or joined
through unless there is a secret, or `--open-swarm` says that this is meant. The
admin port does what it is told by whoever reaches it, so beyond loopback it
asks for a token.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from dhtcrawl.cli.swarm_secret import NodeSecrets
from dhtcrawl.config import Config
from dhtcrawl.errors import SwarmRefused, UsageError
from dhtcrawl.units import Address, format_address, ip_of, is_loopback, is_wildcard, parse_address

PORT = 8468
LISTEN_LOOPBACK: Address = ("127.0.0.1", PORT)
LISTEN_ALL: Address = ("::", PORT)
_REMEDY = (
    "make one with 'dhtcrawl secret new FILE', copy it to each of them and name it with --secret-file FILE; "
    "or in a network where you trust every machine, add --open-swarm"
)


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Where a node of a swarm listens and whom it joins. Hosts to listen on are IP addresses."""

    bootstrap: tuple[Address, ...]  # hosts may be names
    listen: Address
    advertise: Address | None  # None: the address it listens on, with the port it got
    admin: Address
    open_swarm: bool
    as_json: bool = False  # one line on stdout once it takes part, for scripts
    as_soon: bool = False  # before that a line as soon as it listens: its address
    secrets: str = field(default="", repr=False)  # as `Ring.text` has them; "": none, so no closed swarm
    secret_file: str = ""  # where they may change while the node runs
    gathered: bool = False  # what it crawls is gathered, so it writes no outputs of its own but the archive

    @property
    def on_loopback(self) -> bool:
        """Whether all of these addresses are on loopback, so that no other machine takes part."""
        others = (self.listen, *self.bootstrap, *(() if self.advertise is None else (self.advertise,)))
        return all(is_loopback(host) for host, _ in others)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` makes the same options of."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The options that `to_json` gave, after a way through JSON."""
        advertise = fields["advertise"]
        return cls(
            bootstrap=tuple((host, port) for host, port in fields["bootstrap"]),
            listen=tuple(fields["listen"]),
            advertise=None if advertise is None else tuple(advertise),
            admin=tuple(fields["admin"]),
            open_swarm=fields["open_swarm"],
            as_json=fields["as_json"],
            as_soon=fields["as_soon"],
            secrets=fields["secrets"],
            secret_file=fields["secret_file"],
            gathered=fields["gathered"],
        )


def join_options_of(config: Config, as_json: bool = False, secrets: NodeSecrets | None = None) -> JoinOptions:
    """The addresses of the settings, once they fit together with each other and the secrets that there are.

    Raises:
        SwarmRefused: another machine would take part, and the swarm is neither closed nor open.
        UsageError: an address that an option gave cannot be used so, or one is missing.
        ConfigError: an address from elsewhere cannot be used so.
    """
    node = config.node
    if node.open_swarm and secrets is not None:
        raise config.refusal(
            "node.open_swarm", ": this node has a secret, and an open swarm has none; leave out one of the two"
        )
    may_leave = node.open_swarm or secrets is not None
    bootstrap = tuple(_bootstrap(config, text) for text in node.bootstrap if text)
    listen = _listen(config, may_leave)
    for option, (host, port) in [("--listen", listen), *(("--bootstrap", address) for address in bootstrap)]:
        if not (may_leave or is_loopback(host)):
            raise SwarmRefused(
                f"{option} {format_address((host, port))}: other machines could take part without a secret; {_REMEDY}"
            )
    if not node.admin:
        raise config.refusal(
            "node.admin", ": a node needs an address for commands; use 127.0.0.1:8469, or port 0 for any"
        )
    admin = parse_address(node.admin)
    if not (node.admin_token_file or is_loopback(admin[0])):
        raise config.refusal(
            "node.admin",
            f" {format_address(admin)}: whoever reaches it could command this node; "
            "have it ask for a token with --admin-token-file FILE",
        )
    return JoinOptions(
        bootstrap=bootstrap,
        listen=listen,
        advertise=_advertise(config, listen, bootstrap, may_leave),
        admin=admin,
        open_swarm=node.open_swarm,
        as_json=as_json,
        secrets="" if secrets is None else secrets.ring.text(),
        secret_file="" if secrets is None else secrets.file,
    )


def _bootstrap(config: Config, text: str) -> Address:
    host, port = parse_address(text)
    if not port or is_wildcard(host):
        raise config.refusal("node.bootstrap", f" {text}: nobody can be reached there; name a node's address and port")
    return host, port


def _listen(config: Config, may_leave: bool) -> Address:
    node = config.node
    if not node.listen:
        return LISTEN_ALL if may_leave else LISTEN_LOOPBACK
    host, port = parse_address(node.listen)
    return _ip(config, "node.listen", host, port), port


def _advertise(config: Config, listen: Address, bootstrap: tuple[Address, ...], may_leave: bool) -> Address | None:
    node = config.node
    if node.advertise:
        host, port = parse_address(node.advertise)
        address = _ip(config, "node.advertise", host, port), port
        if not port or is_wildcard(host):
            raise config.refusal(
                "node.advertise", f" {node.advertise}: others cannot reach that; name an address and port"
            )
        if not (may_leave or is_loopback(address[0])):
            raise SwarmRefused(f"--advertise {node.advertise}: that is for other machines; {_REMEDY}")
        return address
    if not is_wildcard(listen[0]):
        return None
    own = own_address(bootstrap[0]) if bootstrap and listen[1] else None
    if own is None:
        problem = (
            f" {format_address(listen)} is every address of this machine; "
            "say at which one others reach it with --advertise HOST:PORT"
        )
        # Where nothing says where to listen, a secret or `--open-swarm` does; then an option is missing.
        raise config.refusal("node.listen", problem) if node.listen else UsageError(f"--listen{problem}")
    return own, listen[1]


def own_address(other: Address) -> str | None:
    """Our address on the way to `other`; None where there is no way, or the name is unknown.

    Connecting a UDP socket sends nothing: it looks into the routing table.
    """
    try:
        found = socket.getaddrinfo(*other, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _ip(config: Config, key: str, host: str, port: int) -> str:
    if host.lower() == "localhost":
        return "127.0.0.1"
    address = ip_of(host)
    if address is None:
        raise config.refusal(
            key, f" {format_address((host, port))}: a name may mean several addresses; use an IP address"
        )
    return str(address)
