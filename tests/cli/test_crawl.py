"""`dhtcrawl crawl` on the demo site: what it fetched, and what it says on stdout, stderr and a terminal."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import re
import struct
import subprocess
import termios
from collections import defaultdict
from pathlib import Path

import pytest
from demo_site import DemoServer, expected
from e2e.crawler import COMMAND, environment
from e2e.outputs import Outputs, is_html, path_of
from e2e.stub import Answer, StubServer

from .conftest import TIMEOUT_S, DemoCrawl, Ended, spawn, spawn_anew
from .terminal import on_screen

ESCAPE = "\x1b"


def test_a_crawl_brings_what_the_site_has(demo: DemoCrawl) -> None:
    assert demo.ended.code == 0, demo.ended
    found: dict[str, set[str]] = defaultdict(set)
    outputs = Outputs(demo.out)
    for row in outputs.pages():
        status = row["status"]
        kind = "errors" if status >= 400 else "redirects" if status >= 300 else "html" if is_html(row) else "other"
        assert path_of(row["url"]) not in found[kind]
        found[kind].add(path_of(row["url"]))
    for row in outputs.skipped():
        if row["reason"] == "robots":
            found["robots"].add(path_of(row["url"]))
        elif row["reason"] == "out-of-scope":
            found["external"].add(row["url"])
    assert found == expected(demo.site)


def test_every_page_was_asked_for_once_and_a_busy_one_twice(demo: DemoCrawl, server: DemoServer) -> None:
    summary = json.loads(demo.ended.stdout)
    assert summary["fetches"] == summary["pages"] + 1
    assert (summary["complete"], summary["lost"], summary["refetches"]) == (True, 0, 0)
    assert (summary["pages_missing"], summary["politeness_violations"]) == (0, 0)
    # Other tests ask the same server; nobody ever asks for what is forbidden.
    assert not [path for path in server.hits if path.startswith(("/private/", "/calendar/"))]


def test_under_json_the_last_line_of_stdout_is_the_summary(demo: DemoCrawl) -> None:
    assert demo.ended.stdout.count("\n") == 1
    assert json.loads(demo.ended.stdout) == Outputs(demo.out).summary()


def test_piped_output_has_no_escapes(demo: DemoCrawl) -> None:
    assert ESCAPE not in demo.ended.stdout + demo.ended.stderr
    assert "\r" not in demo.ended.stderr
    assert demo.ended.stderr.splitlines()[0] == f"crawling {demo.url}"


def quick(server: DemoServer, home: Path, *args: str, stdin: bytes = b"") -> Ended:
    """A crawl of one page or two."""
    return spawn_anew(home, "crawl", *args, "--scope", "page", "--allow-private", "--delay", "0", stdin=stdin)


def test_seeds_come_from_arguments_and_a_file_at_once(server: DemoServer, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    text = f"\ufeff# seeds\n{server.url}notes.txt # plain\n\n{server.url}flag.png\n{server.url}notes.txt\n"
    seeds.write_text(text, "utf-8")
    ended = quick(server, tmp_path, f"{server.url}gone.html", "--seed-file", str(seeds), "--out", "out")
    assert ended.code == 0, ended
    assert {path_of(row["url"]) for row in Outputs(tmp_path / "out").pages()} == {
        "/gone.html",
        "/notes.txt",
        "/flag.png",
    }


def test_seeds_come_from_stdin(server: DemoServer, tmp_path: Path) -> None:
    ended = quick(server, tmp_path, "--seed-file", "-", "--out", "out", stdin=f"{server.url}notes.txt\n".encode())
    assert ended.code == 0, ended
    assert [path_of(row["url"]) for row in Outputs(tmp_path / "out").pages()] == ["/notes.txt"]


def test_without_out_the_directory_is_named_by_site_and_day(server: DemoServer, tmp_path: Path) -> None:
    ended = quick(server, tmp_path, f"{server.url}notes.txt")
    assert ended.code == 0, ended
    (out,) = (path for path in tmp_path.glob("crawl-127.0.0.1-*") if path.suffix != ".node")
    assert re.fullmatch(rf"crawl-127\.0\.0\.1-{server.url.rstrip('/').rpartition(':')[2]}-\d{{4}}-\d\d-\d\d", out.name)
    assert (out / "summary.json").is_file()
    lines = ended.stdout.splitlines()
    assert lines[-1] == f"  outputs    {out.name}/"
    assert max(map(len, lines)) <= 80
    assert "complete" in lines[0]
    # Another site on the same day has another directory; later commands find the newest without being told.
    assert "was fetched" in spawn(tmp_path, "why", f"{server.url}notes.txt").stdout


def test_a_data_directory_may_lie_elsewhere(server: DemoServer, tmp_path: Path) -> None:
    ended = quick(server, tmp_path, f"{server.url}notes.txt", "--out", "out", "--data-dir", "data")
    assert ended.code == 0, ended
    assert (tmp_path / "data" / "identity.pem").is_file()
    assert not (tmp_path / "out.node").exists()
    found = spawn(tmp_path, "forget", json.loads((tmp_path / "out/summary.json").read_text())["crawl"][:8],
                  "--data-dir", "data", "--outputs")  # fmt: skip
    assert found.code == 2
    assert "name them with --out DIR" in found.message()


def test_a_robots_file_kept_on_another_host_does_not_block_that_host(tmp_path: Path) -> None:
    with StubServer() as here, StubServer() as there:
        here.page("/")
        here.answers["/robots.txt"] = Answer(status=302, headers={"Location": f"{there.url}/rules.txt"})
        there.answers["/rules.txt"] = Answer(headers={"Content-Type": "text/plain"})
        there.page("/", *(f"/{number}" for number in range(4)))
        for number in range(4):
            there.page(f"/{number}")
        ended = spawn(
            tmp_path, "crawl", here.url, there.url, "--allow-private", "--delay", "30ms", "--out", "out", "--json"
        )
    assert ended.code == 0, ended
    summary = json.loads(ended.stdout)
    assert (summary["complete"], summary["pages"], summary["politeness_violations"]) == (True, 6, 0)


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_sitemap_that_is_named_as_a_seed_leads_to_all_that_it_lists(tmp_path: Path, nodes: str) -> None:
    """Of an index, of one that is packed, and no page links to any of it."""
    with StubServer() as site:
        listed = [f"{site.url}/{number}" for number in range(5)]
        parts = [
            ("/sitemap.xml", "application/xml", f"<sitemapindex><sitemap><loc>{site.url}/part.xml.gz</loc></sitemap>"),
            ("/part.xml.gz", "application/gzip", "".join(f"<url><loc>{url}</loc></url>" for url in listed)),
        ]
        for path, kind, entries in parts:
            text = f"<urlset>{entries}</urlset>" if path.endswith("gz") else f"{entries}</sitemapindex>"
            body = gzip.compress(text.encode()) if path.endswith("gz") else text.encode()
            site.answers[path] = Answer(body, headers={"Content-Type": kind})
        for number in range(5):
            site.page(f"/{number}")
        seed = f"{site.url}/sitemap.xml"
        ended = spawn(tmp_path, "crawl", seed, "--allow-private", "--delay", "0", "--out", "out", "--nodes", nodes)
    assert ended.code == 0, ended
    pages = {row["url"]: (row["depth"], row["referrer"]) for row in Outputs(tmp_path / "out").pages()}
    assert pages == {
        seed: (0, None), f"{site.url}/part.xml.gz": (1, seed), **dict.fromkeys(listed, (2, f"{site.url}/part.xml.gz"))
    }  # fmt: skip
    assert spawn(tmp_path, "verify", "out").code == 0


def test_a_crawl_that_is_refused_says_so_and_its_answers_outlive_the_next_try(tmp_path: Path) -> None:
    with StubServer() as site:
        site.answers["/"] = Answer(status=401, body=b"who are you?")
        command = ("crawl", site.url, "--allow-private", "--delay", "0", "--out", "out")
        refused = spawn(tmp_path, *command)
        assert refused.code == 9, refused
        first, _, requests, *lines = refused.stdout.splitlines()
        assert "  failed  in " in first
        assert "1 errors" in requests
        assert "  errors     401 1" in lines
        cause = f"dhtcrawl: nothing but redirects and errors was fetched: {site.url}/: answers 401 (Unauthorized); "
        assert refused.stderr.splitlines()[-1].startswith(cause)
        before = Outputs(tmp_path / "out").pages()
        site.page("/")
        again = spawn(tmp_path, *command)
        assert again.code == 0, again
        assert spawn(tmp_path, *command).code == 2, "a complete one is not begun anew"
    (kept,) = (tmp_path / "out" / "earlier").iterdir()
    assert f"its outputs are in {Path('out') / 'earlier' / kept.name}/ now" in again.stderr
    assert (Outputs(kept).pages(), [row["status"] for row in Outputs(tmp_path / "out").pages()]) == (before, [200])
    assert [spawn(tmp_path, "verify", place).code for place in ("out", kept)] == [0, 0]


def test_where_some_seeds_fail_the_summary_says_which_and_why(tmp_path: Path) -> None:
    with StubServer() as site:
        site.page("/")
        seeds = (site.url, f"{site.url}/gone", "http://127.0.0.1:9/")
        ended = spawn(tmp_path, "crawl", *seeds, "--allow-private", "--delay", "0", "--out", "out")
    assert ended.code == 0, ended
    lines = ended.stdout.splitlines()
    assert "  errors     404 1, connect 1" in lines
    assert f"  seed       {site.url}/gone: answers 404 (Not Found); check the" in lines
    assert any(line.startswith("  seed       http://127.0.0.1:9/: connect: connection refused;") for line in lines)
    assert max(map(len, lines)) < 80


def test_a_terminal_gets_one_line_that_fits(server: DemoServer, tmp_path: Path) -> None:
    server.hits.pop("/busy.html", None)  # it asks to wait a second: time for some lines
    columns = 44
    screen, stdout = on_a_terminal(
        tmp_path, columns, ["crawl", f"{server.url}busy.html", "--scope", "page", "--allow-private", "--out", "out"]
    )
    assert ESCAPE not in stdout
    first, *lines = screen.replace("\r\n", "\n").split("\r\x1b[K")
    assert first == f"crawling {server.url}busy.html\n"
    assert lines[-1] == "", "it cleans up behind itself"
    assert len(lines) >= 2
    assert all(0 < len(line) < columns for line in lines[:-1])
    assert all(re.match(r"\d+\.\d s  \d+ pages  |waiting: ", line) for line in lines[:-1])
    assert any(re.fullmatch(r"waiting: .*….* left", line) for line in lines), "why nothing moves, and how long"


def test_on_a_terminal_log_lines_and_progress_stay_whole(server: DemoServer, tmp_path: Path) -> None:
    server.hits.pop("/busy.html", None)
    url = f"{server.url}busy.html"
    shown, _ = on_a_terminal(tmp_path, 80, ["crawl", url, "--scope", "page", "--allow-private", "--out", "out", "-vv"])
    *rows, last = on_screen(shown)
    assert last == "", "it cleans up behind itself"
    assert f"crawling {url}" in rows
    log_line = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO) [\w.]+: .+")
    assert [row for row in rows if not log_line.fullmatch(row)] == [f"crawling {url}"]
    assert any("is left alone for 1 s: it answered 503" in row for row in rows)
    # The progress line stood there, and log lines came above it.
    assert re.search(r"\r\x1b\[K\d+\.\d s  \d+ pages", shown)


def on_a_terminal(home: Path, columns: int, args: list[str]) -> tuple[str, str]:
    """What a command shows on stderr, a terminal so wide, and what it writes to stdout, a file."""
    main, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    out = home / "stdout"
    with out.open("wb") as stdout:
        process = subprocess.Popen(
            [*COMMAND, *args],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=terminal,
            cwd=home,
            env={name: value for name, value in environment(home).items() if name != "COLUMNS"},
        )
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:
        pass  # EIO: the other end is closed, which is how a terminal ends
    finally:
        os.close(main)
        assert process.wait(TIMEOUT_S) == 0, shown
    return shown.decode(), out.read_text()
