"""`dhtcrawl join`: which addresses it takes, and which it refuses before anything is started."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dhtcrawl.cli import addresses
from dhtcrawl.cli.addresses import JoinOptions, join_options_of
from dhtcrawl.cli.join import default_data_dir
from dhtcrawl.cli.own_hosts import own_address
from dhtcrawl.config import Config, load
from dhtcrawl.errors import BootstrapUnreachable, ConfigError, SwarmRefused, UsageError
from dhtcrawl.units import Address, format_address, is_loopback, is_wildcard, parse_address

from .conftest import Here

Started = list[tuple[Config, JoinOptions]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What a node would have been started with."""
    calls: Started = []

    def run_node(config: Config, options: JoinOptions) -> int:
        calls.append((config, options))
        return 31

    module = ModuleType("swarmnode")
    module.run_node = run_node  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dhtcrawl.cli.swarmnode", module)
    return calls


def options(*args: str, **environ: str) -> JoinOptions:
    """The options of settings: `key=value` of [node], each given by its own command-line option."""
    flags: dict[str, object] = {}
    for arg in args:
        key, _, value = arg.partition("=")
        flags[f"node.{key}"] = [*flags.get(f"node.{key}", []), value] if key == "bootstrap" else value  # type: ignore[misc]
    return join_options_of(load(flags=flags, environ=environ, options={key: f"--{key[5:]}" for key in flags}))


def test_others_may_be_told_a_name_which_stands_for_an_address_of_the_moment() -> None:
    chosen = options("open_swarm=on", "advertise=node.example.org:9000")
    assert (chosen.advertise, chosen.follows, chosen.on_loopback) == (("node.example.org", 9000), False, False)
    assert options("advertise=localhost:9000").advertise == ("127.0.0.1", 9000)
    # Nor is the address on the way to others for ever the same.
    assert options("open_swarm=on", "bootstrap=127.0.0.1:8468").follows
    assert not options("open_swarm=on", "listen=127.0.0.1:1").follows


def test_without_ipv6_an_open_swarm_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "has_ipv6", lambda: False)
    assert options("open_swarm=on", "advertise=192.0.2.7:9000").listen == ("0.0.0.0", 8468)


def test_alone_it_listens_on_loopback_and_begins_a_swarm() -> None:
    assert options() == JoinOptions((), ("127.0.0.1", 8468), None, ("127.0.0.1", 8469), False)


def test_in_an_open_swarm_it_listens_on_every_address() -> None:
    chosen = options("open_swarm=on", "advertise=192.0.2.7:9000")
    assert (chosen.listen, chosen.advertise, chosen.open_swarm) == (("::", 8468), ("192.0.2.7", 9000), True)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8468", ("127.0.0.1", 8468)),
        ("[::1]:8468", ("::1", 8468)),
        ("[0:0:0:0:0:0:0:1]:1", ("::1", 1)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("127.9.9.9:65535", ("127.9.9.9", 65535)),
        (" [::ffff:127.0.0.1]:5 ", ("127.0.0.1", 5)),
    ],
)
def test_loopback_needs_nobodys_leave(text: str, address: tuple[str, int]) -> None:
    assert options(f"listen={text}").listen == address


def test_nodes_to_join_through_may_be_many_and_have_names() -> None:
    chosen = options("bootstrap=127.0.0.1:1", "bootstrap=[::1]:2", "bootstrap=localhost:3")
    assert chosen.bootstrap == (("127.0.0.1", 1), ("::1", 2), ("localhost", 3))
    chosen = options("open_swarm=on", "listen=127.0.0.1:1", DHTCRAWL_NODE_BOOTSTRAP="node-1.example.org:8468, [::1]:2")
    assert chosen.bootstrap == (("node-1.example.org", 8468), ("::1", 2))


@pytest.mark.parametrize(
    "args",
    [
        ["listen=0.0.0.0:8468"],
        ["listen=[::]:8468"],
        ["listen=192.0.2.7:8468"],
        ["bootstrap=192.0.2.7:8468"],
        ["bootstrap=127.0.0.1:8468", "bootstrap=node1.example.org:8468"],
        ["bootstrap=localhost.example.org:8468"],
        ["advertise=192.0.2.7:8468"],
    ],
)
def test_other_machines_are_refused_unless_the_swarm_is_open(args: list[str]) -> None:
    with pytest.raises(SwarmRefused, match="add --open-swarm") as caught:
        options(*args)
    assert caught.value.exit_code == 32
    assert "without a secret" in str(caught.value) or "other machines" in str(caught.value)
    more = [] if args[0].startswith("advertise") else ["advertise=192.0.2.7:8468"]
    assert options(*args, *more, "open_swarm=on").open_swarm


