"""Which key a node gets that has none yet, on the disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dhtcrawl.cli import new_keys, swarmnode
from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.new_keys import keys_for, make_key
from dhtcrawl.closed.secret import Ring
from dhtcrawl.config import load
from dhtcrawl.errors import StorageFull
from dhtcrawl.identity import has_key, keep, load_or_create
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.policy.shares import owned
from dhtcrawl.rpc.contact import Address

ANY: Address = ("127.0.0.1", 0)
ALONE = JoinOptions(bootstrap=(), listen=ANY, advertise=None, admin=ANY, open_swarm=False)
JOINING = replace(ALONE, bootstrap=(("192.0.2.1", 8468),))


def places(tmp_path: Path, count: int) -> list[Path]:
    made = [tmp_path / str(number) for number in range(count)]
    for path in made:
        path.mkdir()
    return made


def test_the_nodes_of_one_command_split_the_keys_evenly(tmp_path: Path) -> None:
    nodes = places(tmp_path, 8)
    keys = asyncio.run(keys_for(nodes, (), None))
    for path, key in zip(nodes, keys, strict=True):
        make_key(path, replace(JOINING, key=key), None)
    assert set(owned([load_or_create(path) for path in nodes]).values()) == {0.125}


def test_those_that_have_a_key_keep_it(tmp_path: Path) -> None:
    nodes = places(tmp_path, 3)
    old = load_or_create(nodes[1])
    keys = asyncio.run(keys_for(nodes, (), None))
    assert [bool(key) for key in keys] == [True, False, True]
    for path in (nodes[0], nodes[2]):
        load_or_create(path)
    # All have one now: nobody is asked, whoever is named.
    assert asyncio.run(keys_for(nodes, JOINING.bootstrap, None)) == [""] * 3
    assert load_or_create(nodes[1]) == old


def test_one_that_begins_a_swarm_is_left_to_make_any(tmp_path: Path) -> None:
    make_key(tmp_path, ALONE, None)
    assert not has_key(tmp_path)


def test_one_that_joins_splits_what_it_is_told_and_leaves_nothing_of_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [bytes([first]) + bytes(KEY_BYTES - 1) for first in (0x00, 0x20, 0x40, 0x60, 0x80, 0xA0, 0xC0)]

    async def told(_data_dir: Path, bootstrap: object, _ring: Ring | None) -> list[bytes]:
        assert bootstrap == JOINING.bootstrap
        return there

    monkeypatch.setattr(new_keys, "_members", told)
    monkeypatch.setattr(new_keys, "tries_of", lambda nodes: 200)
    make_key(tmp_path, JOINING, None)
    assert set(owned([*there, load_or_create(tmp_path)]).values()) == {0.125}
    assert [path.name for path in tmp_path.iterdir()] == ["identity.pem"]


def test_where_nobody_answers_the_node_has_a_key_all_the_same(tmp_path: Path) -> None:
    nowhere = replace(JOINING, bootstrap=(("127.0.0.1", 9),))
    (plain, closed) = places(tmp_path, 2)
    make_key(plain, nowhere, None)
    make_key(closed, nowhere, Ring.of((bytes(range(32)),)))
    for path in (plain, closed):
        assert [each.name for each in path.iterdir()] == ["identity.pem"]
        assert len(load_or_create(path)) == KEY_BYTES


def test_a_signal_before_or_after_the_search_ends_a_node_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(swarmnode, "make_key", interrupted)
    with pytest.raises(SystemExit) as ended:
        swarmnode.run_node(load(flags={"node.data_dir": str(tmp_path)}), JOINING)
    assert ended.value.code == 0
    assert capsys.readouterr().err == "dhtcrawl: stopped before this node joined\n"


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dhtcrawl.storage.store.files.sync_path", full)
    with pytest.raises(StorageFull):
        keep(tmp_path, b"")
