"""A disk that fills up stops a crawl; space given back lets it go on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from export.made import Made, make

from .archive import assert_valid
from .conftest import Serve
from .crawler import Crawler
from .outputs import Outputs
from .sites import POSTGRESQL, START
from .truth import truth_of


@pytest.fixture
def small_disk(tmp_path: Path, root: None) -> Iterator[Path]:
    """A file system of 3 MB, about half of what the crawl writes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = _mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", disk)
    if mounted.returncode != 0:
        pytest.skip(f"may not mount: {mounted.stderr.strip()}; run it as root, or in a privileged container")
    try:
        yield disk
    finally:
        # Lazily: a crawler that is still dying must not keep it mounted.
        subprocess.run(["umount", "-l", str(disk)], check=True, timeout=30)


def _fill(disk: Path) -> None:
    room = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize))


def _mount(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *map(str, argv)], capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.needs_nginx
@pytest.mark.needs_root
def test_a_full_disk_stops_the_crawl_and_space_given_back_completes_it(
    small_disk: Path, serve: Serve, crawler: Crawler
) -> None:
    server = serve(POSTGRESQL)
    out = small_disk / "out"
    command = ["crawl", server.url + START, "--allow-private", "--delay", "0", "--out", str(out), "--json"]
    for _ in range(2):  # the second time it is full from the start
        message = crawler.run(*command).ended_with(3).one_line()
        assert "no space left" in message
        assert "free" in message, "the message names the remedy"
    assert _mount("-o", "remount,size=256m", small_disk).returncode == 0

    ran = crawler.run(*command).ended_with(0)
    assert (ran.summary["complete"], ran.summary["lost"], ran.summary["pages_missing"]) == (True, 0, 0), ran
    assert Outputs(out).html().keys() == truth_of(POSTGRESQL.root, START).pages.keys()
    assert_valid(Outputs(out).warcs())
    crawler.check(out)


@pytest.mark.needs_root
def test_a_full_disk_stops_an_extraction_and_space_given_back_completes_it(small_disk: Path, crawler: Crawler) -> None:
    root = make(small_disk / "out", [Made(f"http://a.example/{number}") for number in range(10)])
    rules = small_disk / "r.toml"
    rules.write_text('[[rules]]\nname = "r"\nsite = "*"\nfields = [{ name = "t", selector = "title" }]\n')
    _fill(small_disk)
    command = ["extract", str(root), "--rules", str(rules), "--processes", "1", "--json"]
    message = crawler.run(*command).ended_with(3).one_line()
    assert "records/unfinished-" in message
    assert "no space left on the disk; free some" in message
    (small_disk / "filler").unlink()
    assert crawler.run(*command).ended_with(0).summary["records"] == {"r": 10}
