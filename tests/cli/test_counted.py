"""Where the nodes of `join --nodes` listen and keep their data."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.cli.addresses import JoinOptions, join_options_of
from dhtcrawl.cli.counted import NodePlace, command_of, counted, not_run
from dhtcrawl.cli.options import config_options, join_options, load_config, node_options
from dhtcrawl.config import load
from dhtcrawl.errors import UsageError
from dhtcrawl.units import Address

DEFAULT = JoinOptions((), ("127.0.0.1", 8468), None, ("127.0.0.1", 8469), open_swarm=False)


def ports(nodes: int, listen: Address, admin: Address) -> list[tuple[int, int]]:
    join = dataclasses.replace(DEFAULT, listen=listen, admin=admin)
    return [(place.join.listen[1], place.join.admin[1]) for place in counted(nodes, join, Path("d"))]


def test_the_first_node_is_where_one_node_would_be_and_the_others_are_counted_up() -> None:
    places = counted(3, DEFAULT, Path("data"))
    assert places[0].join == DEFAULT
    assert [place.data_dir for place in places] == [Path("data"), Path("data-2"), Path("data-3")]
    assert ports(3, DEFAULT.listen, DEFAULT.admin) == [(8468, 8469), (8470, 8471), (8472, 8473)]


def test_the_step_is_the_smallest_that_has_no_port_twice() -> None:
    assert ports(3, ("127.0.0.1", 7000), ("127.0.0.1", 8000)) == [(7000, 8000), (7001, 8001), (7002, 8002)]
    assert ports(3, ("127.0.0.1", 7000), ("127.0.0.1", 7002)) == [(7000, 7002), (7003, 7005), (7006, 7008)]
    assert ports(2, ("127.0.0.1", 7001), ("127.0.0.2", 7000)) == [(7001, 7000), (7002, 7001)]
    assert ports(2, ("::", 7001), ("127.0.0.1", 7000)) == [(7001, 7000), (7003, 7002)]


@given(nodes=st.integers(1, 64), listen=st.integers(1, 500), admin=st.integers(1, 500))
def test_no_two_nodes_share_a_port(nodes: int, listen: int, admin: int) -> None:
    found = ports(nodes, ("127.0.0.1", listen), ("127.0.0.1", admin))
    if listen != admin:
        assert len({port for pair in found for port in pair}) == 2 * nodes


def test_port_0_stays_the_systems_choice_and_what_others_are_told_is_counted_up_too() -> None:
    assert ports(2, ("127.0.0.1", 0), ("127.0.0.1", 8469)) == [(0, 8469), (0, 8470)]
    join = dataclasses.replace(DEFAULT, listen=("0.0.0.0", 8468), advertise=("192.0.2.7", 9000))
    assert [place.join.advertise for place in counted(2, join, Path("d"))] == [("192.0.2.7", 9000), ("192.0.2.7", 9002)]


def test_ports_and_directories_that_there_are_not_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--admin 127.0.0.1:65534: for 3 nodes .* use a lower port, or fewer --nodes"):
        ports(3, ("127.0.0.1", 8468), ("127.0.0.1", 65_534))
    with pytest.raises(UsageError, match=r"--data-dir /: .* name a directory below it"):
        counted(2, DEFAULT, Path("/"))


def test_directories_of_nodes_that_do_not_run_now_are_known(tmp_path: Path) -> None:
    for number in (2, 3, 4, 6):
        (tmp_path / f"d-{number}").mkdir()
        (tmp_path / f"d-{number}" / "identity.pem").touch()
    assert not_run(2, tmp_path / "d") == [tmp_path / "d-3", tmp_path / "d-4"]
    assert not_run(4, tmp_path / "d") == []


def again(*options: str, nodes: int = 2) -> str:
    """What starts the second node of a command again."""
    read: dict[str, Any] = {}

    @click.command
    @join_options
    @node_options
    @config_options
    def command(**given: Any) -> None:
        read.update(given)

    command.main(list(options), standalone_mode=False)
    config = load_config(read)
    return command_of(counted(nodes, join_options_of(config), Path(config.node.data_dir or "d"))[1], config)


ALONE = "dhtcrawl join --data-dir d-2 --listen 127.0.0.1:8470 --admin 127.0.0.1:8471"


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--admin-token-file 'a token' --admin-cert cert.pem --admin-key key.pem",
        "--bootstrap 127.0.0.1:7000 --bootstrap [::1]:7000 --outbound-only",
        "--label type=meta --allow-policy mine:Nearest --allow-network loopback --allow-network 10.0.0.0/8",
        "--disk-limit 90% --concurrency 5 --set fetch.tls_verify=off --set storage.cache_bytes=1000",
    ],
)
def test_the_command_that_starts_a_node_again_says_what_the_command_of_all_did(options: str) -> None:
    said = again(*shlex.split(options))
    assert said.startswith(ALONE)
    assert sorted(shlex.split(said)[8:]) == sorted(shlex.split(options))


def test_the_command_that_starts_a_node_of_an_open_swarm_again_is_one_that_join_takes() -> None:
    said = again("--open-swarm", "--advertise", "192.0.2.7:9000", "--listen", "0.0.0.0:8468", "--data-dir", "my d")
    assert said == (
        "dhtcrawl join --data-dir 'my d-2' --listen 0.0.0.0:8470 --admin 127.0.0.1:8471 --advertise 192.0.2.7:9002 "
        "--open-swarm"
    )


def test_the_command_that_starts_a_node_again_reads_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[node]\nlisten = '127.0.0.1:7000'\n")
    said = again("--config", str(tmp_path / "my.toml"))
    assert said == f"{ALONE.replace('8470', '7001').replace('8471', '8470')} --config {tmp_path / 'my.toml'}"
    closed = dataclasses.replace(counted(2, DEFAULT, Path("d"))[1].join, secret_file="/a/secret")
    place = NodePlace(2, closed, Path("d-2"))
    assert command_of(place, load(flags={"node.secret_file": "secret"})) == f"{ALONE} --secret-file /a/secret"
