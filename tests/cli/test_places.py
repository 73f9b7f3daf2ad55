"""Where a crawl's directories lie, and that nothing in the one that people hand on is secret."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from demo_site import DemoServer
from e2e.outputs import Outputs

from dhtcrawl.cli import disk
from dhtcrawl.cli.default_out import nodes_begun
from dhtcrawl.cli.places import (
    CRAWLS_DIR,
    find_data_dir,
    node_dir,
    nodes_dir,
    out_of,
    remove_left,
    remove_nodes,
    remove_unbegun,
)
from dhtcrawl.cli.runtime import STORE_DIR, locked
from dhtcrawl.errors import UsageError
from dhtcrawl.storage.outputs.outputs import OUTPUT_FILES

from .conftest import DemoCrawl, Here, secrets_in, spawn


def quick(server: DemoServer, *args: str) -> list[str]:
    """The command of a crawl of one page."""
    return ["crawl", f"{server.url}notes.txt", "--scope", "page", "--allow-private", "--delay", "0", *args]


def test_the_outputs_hold_no_key_and_no_store(demo: DemoCrawl) -> None:
    assert secrets_in(demo.out) == []
    files = {path.relative_to(demo.out).as_posix() for path in demo.out.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith("archive/")} <= set(OUTPUT_FILES)
    assert (node_dir(demo.out) / "identity.pem").read_bytes().startswith(b"-----BEGIN PRIVATE KEY")


def test_the_outputs_of_several_processes_hold_no_key_and_no_store(server: DemoServer, tmp_path: Path) -> None:
    ended = spawn(tmp_path, *quick(server, "--nodes", "2", "--out", "out"))
    assert ended.code == 0, ended
    assert secrets_in(tmp_path / "out") == []
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} >= {"out", "out.node"}
    assert not (tmp_path / "out.node" / "nodes").exists(), "what the processes had is no longer needed"


@pytest.mark.parametrize("place", ["out.node", "out"])
def test_nodes_of_a_complete_crawl_that_are_half_removed_are_none(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the middle of it left a crawl with fewer nodes, which could neither go on nor be called complete."""
    out, removed = tmp_path / "out", shutil.rmtree
    for number in "12":
        (tmp_path / place / "nodes" / number / "store").mkdir(parents=True)

    def killed(path: Path, *, ignore_errors: bool) -> None:
        if path.exists():
            removed(path / "1", ignore_errors=ignore_errors)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_nodes(out)
    assert nodes_begun(out) is None
    assert list((tmp_path / place).iterdir()) != []
    remove_left(out)
    assert list((tmp_path / place).iterdir()) == []


# -- moved, copied, left behind --


def test_a_crawl_that_is_moved_with_what_lies_beside_it_goes_on(copy: Path, demo: DemoCrawl, here: Here) -> None:
    copy.rename(copy.with_name("moved"))
    node_dir(copy).rename(node_dir(copy.with_name("moved")))
    moved = copy.with_name("moved")
    assert here("fsck", "--out", moved).stdout.endswith(": sound\n")
    assert "complete; name another" in crawl_again(here, demo, moved)


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_outputs_that_were_moved_alone_are_not_crawled_over(
    nodes: str, copy: Path, demo: DemoCrawl, here: Here
) -> None:
    shutil.rmtree(node_dir(copy))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    told = crawl_again(here, demo, copy, "--nodes", nodes)
    assert f"what goes on with them is not at {node_dir(copy)}; move it there" in told
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert here("verify", copy).code == 0


def test_no_outputs_are_put_beside_the_key_of_another_crawl(copy: Path, demo: DemoCrawl, here: Here) -> None:
    before = sorted(path.name for path in node_dir(copy).iterdir())
    assert "holds the store of a node" in crawl_again(here, demo, node_dir(copy))
    assert "holds the store of a node" in crawl_again(here, demo, node_dir(copy), "--nodes", "2")
    assert sorted(path.name for path in node_dir(copy).iterdir()) == before


