"""What an evening with it brings: a pipe that closes, a forgotten option, too few files, a password in a seed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.crawler import COMMAND, environment
from e2e.deadline import until
from e2e.outputs import Outputs
from e2e.stub import Answer, StubServer

from dhtcrawl.cli.client import ADMIN_FILE
from dhtcrawl.cli.main import run

from .conftest import TIMEOUT_S


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        yield server


@pytest.fixture
def site(stub: StubServer) -> StubServer:
    stub.page("/", *(f"/{number}" for number in range(20)))
    for number in range(20):
        stub.page(f"/{number}", "/")
    return stub


def crawl(seed: str, out: Path, *options: str, **streams: object) -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, "crawl", seed, "--delay", "0", "--out", str(out), *options]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.run(argv, env=environment(out.parent), text=True, timeout=TIMEOUT_S, check=False, **given)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_leaves_does_not_end_the_crawl(site: StubServer, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = crawl(f"{site.url}/", tmp_path / "out", "--allow-private", stderr=writer)
    finally:
        os.close(writer)
    assert ended.returncode == 0
    assert len(Outputs(tmp_path / "out").pages()) == 21


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_reader_that_leaves_does_not_end_a_node(nodes: int, tmp_path: Path) -> None:
    data = [tmp_path / "data", tmp_path / "data-2"][:nodes]
    argv = [*COMMAND, "join", "--nodes", str(nodes), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    argv += ["--data-dir", str(data[0]), "-v", "--log-format", "json"]
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(argv, env=environment(tmp_path), stdout=writer, stderr=subprocess.PIPE, text=True) as join:
        os.close(writer)
        assert join.stderr is not None
        try:
            active = (line for line in join.stderr if "this node is active" in line)
            assert all(next(active, "") for _ in data), "it has ended"
            until(lambda: all((each / ADMIN_FILE).exists() for each in data), "commands find it")
            for each in data:
                assert run(["status", "--admin", (each / ADMIN_FILE).read_text().strip()]) == 0
            join.terminate()
            join.stderr.read()
            assert join.wait(TIMEOUT_S) == 0
        finally:
            join.kill()


def test_a_full_stdout_costs_the_summary_and_nothing_else(site: StubServer, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = crawl(f"{site.url}/", tmp_path / "out", "--allow-private", stdout=full)
    assert "summary.json" in ended.stderr.splitlines()[-1]
    assert "bug" not in ended.stderr
    assert ended.returncode == 0
    assert Outputs(tmp_path / "out").summary()["complete"] is True


def test_the_remedy_that_a_refused_seed_names_works(site: StubServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused = crawl(f"{site.url}/", out)
    assert refused.returncode == 9
    assert "--allow-private" in refused.stderr
    assert crawl(f"{site.url}/", out, "--allow-private").returncode == 0
    assert len(Outputs(out).pages()) == 21


def test_a_crawl_that_brought_nothing_leaves_nothing_when_it_is_begun_anew(site: StubServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    site.answers["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /\n", headers={"Content-Type": "text/plain"})
    assert crawl(f"{site.url}/", out, "--allow-private").returncode == 9
    assert len(list((out / "archive").iterdir())) == 1
    del site.answers["/robots.txt"]
    assert crawl(f"{site.url}/", out, "--allow-private").returncode == 0
    assert run(["verify", str(out)]) == 0
    assert len({file.name.split("-")[0] for file in (out / "archive").iterdir()}) == 1


@pytest.mark.parametrize(
    ("files", "remedy"), [(310, "use 10 or less, or raise 'ulimit -n'"), (256, "raise 'ulimit -n' to 400 or more")]
)
def test_more_requests_than_open_files_are_refused_by_name(files: int, remedy: str, tmp_path: Path) -> None:
    argv = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *COMMAND]
    argv += ["crawl", "http://a.example/", "-c", "100", "--out", str(tmp_path / "out")]
    ended = subprocess.run(
        argv, env=environment(tmp_path), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 2
    assert "--concurrency is 100" in ended.stderr
    assert f"but the system allows {files}; {remedy}\n" in ended.stderr


@pytest.mark.parametrize(
    "seed", ["http://me:secret@a.example/", "https://me@a.example/x", "me:1234@a.example", "http:/me:secret@a.example"]
)
def test_a_password_in_a_seed_is_refused(seed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crawl", seed, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "://a.example/" in told
    assert "a user or a password before its host, which is never sent; leave that out" in told
    assert "secret" not in told
    assert "1234" not in told


def test_too_many_requests_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crawl", "a.example", "-c", "5000", "--out", str(tmp_path / "out")]) == 2
    assert "use 4096 or less" in capsys.readouterr().err
