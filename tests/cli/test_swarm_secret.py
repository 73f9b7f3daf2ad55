"""Where a node's secret comes from, what it changes, and how a running node takes up another."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from closed.members import OTHER, SECRET

from dhtcrawl.cli.addresses import JoinOptions, join_options_of
from dhtcrawl.cli.counted import command_of, counted
from dhtcrawl.cli.secret_watch import SecretWatch
from dhtcrawl.cli.swarm_secret import NodeSecrets, secrets_of
from dhtcrawl.closed.secret import Ring, secret_text
from dhtcrawl.closed.tls import CERTIFICATE_FILE, RENEW_S, SwarmTls
from dhtcrawl.config import Config, load
from dhtcrawl.errors import ConfigError, SecretRefused, UsageError
from dhtcrawl.identity import FILE_NAME, public_key

OURS, THEIRS = Ring.of((SECRET,)), Ring.of((OTHER,))
VARIABLE = {"DHTCRAWL_SECRET": secret_text(OTHER)}


def written(path: Path, ring: Ring = OURS, mode: int = 0o600) -> Path:
    path.write_text(ring.text())
    path.chmod(mode)
    return path


def named(path: Path | str, **flags: object) -> Config:
    return load(
        flags={"node.secret_file": str(path), **flags},
        options={"node.secret_file": "--secret-file", "node.open_swarm": "--open-swarm"},
    )


def test_without_a_secret_there_is_none(tmp_path: Path) -> None:
    assert secrets_of(Config(), {}, tmp_path) is None


def test_an_option_goes_before_the_variable_and_that_before_a_file_of_settings(tmp_path: Path) -> None:
    path = written(tmp_path / "swarm.secret")
    there = NodeSecrets(OURS, str(path))
    assert secrets_of(named(path), VARIABLE, tmp_path) == there
    by_variable = load(environ={"DHTCRAWL_NODE_SECRET_FILE": str(path)})
    assert secrets_of(by_variable, VARIABLE, tmp_path) == there
    settings = tmp_path / "node.toml"
    settings.write_text(f'[node]\nsecret_file = "{path}"\n')
    assert secrets_of(load(file=settings), VARIABLE, tmp_path) == NodeSecrets(THEIRS, "")
    assert secrets_of(load(file=settings), {}, tmp_path) == there


def test_a_file_in_the_data_directory_is_taken_and_watched(tmp_path: Path) -> None:
    path = written(tmp_path / "secret")
    assert secrets_of(Config(), {}, tmp_path) == NodeSecrets(OURS, str(path))
    path.chmod(0o640)
    with pytest.raises(SecretRefused, match=f"{path} can be read by others; run: chmod 600 {path}") as caught:
        secrets_of(Config(), {}, tmp_path)
    assert caught.value.exit_code == 32


def test_the_variable_may_hold_two_and_standard_input_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"DHTCRAWL_SECRET": f"{secret_text(SECRET)},{secret_text(OTHER)}"}
    assert secrets_of(Config(), both, tmp_path) == NodeSecrets(Ring.of((SECRET, OTHER)), "")
    monkeypatch.setattr("sys.stdin", io.StringIO(OURS.text()))
    assert secrets_of(named("-"), {}, tmp_path) == NodeSecrets(OURS, "")
    with pytest.raises(SecretRefused, match=r"^DHTCRAWL_SECRET: line 1 does not begin with dhs1-"):
        secrets_of(Config(), {"DHTCRAWL_SECRET": "hunter2"}, tmp_path)


def test_a_file_that_is_not_there_is_missed_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    remedy = f"{path}: there is no such file; make it with 'dhtcrawl secret new {path}'"
    with pytest.raises(UsageError, match=f"^--secret-file {remedy}"):
        secrets_of(named(path), {}, tmp_path)
    with pytest.raises(ConfigError, match="DHTCRAWL_NODE_SECRET_FILE"):
        secrets_of(load(environ={"DHTCRAWL_NODE_SECRET_FILE": str(path)}), {}, tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        secrets_of(named(tmp_path), {}, tmp_path)


def join(**flags: object) -> JoinOptions:
    config = named("", **{f"node.{key}": value for key, value in flags.items()})
    return join_options_of(config, secrets=NodeSecrets(OURS, "/s"))


def test_with_a_secret_a_node_listens_for_other_machines() -> None:
    chosen = join(advertise="192.0.2.7:9000")
    assert (chosen.listen, chosen.advertise, chosen.open_swarm) == (("::", 8468), ("192.0.2.7", 9000), False)
    assert join(listen="127.0.0.1:1", bootstrap=["192.0.2.7:1"]).bootstrap == (("192.0.2.7", 1),)
    assert JoinOptions.from_json(chosen.to_json()) == chosen
    assert secret_text(SECRET) not in repr(chosen)


def test_a_secret_and_an_open_swarm_are_one_too_many() -> None:
    with pytest.raises(UsageError, match=r"^--open-swarm: this node has a secret, .*; leave out one of the two$"):
        join(open_swarm="on")


def test_the_command_that_starts_a_node_again_names_the_file_and_not_the_secret(tmp_path: Path) -> None:
    place = counted(2, join(listen="127.0.0.1:1"), tmp_path / "data")[1]
    again = command_of(place, Config())
    assert "--secret-file /s" in again
    assert "dhs1" not in again


def first_tls(data_dir: Path) -> SwarmTls:
    """What a node with this data directory begins with."""
    return SwarmTls.of(OURS, data_dir, data_dir / FILE_NAME, public_key(data_dir))


class Watched:
    """A file of secrets, and what a running node makes of it."""

    def __init__(self, path: Path, ring: Ring = OURS) -> None:
        """The node has read `OURS`; the file has this ring by the time that it is looked at."""
        self.path = written(path, ring)
        self.used: list[Ring] = []
        self.now = 1000.0
        make = cast(Callable[[Ring], SwarmTls], lambda ring: None)
        self.watch = SecretWatch(
            OURS,
            str(path),
            make,
            lambda ring, tls: self.used.append(ring),
            made_at=self.now,
            clock=lambda: self.now,
        )

    def changes(self, ring: Ring, mode: int = 0o600) -> None:
        """In one piece, as `secret rotate` writes it."""
        written(self.path.with_suffix(".new"), ring, mode).replace(self.path)
        self.watch.look()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "swarm.secret")


def test_a_running_node_takes_up_what_its_file_says(watched: Watched) -> None:
    watched.watch.look()
    assert watched.used == []
    both = Ring.of((SECRET, OTHER))
    watched.changes(both)
    watched.watch.look()
    watched.changes(THEIRS)
    assert watched.used == [both, THEIRS]


def test_what_was_written_to_its_file_while_a_node_started_is_taken_up(watched: Watched) -> None:
    late = Watched(watched.path, Ring.of((SECRET, OTHER)))
    late.watch.look()
    late.watch.look()
    assert late.used == [Ring.of((SECRET, OTHER))]


def test_secrets_that_came_through_a_pipe_are_not_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    made = cast(Callable[[Ring], SwarmTls], lambda ring: None)
    SecretWatch(OURS, str(pipe), made, lambda ring, tls: None, made_at=0.0, clock=float).look()


def test_a_certificate_that_cannot_be_written_is_told_of_once_and_tried_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(ring: Ring) -> SwarmTls:
        raise OSError(28, "No space left on device")

    both = Ring.of((SECRET, OTHER))
    with monkeypatch.context() as disk:
        disk.setattr(watched.watch, "_make_tls", full)
        watched.changes(both)
        watched.watch.look()
        assert watched.used == []
        assert [record.message for record in caplog.records] == [
            "the node's new certificate cannot be written (No space left on device); the old one serves on"
        ]
    watched.watch.look()
    assert watched.used == [both]


def test_a_node_whose_data_directory_takes_no_certificate_goes_on_and_takes_up_the_secret_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir, file, used = tmp_path / "data", written(tmp_path / "swarm.secret"), list[str]()
    data_dir.mkdir()
    tls = first_tls(data_dir)
    watch = SecretWatch.of_node(OURS, tls, str(file), data_dir, lambda ring, tls: used.append(ring.used.name))
    in_the_way = data_dir / f".{CERTIFICATE_FILE}.new"
    in_the_way.mkdir()
    written(tmp_path / "new", THEIRS).replace(file)
    for _ in range(2):
        watch.look()
    assert (used, len(caplog.records)) == ([], 1)
    in_the_way.rmdir()
    watch.look()
    assert used == [THEIRS.used.name]


def test_a_running_node_takes_up_who_is_banned(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    banned = Ring.of((SECRET,), {bytes(20)})
    watched.changes(banned)
    assert watched.used == [banned]
    assert [record.message for record in caplog.records] == [f"{watched.path}: 1 nodes are banned from here on"]


def test_a_file_that_cannot_be_used_changes_nothing_and_is_told_of_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.changes(THEIRS, 0o644)
    watched.watch.look()
    assert [record.message for record in caplog.records] == [
        f"{watched.path} can be read by others; run: chmod 600 {watched.path}; the secrets stay as they were"
    ]
    watched.path.unlink()
    watched.watch.look()
    watched.path.write_text("half a sec")
    watched.watch.look()
    assert watched.used == []
    watched.changes(THEIRS)
    assert watched.used == [THEIRS]


def test_a_certificate_is_renewed_by_the_clock_that_others_read_it_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, made = first_tls(tmp_path), list[Ring]()
    now = tls.made_at
    monkeypatch.setattr(time, "time", lambda: now)
    watch = SecretWatch.of_node(OURS, tls, "", tmp_path, lambda ring, tls: made.append(ring))
    watch.look()
    assert made == []
    now += RENEW_S  # the machine slept, say
    watch.look()
    assert made == [OURS]
    now -= 2 * 86_400  # it was set right, and others would find the certificate to be of the future
    watch.look()
    watch.look()
    assert made == [OURS, OURS]


def test_a_certificate_is_renewed_long_before_it_expires(watched: Watched) -> None:
    watched.now += RENEW_S
    watched.watch.look()
    watched.watch.look()
    assert watched.used == [OURS]
    assert RENEW_S < 10 * 86_400
