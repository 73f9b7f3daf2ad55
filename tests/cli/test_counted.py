"""Where the nodes of `join --nodes` listen and keep their data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.counted import command_of, counted, not_run
from dhtcrawl.config import NodeSettings
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


def test_the_command_that_starts_a_node_again_names_the_files_of_its_admin_port() -> None:
    second = counted(2, dataclasses.replace(DEFAULT, admin=("0.0.0.0", 8469)), Path("d"))[1]
    alone = "dhtcrawl join --data-dir d-2 --listen 127.0.0.1:8470 --admin 0.0.0.0:8471"
    assert command_of(second, NodeSettings()) == alone
    node = NodeSettings(admin_token_file="token", admin_cert="cert.pem", admin_key="key.pem")
    assert command_of(second, node) == f"{alone} --admin-token-file token --admin-cert cert.pem --admin-key key.pem"
    spaces = command_of(dataclasses.replace(second, data_dir=Path("d 2")), NodeSettings(admin_token_file="a token"))
    assert spaces == f"{alone} --admin-token-file 'a token'".replace("d-2", "'d 2'")
    networks = NodeSettings(private_networks=("loopback", "10.0.0.0/8"))
    assert command_of(second, networks) == f"{alone} --allow-network loopback --allow-network 10.0.0.0/8"
