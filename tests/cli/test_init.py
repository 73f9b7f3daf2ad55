"""`dhtcrawl init`: settings that load, a unit that systemd takes, and nothing that was there is overwritten."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from dhtcrawl.cli.runtime import locked
from dhtcrawl.cli.service_unit import service_unit
from dhtcrawl.cli.settings_file import settings_file
from dhtcrawl.config import Config, all_settings, changed, load

from .conftest import Here, spawn

DHTCRAWL = Path("/opt/dhtcrawl/bin/dhtcrawl")


def loaded(text: str, directory: Path) -> Config:
    file = directory / "settings.toml"
    file.write_text(text, "utf-8")
    return load(file=file)


def test_every_setting_stands_in_the_file_with_its_default(tmp_path: Path) -> None:
    text = settings_file({})
    assert loaded(text, tmp_path).origins == {}
    all_of_it = re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    config = loaded(all_of_it, tmp_path)
    assert list(config.origins) == list(all_settings())
    assert changed(config) == {}


def test_what_is_chosen_is_a_setting_and_the_rest_a_comment(tmp_path: Path) -> None:
    chosen: dict[str, object] = {
        "node.advertise": "node1.example.org:8468", "node.bootstrap": ("192.0.2.7:8468", "[2001:db8::1]:8468"),
        "node.open_swarm": True, "fetch.concurrency": 8, "crawl.contact": 'a "quoted" \\ näme', "swarm.lease_s": 2.5,
    }  # fmt: skip
    assert changed(loaded(settings_file(chosen), tmp_path)) == chosen


def test_init_makes_the_secret_of_a_closed_swarm_and_takes_one_that_is_there(here: Here, tmp_path: Path) -> None:
    etc, second = tmp_path / "etc", tmp_path / "second"
    ended = here("init", etc, "--advertise", "node1.example.org:8468", "--user", "crawl")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["useradd", "chown", "systemctl"]
    assert load(file=etc / "dhtcrawl.toml").node.secret_file == str(etc / "secret")
    assert (etc / "secret").stat().st_mode & 0o777 == 0o600
    assert here("secret", "check", etc / "secret").code == 0
    secret = (etc / "secret").read_text()
    assert secret.strip() not in (etc / "dhtcrawl.toml").read_text() + ended.stdout + ended.stderr
    ended = here("init", second, "--secret-file", etc / "secret", "--advertise", "node2.example.org:8468")
    assert ended.code == 0
    assert load(file=second / "dhtcrawl.toml").node.secret_file == str(etc / "secret")
    assert sorted(path.name for path in second.iterdir()) == ["dhtcrawl.service", "dhtcrawl.toml"]
    # A secret that others have is not replaced either.
    (etc / "dhtcrawl.toml").unlink()
    (etc / "dhtcrawl.service").unlink()
    again = here("init", etc, "--advertise", "node1.example.org:8468")
    assert (again.code, (etc / "secret").read_text()) == (2, secret)
    assert again.message().endswith(
        f"secret is there already; take it with --secret-file {etc}/secret, or name another directory"
    )


def test_a_new_secret_is_not_the_one_of_nodes_that_are_there(here: Here, tmp_path: Path) -> None:
    options = ("--advertise", "192.0.2.8:8468", "--bootstrap", "192.0.2.7:8468")
    ended = here("init", tmp_path / "etc", *options)
    assert ended.code == 0
    assert ended.stderr.endswith(f"192.0.2.7:8468 has its own: copy that over {tmp_path}/etc/secret before you go on\n")
    told = here("init", tmp_path / "other", *options, "--secret-file", tmp_path / "etc/secret").stderr
    assert "has its own" not in told
    assert "has its own" not in here("init", tmp_path / "first", "--advertise", "192.0.2.7:8468").stderr


def test_the_service_can_read_what_its_admin_port_needs(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tls").mkdir()
    options = ["--open-swarm", "--advertise", "192.0.2.7:8468", "--admin", "192.0.2.7:8469"]
    options += ["--admin-token-file", "etc/token", "--admin-cert", "tls/cert.pem"]
    for directory, key in (("etc", ["--admin-key", "tls/key.pem"]), ("both", [])):
        ended = here("init", directory, *options, *key)
        assert ended.code == 0
        assert f"chown dhtcrawl: {tmp_path}/etc/token {tmp_path}/{key[-1] if key else 'tls/cert.pem'}\n" in ended.stdout
        assert (f"wrote {tmp_path}/etc/token" in ended.stderr) == (directory == "etc")
    assert (tmp_path / "etc/token").stat().st_mode & 0o777 == 0o600


def test_what_is_to_be_done_next_works_in_any_directory(here: Here, tmp_path: Path) -> None:
    ended = here("init", tmp_path / "a ${HOME}", "--advertise", "node1.example.org:8468")
    steps = [shlex.split(line)[-1] for line in ended.stdout.splitlines()]
    assert steps[1:] == [str(tmp_path / "a ${HOME}" / name) for name in ("secret", "dhtcrawl.service")]


def test_init_writes_both_files_once_and_says_what_to_do_next(here: Here, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    options = ("--open-swarm", "--advertise", "node1.example.org:8468", "-c", "8")
    ended = here("init", etc, *options)
    assert ended.code == 0
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["useradd", "systemctl"]
    config = load(file=etc / "dhtcrawl.toml")
    assert changed(config) == {
        "node.data_dir": "/var/lib/dhtcrawl", "node.advertise": "node1.example.org:8468", "node.open_swarm": True,
        "fetch.concurrency": 8,
    }  # fmt: skip
    unit = (etc / "dhtcrawl.service").read_text("utf-8")
    (command,) = re.findall(r"^ExecStart=(\S+) join --config (\S+)$", unit, re.MULTILINE)
    assert Path(command[0]).is_absolute()
    assert command[1] == str(etc / "dhtcrawl.toml")
    again = here("init", etc, *options)
    assert again.code == 2
    assert "is there already; move it away" in again.message()


def test_the_nodes_user_reads_the_settings_whatever_root_keeps_from_others(here: Here, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(0o700)
    before = os.umask(0o077)
    try:
        for directory in (tmp_path / "etc", mine):
            assert here("init", directory, "--advertise", "node1.example.org:8468").code == 0
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "etc", *(tmp_path / "etc").iterdir())}
    assert modes == {"etc": 0o755, "dhtcrawl.toml": 0o644, "dhtcrawl.service": 0o644, "secret": 0o600}
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700, "what was there is its owner's business"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--secret-file", "missing"], 2, "make it with 'dhtcrawl secret new"),
        (["--user", "Root User"], 2, "is no name of a user"),
        (["--secret-file", "-"], 2, "a service has no standard input"),
        (["--set", "node.colour=red"], 4, "node.colour"),
        (["--open-swarm"], 2, "--advertise HOST:PORT"),
    ],
)
def test_what_join_would_refuse_is_refused_before_anything_is_written(
    options: list[str], code: int, says: str, here: Here, tmp_path: Path
) -> None:
    ended = here("init", tmp_path / "etc", *options)
    assert (ended.code, list(tmp_path.iterdir())) == (code, [])
    assert says in ended.message()


def test_a_directory_that_cannot_be_made_is_told(here: Here, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = here("init", tmp_path / "file", "--advertise", "192.0.2.7:8468")
    assert ended.code == 2
    assert "file: cannot be made (File exists); name another directory" in ended.message()


def test_what_init_is_told_of_below_a_home_is_seen_there(here: Here, tmp_path: Path) -> None:
    options = ("--open-swarm", "--advertise", "192.0.2.7:8468", "--admin-cert", "/home/crawl/cert.pem")
    for directory, more, seen in ((tmp_path / "in", options, "read-only"), (tmp_path / "out", options[:3], "yes")):
        assert here("init", directory, *more).code == 0
        assert f"\nProtectHome={seen}\n" in (directory / "dhtcrawl.service").read_text()


def test_what_may_be_otherwise_in_a_moment_is_tried_again(tmp_path: Path) -> None:
    unit = service_unit(DHTCRAWL, Path("/etc/dhtcrawl/a.toml"), Path("/var/lib/dhtcrawl"), "dhtcrawl")
    (never,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    data_dir, file = tmp_path / "data", tmp_path / "a.toml"

    def ended(listen: str) -> tuple[str, bool]:
        chosen = {"node.data_dir": str(data_dir), "node.open_swarm": True, "node.listen": listen}
        file.write_text(settings_file(chosen), "utf-8")
        said = spawn(tmp_path, "join", "--config", file)
        return said.stderr, str(said.code) in never.split()

    said, is_last = ended("203.0.113.9:8468")
    assert ("cannot assign requested address" in said, is_last) == (True, False), said
    with locked(data_dir):
        said, is_last = ended("127.0.0.1:0")
        assert ("is in use by process" in said, is_last) == (True, False), said
    said, is_last = ended("a.example:8468")
    assert ("a name may mean several addresses" in said, is_last) == (True, True), said


def test_the_unit_makes_its_directory_where_systemd_does_and_sees_homes_only_where_it_must() -> None:
    unit = service_unit(DHTCRAWL, Path("/etc/dhtcrawl/a.toml"), Path("/var/lib/dhtcrawl"), "dhtcrawl")
    assert "\nStateDirectory=dhtcrawl\n" in unit
    assert "\nProtectHome=yes\n" in unit
    unit = service_unit(DHTCRAWL, Path("/etc/100%/a b.toml"), Path("/home/crawl/data"), "crawl")
    assert "StateDirectory" not in unit
    assert '\nExecStart=/opt/dhtcrawl/bin/dhtcrawl join --config "/etc/100%%/a b.toml"\n' in unit
    assert "\nProtectHome=read-only\n" in unit
    odd = service_unit(DHTCRAWL, Path("/etc/${HOME}/a\\b.toml"), Path("/srv/${HOME}"), "crawl")
    assert '\nExecStart=/opt/dhtcrawl/bin/dhtcrawl join --config "/etc/$${HOME}/a\\\\b.toml"\n' in odd
    assert '\nReadWritePaths="/srv/${HOME}"\n' in odd
    assert "\nWorkingDirectory=/srv/${HOME}\n" in odd
    spaced = service_unit(DHTCRAWL, Path("/etc/dhtcrawl/a.toml"), Path("/var/lib/dht crawl"), "crawl")
    assert '\nStateDirectory="dht crawl"\n' in spaced, "or it would be two directories"
    assert "\nReadWritePaths=/home/crawl/data\n" in unit
    assert "\nUser=crawl\n" in unit
    settings, key = Path("/home/crawl/a.toml"), [Path("/etc/dhtcrawl/secret"), Path("/root/key.pem")]
    for unit in (
        service_unit(DHTCRAWL, settings, Path("/var/lib/dhtcrawl"), "crawl"),
        service_unit(DHTCRAWL, Path("/etc/dhtcrawl/a.toml"), Path("/var/lib/dhtcrawl"), "crawl", key),
    ):
        assert "\nProtectHome=read-only\n" in unit, "what the settings name is read there"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
@pytest.mark.parametrize("data_dir", ["/srv/a b", "/srv/${HOME}", "/srv/50%", "/var/lib/dht crawl"])
def test_systemd_takes_the_unit_whatever_the_data_directory_is_called(data_dir: str, tmp_path: Path) -> None:
    unit = tmp_path / "dhtcrawl.service"
    unit.write_text(service_unit(Path("/bin/true"), Path("/etc/a.toml"), Path(data_dir), "daemon"))
    verified = analyze("verify", str(unit))
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_takes_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    # A command and a user that this machine has.
    unit = tmp_path / "dhtcrawl.service"
    unit.write_text(service_unit(Path("/bin/true"), Path("/etc/a.toml"), Path("/var/lib/dhtcrawl"), "daemon"))
    verified = analyze("verify", str(unit))
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    # Exits with 1 above the threshold, in tenths.
    judged = analyze("security", "--offline=true", "--threshold=25", "--no-pager", str(unit))
    assert judged.returncode == 0, judged.stdout


def analyze(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *args], capture_output=True, text=True, timeout=60, check=False)
