"""Where a node of a swarm listens and whom it joins, and what is refused before it starts.

Without a secret, any machine that reaches a node's port takes part: it may hand
out tasks and store records. So nothing but loopback is listened on or joined
through unless there is a secret, or `--open-swarm` says that this is meant. The
admin port does what it is told by whoever reaches it, so beyond loopback it
asks for a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from dhtcrawl.cli.own_hosts import has_ipv6, own_address
from dhtcrawl.cli.swarm_secret import NodeSecrets
from dhtcrawl.config import Config
from dhtcrawl.errors import BootstrapUnreachable, SwarmRefused, UsageError
from dhtcrawl.units import Address, format_address, ip_of, is_loopback, is_wildcard, parse_address

PORT = 8468
LISTEN_LOOPBACK: Address = ("127.0.0.1", PORT)
LISTEN_ALL: Address = ("::", PORT)
LISTEN_ALL_IPV4: Address = ("0.0.0.0", PORT)  # where the system has no IPv6
_REMEDY = (
    "make one with 'dhtcrawl secret new FILE', copy it to each of them and name it with --secret-file FILE; "
    "or in a network where you trust every machine, add --open-swarm"
)


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Where a node of a swarm listens and whom it joins. Hosts to listen on are IP addresses."""

    bootstrap: tuple[Address, ...]  # hosts may be names
    listen: Address
    advertise: Address | None  # the host may be a name; None: the address it listens on, with the port it got
    admin: Address
    open_swarm: bool
    as_json: bool = False  # one line on stdout once it takes part, for scripts
    as_soon: bool = False  # before that a line as soon as it listens: its address
    secrets: str = field(default="", repr=False)  # as `Ring.text` has them; "": none, so no closed swarm
    secret_file: str = ""  # where they may change while the node runs
    gathered: bool = False  # what it crawls is gathered, so it writes no outputs of its own but the archive
    follows: bool = False  # `advertise` is this machine's address on the way to the others, which may change
    key: str = field(default="", repr=False)  # of a node that has none yet, as PEM; "": it makes its own
    outbound_only: bool = False

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
            follows=fields["follows"],
            key=fields["key"],
            outbound_only=fields["outbound_only"],
        )


def join_options_of(config: Config, as_json: bool = False, secrets: NodeSecrets | None = None) -> JoinOptions:
    """The addresses of the settings, once they fit together with each other and the secrets that there are.

    Raises:
        SwarmRefused: another machine would take part, and the swarm is neither closed nor open.
        BootstrapUnreachable: this node is to find its own address on the way to another, whose name is unknown, or to
            which there is no way now.
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
    if node.outbound_only and not bootstrap:
        problem = ": such a node begins no swarm; name a node to join through with --bootstrap"
        raise config.refusal("node.outbound_only", problem)
    if node.outbound_only and node.advertise:
        problem = f": then no other node reaches this one at {node.advertise}; leave out one of the two"
        raise config.refusal("node.outbound_only", problem)
    named = _named(config, may_leave)
    if (
        named is not None
        and is_loopback(named[0])
        and bootstrap
        and not any(is_loopback(host) for host, _ in bootstrap)
    ):
        raise config.refusal(
            "node.advertise",
            f" {format_address(named)} leads to this machine alone, and {format_address(bootstrap[0])} is another; "
            "leave it out, or name an address that others reach",
        )
    follows = named is None and is_wildcard(listen[0])
    return JoinOptions(
        bootstrap=bootstrap,
        listen=listen,
        advertise=_on_the_way(config, listen, bootstrap) if follows else named,
        admin=admin,
        open_swarm=node.open_swarm,
        as_json=as_json,
        secrets="" if secrets is None else secrets.ring.text(),
        secret_file="" if secrets is None else secrets.file,
        follows=follows,
        outbound_only=node.outbound_only,
    )


def _bootstrap(config: Config, text: str) -> Address:
    host, port = parse_address(text)
    if not port or is_wildcard(host):
        raise config.refusal("node.bootstrap", f" {text}: nobody can be reached there; name a node's address and port")
    return host, port


def _listen(config: Config, may_leave: bool) -> Address:
    node = config.node
    if not node.listen:
        listen_all = LISTEN_ALL if has_ipv6() else LISTEN_ALL_IPV4
        return listen_all if may_leave else LISTEN_LOOPBACK
    host, port = parse_address(node.listen)
    return _ip(config, "node.listen", host, port), port


def _named(config: Config, may_leave: bool) -> Address | None:
    """What the settings say others are to be told; None where they do not say it."""
    node = config.node
    if not node.advertise:
        return None
    host, port = parse_address(node.advertise)
    if not port or is_wildcard(host):
        raise config.refusal("node.advertise", f" {node.advertise}: others cannot reach that; name an address and port")
    if not (may_leave or is_loopback(host)):
        raise SwarmRefused(f"--advertise {node.advertise}: that is for other machines; {_REMEDY}")
    return "127.0.0.1" if host.lower() == "localhost" else host, port


def _on_the_way(config: Config, listen: Address, bootstrap: tuple[Address, ...]) -> Address:
    """Of all addresses that are listened on, the one that leads to the nodes to join through."""
    own = own_address(bootstrap, listen[0]) if bootstrap and listen[1] else None
    if own is None and bootstrap and listen[1]:  # which may be otherwise in a moment: a service tries again
        others = ", ".join(map(format_address, bootstrap))
        raise BootstrapUnreachable(
            f"bootstrap: there is no way from here to {others}; check the network of this machine and --listen, "
            "or say where others reach this node with --advertise HOST:PORT"
        )
    if own is None:
        problem = (
            f" {format_address(listen)} is every address of this machine; "
            "say at which one others reach it with --advertise HOST:PORT"
        )
        # Where nothing says where to listen, a secret or `--open-swarm` does; then an option is missing.
        raise config.refusal("node.listen", problem) if config.node.listen else UsageError(f"--listen{problem}")
    return own, listen[1]


def _ip(config: Config, key: str, host: str, port: int) -> str:
    if host.lower() == "localhost":
        return "127.0.0.1"
    address = ip_of(host)
    if address is None:
        raise config.refusal(
            key, f" {format_address((host, port))}: a name may mean several addresses; use an IP address"
        )
    return str(address)
