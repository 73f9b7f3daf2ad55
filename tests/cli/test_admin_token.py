"""The token of the admin port: its file, and what commands and the node do with it."""

from __future__ import annotations

import errno
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.crawler import CHECKOUT
from web.fake import CRAWL, FakeNode, running

from dhtcrawl.cli.admin_token import make_missing_token, token_of
from dhtcrawl.cli.client import NodeAccess
from dhtcrawl.config import Config, load
from dhtcrawl.errors import AdminRefused, ConfigError, UsageError
from dhtcrawl.web.admin import Access

from .conftest import Here

TOKEN = "a-token-that-nobody-guesses"


def config_of(path: Path | str) -> Config:
    key = "node.admin_token_file"
    return load(flags={key: str(path)}, options={key: "--admin-token-file"})


def written(path: Path, text: str = TOKEN + "\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def locked_admin(node: FakeNode) -> Iterator[str]:
    """The address of a node that asks for `TOKEN`."""
    with running(node, Access(TOKEN)) as address:
        yield address


# -- the file --


def test_a_new_token_of_a_service_is_written_over_the_old_one_as_the_page_on_operations_has_it(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "operations.md").read_text("utf-8").partition("\n### Rotation\n")[2]
    (command, _) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0].split("\n  systemctl ")
    path = written(tmp_path / "token")
    before = path.stat()
    subprocess.run(["sh", "-ec", command.replace("/etc/dhtcrawl/admin-token", str(path))], check=True)
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    assert token_of(config_of(path)) != TOKEN
    # Where the service may not write, nobody makes what was removed, and a refused setting is not tried again.
    settings = tmp_path / "settings.toml"
    settings.write_text('[node]\nadmin_token_file = "/proc/token"\n')
    with pytest.raises(ConfigError, match="/proc/token: cannot be made"):
        make_missing_token(load(file=settings))


def test_no_file_is_no_token() -> None:
    assert token_of(Config()) == ""
    assert make_missing_token(Config()) is None


def test_a_token_is_the_line_in_its_file(tmp_path: Path) -> None:
    assert token_of(config_of(written(tmp_path / "token"))) == TOKEN
    assert token_of(config_of(written(tmp_path / "bare", TOKEN))) == TOKEN
    assert token_of(config_of(written(tmp_path / "mine", mode=0o400))) == TOKEN


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = written(tmp_path / "token", mode=mode)
    with pytest.raises(AdminRefused, match=f"{path} can be read by others; run: chmod 600 {path}") as caught:
        token_of(config_of(path))
    assert caught.value.exit_code == 32


@pytest.mark.parametrize(
    "text", ["", "\n", "short", "two lines of words\nthat are none", "x" * 600, "é" * 30, "a b" * 20]
)
def test_what_is_no_token_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "token", text)
    with pytest.raises(UsageError, match=f"^--admin-token-file {path}: holds no token, .*makes one$") as caught:
        token_of(config_of(path))
    assert text.strip() == "" or text.strip() not in str(caught.value)
    with pytest.raises(ConfigError, match="DHTCRAWL_NODE_ADMIN_TOKEN_FILE"):
        token_of(load(environ={"DHTCRAWL_NODE_ADMIN_TOKEN_FILE": str(path)}))


def test_a_file_that_is_not_there_is_made_once_by_the_node_and_missed_by_commands(tmp_path: Path) -> None:
    config = config_of(tmp_path / "token")
    with pytest.raises(UsageError, match="cannot be read"):
        token_of(config)
    assert make_missing_token(config) == tmp_path / "token"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    made = token_of(config)
    assert len(made) >= 40
    assert make_missing_token(config) is None
    assert token_of(config) == made
    other = config_of(tmp_path / "other")
    make_missing_token(other)
    assert token_of(other) != made
    with pytest.raises(UsageError, match="cannot be made"):
        make_missing_token(config_of(tmp_path / "nowhere" / "token"))


