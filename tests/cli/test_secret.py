"""`dhtcrawl secret`: the file, who may read it, and the three steps of a rotation."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

import pytest

from dhtcrawl.cli.secret_file import read_secrets
from dhtcrawl.closed.secret import BANNED_MAX, parse_ring

from .conftest import Here


def names(path: Path) -> list[str]:
    return [keys.name for keys in parse_ring(path.read_text(), "here").keys]


def test_a_new_secret_is_in_a_file_of_its_owner_alone(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    done = here("secret", "new", path)
    (name,) = names(path)
    assert (done.code, done.stdout) == (0, f"{path}: a new secret, {name}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert here("secret", "check", path).stdout == f"{name}  used, and accepted\n"


def test_a_secret_that_is_there_is_not_written_over(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    here("secret", "new", path)
    before = path.read_text()
    done = here("secret", "new", path)
    assert done.code == 2
    assert f"{path} is there; 'dhtcrawl secret rotate' changes it" in done.stderr
    assert path.read_text() == before


def test_a_secret_goes_through_standard_streams(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    made = here("secret", "new", "-").stdout
    monkeypatch.setattr("sys.stdin", io.StringIO(made))
    assert here("secret", "check", "-").stdout == f"{parse_ring(made, 'here').used.name}  used, and accepted\n"
    assert read_secrets("-") == ""


def test_what_is_no_text_on_standard_input_is_no_secret(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8"))
    done = here("secret", "check", "-")
    assert (done.code, "standard input: is no text" in done.message()) == (32, True), done


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_can_read_is_refused(mode: int, here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    here("secret", "new", path)
    path.chmod(mode)
    done = here("secret", "check", path)
    assert (done.code, done.stderr.strip()) == (32, f"dhtcrawl: {path} can be read by others; run: chmod 600 {path}")


def test_a_file_that_holds_none_or_is_not_there_is_refused(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    assert "cannot be read (No such file or directory); check the path" in here("secret", "check", path).stderr
    path.touch(0o600)
    done = here("secret", "check", path)
    assert done.code == 32
    assert "there is no secret; make one with 'dhtcrawl secret new FILE'" in done.stderr
    assert here("secret", "new", tmp_path / "missing" / "secret").code == 2


def test_a_rotation_goes_in_three_steps_and_none_is_done_twice(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    here("secret", "new", path)
    (old,) = names(path)
    assert here("secret", "rotate", path, "accept").code == 0
    new = names(path)[1]
    assert names(path) == [old, new]
    again = here("secret", "rotate", path, "accept")
    assert (again.code, again.stderr.strip()) == (2, f"dhtcrawl: {path}: its next step is 'use', not 'accept'")
    used = here("secret", "rotate", path, "use")
    assert used.code == 0
    assert f"when 'dhtcrawl status' shows no node that uses {old}, and none as unknown: drop" in used.stderr
    assert names(path) == [new, old]
    assert here("secret", "rotate", path, "use").code == 2
    assert here("secret", "rotate", path, "drop").code == 0
    assert names(path) == [new]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert here("secret", "rotate", path, "accept").code == 0


@pytest.mark.needs_root
def test_a_file_stays_its_owners_whoever_rotates_it_or_bans_a_node(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    here("secret", "new", path)
    os.chown(path, 4321, 4321)  # the user of the service
    for step in (("secret", "rotate", path, "accept"), ("ban", "ab" * 20, "--secret-file", path)):
        before = path.read_text()
        assert here(*step).code == 0
        found = path.stat()
        assert path.read_text() != before
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4321, 4321, 0o600)


def test_a_link_stays_one_and_the_file_that_it_leads_to_changes(here: Here, tmp_path: Path) -> None:
    file, link = tmp_path / "kept" / "swarm.secret", tmp_path / "secret"
    file.parent.mkdir()
    here("secret", "new", file)
    link.symlink_to(file)
    assert here("secret", "rotate", link, "accept").code == 0
    assert here("ban", "ab" * 20, "--secret-file", link).code == 0
    assert link.is_symlink()
    ring = parse_ring(file.read_text(), "here")
    assert (len(ring.keys), ring.banned) == (2, frozenset({b"\xab" * 20}))


def test_a_full_disk_is_told_as_such_and_leaves_the_secret_as_it_was(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "secret"
    here("secret", "new", file)
    before = file.read_text()
    monkeypatch.setattr("dhtcrawl.cli.secret_file.write_private", full)
    for path, command in (
        (file, ("secret", "rotate", file, "accept")),
        (tmp_path / "b", ("secret", "new", tmp_path / "b")),
    ):
        ended = here(*command)
        assert (ended.code, ended.message()) == (
            3,
            f"dhtcrawl: cannot write {path}: no space left on the disk; free some and run the same command again",
        )
    assert file.read_text() == before


def test_a_file_that_was_changed_by_hand_is_not_rotated(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    path.write_text(here("secret", "new", "-").stdout + here("secret", "new", "-").stdout)
    path.chmod(0o600)
    done = here("secret", "rotate", path, "drop")
    assert done.code == 2
    assert "it is not as 'secret rotate' writes it (2 secrets); leave the one that is used alone in it" in done.stderr


def test_a_node_is_banned_and_let_in_again_also_in_the_middle_of_a_rotation(here: Here, tmp_path: Path) -> None:
    path, node = tmp_path / "swarm.secret", "ab" * 20
    here("secret", "new", path)
    here("secret", "rotate", path, "accept")
    done = here("ban", node, "--secret-file", path)
    assert (done.code, done.stderr.strip()) == (
        0,
        f"dhtcrawl: {path}: {node} is banned. Copy the file to every other node",
    )
    assert here("secret", "rotate", path, "use").code == 0
    assert parse_ring(path.read_text(), "here").banned == {b"\xab" * 20}
    assert "let in again" in here("ban", node.upper(), "--lift", "--secret-file", path).stderr
    assert parse_ring(path.read_text(), "here").banned == frozenset()
    for wrong in ("ab", "x" * 40):
        assert "is no node id; 'dhtcrawl peers --json' has the ids" in here("ban", wrong, "--secret-file", path).stderr


def test_who_is_banned_while_the_secret_is_replaced_stays_so_for_it_may_have_the_new_one(
    here: Here, tmp_path: Path
) -> None:
    path, before, meanwhile, later, lifted = tmp_path / "swarm.secret", *(f"{n:040x}" for n in (1, 2, 3, 4))
    here("secret", "new", path)
    here("ban", before, "--secret-file", path)
    here("secret", "rotate", path, "accept")
    for node in (before, meanwhile, lifted):
        here("ban", node, "--secret-file", path)
    here("ban", lifted, "--lift", "--secret-file", path)
    here("secret", "rotate", path, "use")
    here("ban", later, "--secret-file", path)
    assert parse_ring(path.read_text(), "here").banned == {bytes.fromhex(node) for node in (before, meanwhile, later)}
    dropped = here("secret", "rotate", path, "drop")
    assert (dropped.code, "who was banned since the rotation began stays so" in dropped.stderr) == (0, True)
    assert parse_ring(path.read_text(), "here").banned == {bytes.fromhex(node) for node in (meanwhile, later)}
    for step in ("accept", "use", "drop"):
        assert here("secret", "rotate", path, step).code == 0
    assert parse_ring(path.read_text(), "here").banned == frozenset()


def test_no_ban_is_lifted_that_there_is_not_and_none_is_one_too_many(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "swarm.secret"
    here("secret", "new", path)
    nodes = [f"{n:040x}" for n in range(BANNED_MAX)]
    here("ban", nodes[0], "--secret-file", path)
    done = here("ban", nodes[1], "--lift", "--secret-file", path)
    assert (done.code, f"{path}: {nodes[1]} is not banned there" in done.message()) == (2, True)
    path.write_text(path.read_text() + "".join(f"ban {node}\n" for node in nodes))
    before = path.read_text()
    done = here("ban", "ab" * 20, "--secret-file", path)
    assert (done.code, f"{BANNED_MAX + 1} banned nodes; at most {BANNED_MAX}" in done.message()) == (32, True)
    assert path.read_text() == before