def test_on_every_address_others_must_be_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--listen \[::\]:8468 is every address .* --advertise HOST:PORT"):
        options("open_swarm=on")
    # On the way to a node of the swarm it is known by itself.
    assert options("open_swarm=on", "bootstrap=127.0.0.1:8468").advertise == ("127.0.0.1", 8468)

    def own(others: Sequence[Address], listen: str) -> str | None:
        return "198.51.100.3" if others[0][0] == "192.0.2.7" else None

    monkeypatch.setattr(addresses, "own_address", own)
    assert options("open_swarm=on", "bootstrap=192.0.2.7:1").advertise == ("198.51.100.3", 8468)
    with pytest.raises(UsageError, match="--advertise"):
        options("open_swarm=on", "bootstrap=192.0.2.7:1", "listen=0.0.0.0:0")
    # Which may be otherwise in a moment, as after a power cut: a service tries again what ends with 30.
    with pytest.raises(BootstrapUnreachable, match=r"no way from here to 192\.0\.2\.8:1; .* --advertise"):
        options("open_swarm=on", "bootstrap=192.0.2.8:1")


def test_an_address_on_the_way_is_found_without_sending_anything() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.setblocking(False)
        assert own_address([other.getsockname()], "::") == "127.0.0.1"
        with pytest.raises(BlockingIOError):
            other.recv(1)
        # The first that there is a way to counts, and a way of a family that is listened on.
        known = [("no-such-host.invalid", 1), ("ff0e::1%no-such-interface", 1), other.getsockname()]
        assert own_address(known, "::") == "127.0.0.1"
        assert own_address([other.getsockname()], "2001:db8::1") is None