@pytest.mark.parametrize("nodes", [(), ("--nodes", "2")])
def test_a_file_is_no_place_for_outputs_and_gets_no_store_beside_it(
    demo: DemoCrawl, here: Here, tmp_path: Path, nodes: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    file.touch()
    ended = here("crawl", demo.url, "--allow-private", "--delay", "0", "--out", file, *nodes)
    assert (ended.code, "a file is in the way" in ended.stderr) == (1, True)
    below = here("crawl", demo.url, "--allow-private", "--delay", "0", "--out", file / "below", *nodes)
    assert (below.code, "a file is in the way; name another directory" in below.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_nobody_is_told_to_remove_the_data_of_a_node_of_a_swarm(copy: Path, demo: DemoCrawl, here: Here) -> None:
    data_dir, other = node_dir(copy), copy.with_name("other")
    assert f"or remove {data_dir} to crawl anew" in crawl_again(here, demo, other, "--data-dir", str(data_dir))
    (data_dir / CRAWLS_DIR).mkdir()
    said = crawl_again(here, demo, other, "--data-dir", str(data_dir))
    assert said == f"dhtcrawl: {data_dir} belongs to a node of a swarm; name another directory with --data-dir, or none"


def test_no_key_is_put_into_the_outputs_of_another_crawl(copy: Path, demo: DemoCrawl, here: Here) -> None:
    outputs = copy.rename(copy.with_name("x.node"))
    assert "nothing secret may lie in those" in crawl_again(here, demo, copy.with_name("x"))
    assert "nothing secret may lie in those" in crawl_again(here, demo, copy.with_name("y"), "--data-dir", str(outputs))
    assert secrets_in(outputs) == []


def test_outputs_of_which_the_store_knows_nothing_are_not_crawled_over(copy: Path, demo: DemoCrawl, here: Here) -> None:
    """It forgot the crawl, or its files are gone: it would be taken for a new one."""
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for file in (node_dir(copy) / "store").iterdir():
        file.unlink()
    told = crawl_again(here, demo, copy)
    assert f"of which the store in {node_dir(copy)} knows nothing; restore the store" in told
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_crawl_by_one_node_does_not_go_on_with_several(copy: Path, demo: DemoCrawl, here: Here) -> None:
    assert "holds a crawl by one node; leave out --nodes" in crawl_again(here, demo, copy, "--nodes", "2")


@pytest.mark.parametrize("more", [(), ("--nodes", "2")])
def test_nodes_that_never_had_a_store_are_no_crawl_to_go_on_with(
    demo: DemoCrawl, here: Here, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """A command with more nodes was ended before its first one had begun."""
    base = tmp_path / "out.node" / "nodes"
    for number in "123":
        with locked(base / number):
            pass
    out = tmp_path / "out"
    # A node whose command was killed may be about to begin.
    with locked(base / "2"):
        assert f"{base / '2'} is in use by process" in crawl_again(here, demo, out, *more)
    (base / "3" / STORE_DIR).mkdir()
    assert f"{out} holds a crawl with " in crawl_again(here, demo, out, *more)
    (base / "3" / STORE_DIR).rmdir()
    remove_unbegun(out)
    assert not base.exists()


def test_a_directory_within_the_outputs_that_is_called_nodes_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "out" / "nodes" / "mine" / "file"
    file.parent.mkdir(parents=True)
    file.touch()
    remove_unbegun(tmp_path / "out")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_a_store_whose_outputs_are_gone_says_so(copy: Path, demo: DemoCrawl, here: Here) -> None:
    shutil.rmtree(copy)
    told = crawl_again(here, demo, copy)
    assert f"remove {node_dir(copy)} to crawl anew" in told
    assert not copy.exists()


def crawl_again(here: Here, demo: DemoCrawl, out: Path, *more: str) -> str:
    ended = here("crawl", demo.url, "--allow-private", "--delay", "0", "--out", out, *more)
    assert ended.code == 2, ended
    return ended.message()


# -- what earlier versions left --


def test_a_directory_of_an_earlier_version_goes_on_with_what_is_in_it(server: DemoServer, tmp_path: Path) -> None:
    command = ["crawl", server.url, "--allow-private", "--delay", "0", "--out", "out"]
    first = spawn(tmp_path, *command, "--max-pages", "3")
    assert first.code == 21, first
    (tmp_path / "out.node").rename(tmp_path / "out" / "node")
    had = {row["url"] for row in Outputs(tmp_path / "out").pages()}
    assert "sound" in spawn(tmp_path, "fsck", "--out", "out").stdout
    again = spawn(tmp_path, *command, "--max-pages", "3")
    assert again.code == 21, again
    assert {row["url"] for row in Outputs(tmp_path / "out").pages()} == had
    assert not (tmp_path / "out.node").exists()


@pytest.mark.parametrize("command", [["verify"], ["extract", "--rules", "r.toml"], ["export", "--format", "csv"]])
def test_outputs_that_still_lie_with_the_nodes_of_their_crawl_are_said_to(
    command: list[str], tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text('[[rules]]\nname = "r"\nsite = "*"\nfields = [{ name = "f", selector = "p" }]\n')
    Path("out.node/nodes/1").mkdir(parents=True)
    ended = here(*command, "out")
    assert "the pages of out lie with the nodes of its crawl: repeat the crawl's command" in ended.message()
    assert ended.code == 2


def test_both_places_are_known_and_the_newer_one_is_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (node_dir(out), nodes_dir(out)) == (tmp_path / "out.node", tmp_path / "out.node" / "nodes")
    (out / "node" / "store").mkdir(parents=True)
    (out / "nodes" / "1").mkdir(parents=True)
    assert (node_dir(out), nodes_dir(out)) == (out / "node", out / "nodes")
    (tmp_path / "out.node" / "store").mkdir(parents=True)
    (tmp_path / "out.node" / "nodes").mkdir()
    assert (node_dir(out), nodes_dir(out)) == (tmp_path / "out.node", tmp_path / "out.node" / "nodes")
    assert {out_of(out / "node"), out_of(tmp_path / "out.node")} == {out}
    assert out_of(tmp_path / "data") is None


def test_without_a_name_the_newest_store_here_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no crawl here"):
        find_data_dir(None, None)
    for at, place in enumerate(("crawl-2026-01-01/node", "example.org-2026-01-02.node", "empty.node")):
        (tmp_path / place / ("store" if at < 2 else "logs")).mkdir(parents=True)
        os.utime(tmp_path / place, (at, at))
    assert find_data_dir(None, None) == Path("example.org-2026-01-02.node")
    os.utime(tmp_path / "crawl-2026-01-01/node", (9, 9))
    assert find_data_dir(None, None) == Path("crawl-2026-01-01/node")


def test_a_directory_without_a_name_of_its_own_has_a_place_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    for out in (Path(), Path("sub/.."), tmp_path / "link"):
        assert node_dir(out) == tmp_path / "real.node"
    with pytest.raises(UsageError, match="name a directory below it"):
        node_dir(Path("/"))


async def test_the_disk_limit_looks_at_the_outputs_and_at_the_store(tmp_path: Path) -> None:
    for name, size in (("out", 100_000), ("out.node", 200_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * size)
    both = [tmp_path / "out", tmp_path / "out.node"]
    assert disk.is_reached(disk.look("250000", both))
    assert not disk.is_reached(disk.look("250000", both[:1]))
    assert not disk.is_reached(disk.look("100%", both))
    assert disk.is_reached(disk.look("0%", both))


async def test_the_disk_limit_says_whether_it_would_be_reached_with_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    whole = os.statvfs(tmp_path)
    for limit, room in (("250000", 250_000), ("100%", whole.f_blocks * whole.f_frsize)):
        used = disk.disk_watch(limit, [tmp_path])
        assert not await used()
        assert not await used(50_000)
        assert await used(room)
    assert not await disk.disk_watch("", [tmp_path])(2**60)