def test_a_token_is_replaced_in_its_file_which_stays_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "token"
    config = config_of(path)
    make_missing_token(config)
    another = "0123456789abcdef" * 4  # as openssl rand -hex 32
    path.write_text(f"{another}\n")
    assert make_missing_token(config) is None
    assert (token_of(config), stat.S_IMODE(path.stat().st_mode)) == (another, 0o600)


def test_a_directory_that_may_not_be_searched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", exists)
    with pytest.raises(UsageError, match=r"theirs/token: cannot be made \(Permission denied\); write a token there"):
        make_missing_token(config_of(tmp_path / "theirs" / "token"))


def test_a_token_is_not_in_what_describes_access() -> None:
    assert TOKEN not in repr(NodeAccess(("127.0.0.1", 1), TOKEN))


# -- commands --

ASKING = [
    ["status"],
    ["crawls"],
    ["why", "example.org"],
    ["pause", CRAWL.hex()],
    ["submit", "example.org"],
    ["leave"],
]


@pytest.mark.parametrize("args", ASKING, ids=lambda args: args[0])
def test_a_command_sends_the_token_of_its_file(
    args: list[str], here: Here, node: FakeNode, locked_admin: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "token")
    ended = here(*args, "--admin", locked_admin, "--admin-token-file", path)
    assert (ended.code, ended.stderr) == (0, "")
    assert TOKEN not in ended.stdout


@pytest.mark.parametrize("args", [*ASKING, ["gather", CRAWL.hex(), "--out", "out"]], ids=lambda args: args[0])
def test_without_the_token_nothing_is_asked_and_the_remedy_said(
    args: list[str], here: Here, node: FakeNode, locked_admin: str, tmp_path: Path
) -> None:
    for more in ([], ["--admin-token-file", written(tmp_path / "token", "another-token-than-the-nodes")]):
        ended = here(*args, "--admin", locked_admin, *more)
        assert ended.code == 32
        assert ended.message() == (
            f"dhtcrawl: the node at {locked_admin}: this node asks for its token; "
            "name the file that holds it with --admin-token-file"
        )
    assert node.asked == []


def test_the_file_may_be_named_in_the_environment(
    here: Here, locked_admin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN", locked_admin)
    monkeypatch.setenv("DHTCRAWL_NODE_ADMIN_TOKEN_FILE", str(written(tmp_path / "token")))
    assert here("status", "--json").code == 0
    ended = here("config", "show")
    assert (str(tmp_path / "token") in ended.stdout, TOKEN in ended.stdout) == (True, False)


def test_what_is_logged_has_no_token(here: Here, locked_admin: str, tmp_path: Path) -> None:
    ended = here(
        "submit", "example.org", "-vv", "--admin", locked_admin, "--admin-token-file", written(tmp_path / "token")
    )
    assert ended.code == 0
    assert re.search(r"POST /crawls brought", ended.stderr)
    assert TOKEN not in ended.stderr + ended.stdout


def test_a_node_does_not_start_with_a_file_that_others_can_read(here: Here, tmp_path: Path) -> None:
    path = written(tmp_path / "token", mode=0o644)
    ended = here("join", "--data-dir", tmp_path / "data", "--admin", "0.0.0.0:0", "--admin-token-file", path)
    assert (ended.code, "chmod 600" in ended.message()) == (32, True)
    assert not (tmp_path / "data").exists()


def test_a_node_that_anybody_could_command_does_not_start(here: Here, tmp_path: Path) -> None:
    ended = here("join", "--data-dir", tmp_path / "data", "--admin", "0.0.0.0:0")
    assert (ended.code, ended.message()) == (
        2,
        "dhtcrawl: --admin 0.0.0.0:0: whoever reaches it could command this node; "
        "have it ask for a token with --admin-token-file FILE",
    )
    assert not (tmp_path / "data").exists()


def test_an_unreadable_file_is_one_line(here: Here, tmp_path: Path) -> None:
    ended = here("status", "--admin-token-file", tmp_path)
    assert (ended.code, "--admin-token-file" in ended.message()) == (2, True)