def test_names_that_all_are_unknown_are_told_as_that(here: Here, started: Started) -> None:
    ended = here("join", "--open-swarm", "--bootstrap", "no-such-host.invalid:8468", "--bootstrap", "a.invalid:1")
    assert (ended.code, started) == (30, [])
    said = ended.message()
    assert said.startswith("dhtcrawl: bootstrap: the name no-such-host.invalid was not found (")
    assert "the name a.invalid was not found (" in said
    assert "no answer" not in said


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("no-such-host.invalid", 33, "the name was not found; check it, and that a name server answers"),
        ("127.0.1.1.example", 2, "the name stands for no address that others can use"),
    ],
)
def test_a_name_of_our_own_that_is_not_known_now_is_told_from_one_that_is_of_no_use(
    name: str, code: int, says: str, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = socket.getaddrinfo

    def found(host: str, *args: Any, **options: Any) -> Any:
        return find("127.0.1.1" if host.endswith(".example") else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    monkeypatch.setattr("dhtcrawl.cli.swarmnode.run_loop", lambda main: asyncio.run(main()))
    ended = here("join", "--open-swarm", "--advertise", f"{name}:8468", "--data-dir", tmp_path / "data")
    assert (ended.code, f"dhtcrawl: --advertise {name}:8468: {says}" in ended.message()) == (code, True), ended


def test_others_are_not_told_an_address_at_which_they_find_themselves() -> None:
    for bootstrap in ("192.0.2.7:8468", "node1.example.org:8468"):
        with pytest.raises(
            UsageError, match=f"--advertise 127.0.0.1:8468 leads .* {bootstrap} is another; leave it out"
        ):
            options("open_swarm=on", f"bootstrap={bootstrap}", "advertise=localhost:8468")
    assert options("open_swarm=on", "bootstrap=127.0.0.1:1", "advertise=127.0.0.1:8468").advertise == (
        "127.0.0.1",
        8468,
    )
    assert options("open_swarm=on", "advertise=127.0.0.1:8468").advertise == ("127.0.0.1", 8468)


@pytest.mark.parametrize(
    ("arg", "says"),
    [
        ("listen=node.example.org:8468", "a name may mean several addresses"),
        ("advertise=0.0.0.0:8468", "others cannot reach that"),
        ("advertise=127.0.0.1:0", "others cannot reach that"),
        ("bootstrap=127.0.0.1:0", "nobody can be reached there"),
        ("bootstrap=[::]:8468", "nobody can be reached there"),
        ("admin=", "a node needs an address for commands"),
    ],
)
def test_an_address_that_cannot_be_used_so_is_told(arg: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        options(arg, "open_swarm=on", "listen=127.0.0.1:8468") if not arg.startswith("listen") else options(arg)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.7", "node.example.org"])
def test_beyond_loopback_the_admin_port_asks_for_a_token(host: str) -> None:
    with pytest.raises(
        UsageError, match=r"^--admin .*: whoever reaches it could command this node; .* --admin-token-file"
    ):
        options(f"admin={host}:8469")
    # That the swarm is open does not make it so for commands.
    with pytest.raises(UsageError, match="--admin-token-file FILE"):
        options(f"admin={host}:8469", "open_swarm=on", "listen=127.0.0.1:8468")
    with pytest.raises(ConfigError, match=r"node.admin \(DHTCRAWL_NODE_ADMIN\)"):
        options(DHTCRAWL_NODE_ADMIN=f"{host}:8469")
    assert options(f"admin={host}:8469", "admin_token_file=token").admin == parse_address(f"{host}:8469")


def test_on_loopback_the_admin_port_may_ask_for_a_token() -> None:
    assert options("admin_token_file=token").admin == ("127.0.0.1", 8469)
    assert options("admin=localhost:1").admin == ("localhost", 1)


@pytest.mark.parametrize(
    "text",
    [
        "8468", "127.0.0.1", "::1:8468", "[::1]", "[::1]:", "a b:1", "127.0.0.1:65536", "[g::]:1", "http://a:1", "a:1/",
        "a" * 254 + ":1", "[127.0.0.1]:1", "é.example:1", "-:-1",
        "a..example:1", ".a.example:1", "a" * 64 + ".example:1", "999.0.0.1:1", "127.1:1", "192.0.2.7.:1", "0:1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--listen", "--bootstrap", "--advertise", "--admin"])
def test_what_is_no_address_is_told_what_one_is(option: str, text: str, here: Here, started: Started) -> None:
    ended = here("join", f"{option}={text}")
    assert ended.code == 2
    assert "use HOST:PORT, such as 127.0.0.1:8468 or [::1]:8468" in ended.message()
    assert started == []


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("127.0.0.1:8468", "[::1]:8468", "node.example.org:0", "a_b.example.:1", "[2001:db8::7]:65535"):
        assert format_address(parse_address(text)) == text
    assert [is_loopback(host) for host in ("127.1.2.3", "::1", "LOCALHOST", "::", "10.0.0.1", "a.localhost")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert [is_wildcard(host) for host in ("0.0.0.0", "::", "localhost", "127.0.0.1")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("args", "alone"),
    [
        ([], True),
        (["listen=[::1]:1", "advertise=127.0.0.1:2", "bootstrap=localhost:3"], True),
        (["open_swarm=on", "listen=127.0.0.1:1"], True),
        (["open_swarm=on", "advertise=192.0.2.7:1"], False),
        (["open_swarm=on", "listen=10.0.0.5:1"], False),
        (["open_swarm=on", "listen=127.0.0.1:1", "advertise=10.0.0.5:1"], False),
        (["open_swarm=on", "listen=127.0.0.1:1", "bootstrap=node-1.example.org:1"], False),
    ],
)
def test_a_node_whose_addresses_are_all_on_loopback_is_among_its_own(args: list[str], alone: bool) -> None:
    assert options(*args).on_loopback is alone


def test_a_node_that_takes_no_connections_joins_others_and_tells_no_address_of_its_own() -> None:
    there = ("open_swarm=on", "outbound_only=on", "bootstrap=127.0.0.1:8468")
    assert options(*there).outbound_only
    assert not options("open_swarm=on", "bootstrap=127.0.0.1:8468").outbound_only
    with pytest.raises(UsageError, match=r"--outbound_only: such a node begins no swarm; name a node to join through"):
        options(*there[:2])
    with pytest.raises(UsageError, match=r"no other node reaches this one at 192\.0\.2\.7:1; leave out one"):
        options(*there, "advertise=192.0.2.7:1")


# -- the command --


def test_the_node_is_started_with_its_settings_and_its_exit_code_is_the_commands(
    here: Here, started: Started, tmp_path: Path
) -> None:
    ended = here(
        "join", "--bootstrap", "127.0.0.1:1", "--bootstrap", "[::1]:2", "--listen", "127.0.0.1:0", "--admin",
        "[::1]:0", "--data-dir", tmp_path, "-c", "5", "--set", "swarm.replicas=1", "--json",
    )  # fmt: skip
    assert (ended.code, ended.stdout, ended.stderr) == (31, "", "")
    ((config, chosen),) = started
    assert chosen == JoinOptions(
        (("127.0.0.1", 1), ("::1", 2)), ("127.0.0.1", 0), None, ("::1", 0), open_swarm=False, as_json=True
    )
    assert (config.node.data_dir, config.fetch.concurrency, config.swarm.replicas) == (str(tmp_path), 5, 1)


def test_without_a_directory_the_platform_says_where(
    here: Here, started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert here("join").code == 31
    ((config, _),) = started
    assert Path(config.node.data_dir) == default_data_dir()
    if sys.platform == "linux":
        assert default_data_dir() == tmp_path / "dhtcrawl"
    assert dataclasses.replace(config.node, data_dir="") == load().node
    assert list(tmp_path.iterdir()) == []


def test_the_refusal_of_other_machines_is_one_line_with_the_remedy(here: Here, started: Started) -> None:
    ended = here("join", "--bootstrap", "192.0.2.7:8468")
    assert ended.code == 32
    assert ended.message() == (
        "dhtcrawl: --bootstrap 192.0.2.7:8468: other machines could take part without a secret; "
        "make one with 'dhtcrawl secret new FILE', copy it to each of them and name it with --secret-file FILE; "
        "or in a network where you trust every machine, add --open-swarm"
    )
    assert started == []
