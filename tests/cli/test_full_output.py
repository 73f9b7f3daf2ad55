"""A standard output that takes nothing more, as a file on a full disk, is told by every command that prints."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

import pytest
from e2e.crawler import environment
from e2e.fork_server import start
from export.made import Made, make

from .conftest import TIMEOUT_S

RULES = '[[rules]]\nname = "r"\nsite = "*"\nfields = [{ name = "t", selector = "title" }]\n'
TEMPLATE = """
words = ["tea"]
[engines.e]
url = "http://a.example/?q={query}"
[[tasks]]
name = "tea"
"""


@pytest.mark.parametrize(
    "command",
    [
        ["expand", "t.toml"],
        ["expand", "t.toml", "--count"],
        ["try-rules", "--rules", "r.toml", "page.html", "--url", "http://a.example/"],
        ["try-rules", "--rules", "r.toml", "page.html", "--url", "http://a.example/", "--json"],
        ["extract", "c", "--rules", "r.toml", "--processes", "1"],
        ["extract", "c", "--rules", "r.toml", "--processes", "1", "--json"],
        ["verify", "c"],
        ["verify", "c", "--json"],
        ["export", "c", "--format", "csv"],
        ["config", "show"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_full_disk_behind_standard_output_ends_a_command_with_3(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(RULES)
    (tmp_path / "t.toml").write_text(TEMPLATE)
    (tmp_path / "page.html").write_text("<title>T</title>")
    root = make(tmp_path / "c", [Made("http://a.example/")])
    if command[0] == "verify":  # more than a buffer has room for
        (root / "pages/pages.jsonl").write_text("no page\n" * 999)
    with Path("/dev/full").open("wb") as full, TemporaryFile() as stderr:
        ran = start(command, stdout=full.fileno(), stderr=stderr.fileno(), cwd=tmp_path, env=environment(tmp_path))
        code = ran.wait(TIMEOUT_S)
        stderr.seek(0)
        told = stderr.read().decode().splitlines()
    assert code == 3, told
    assert told[-1] == (
        "dhtcrawl: cannot write to standard output: no space left on the disk; free some and run the same command again"
    )
