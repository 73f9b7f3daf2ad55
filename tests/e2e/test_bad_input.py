"""What cannot work says so in one line that names the thing and the remedy."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import plyvel
import pytest
from loopback import free_port

from .crawler import Crawler, Outcome
from .deadline import until
from .outputs import Outputs
from .stub import StubServer

# A host that fails is tried again after a while: a short one here.
HASTY = ["--set", "politeness.backoff_first_s=10ms"]

# Root without the right to override file modes is an ordinary user who
# can still read this checkout wherever it lies.
POWERLESS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]


def test_an_unknown_option_is_a_usage_error(crawler: Crawler) -> None:
    ended = crawler.run("crawl", "http://example.com/", "--no-such-option").ended_with(2)
    assert "--no-such-option" in ended.stderr


def test_an_unknown_key_on_the_command_line_is_named_with_the_nearest(crawler: Crawler, outputs: Outputs) -> None:
    message = refused(crawler, outputs, 4, "http://example.com/", "--set", "fetch.concurency=4")
    assert "fetch.concurency" in message
    assert "fetch.concurrency" in message


def test_an_unknown_key_in_a_file_is_named_with_the_file(crawler: Crawler, outputs: Outputs, tmp_path: Path) -> None:
    file = tmp_path / "crawl.toml"
    file.write_text("[fetch]\nconcurency = 4\n")
    message = refused(crawler, outputs, 4, "http://example.com/", "--config", str(file))
    assert str(file) in message
    assert "fetch.concurency" in message


def test_an_unknown_key_in_the_environment_is_named(crawler: Crawler) -> None:
    ended = crawler.run("crawl", "http://example.com/", env={"DHTCRAWL_FETCH_CONCURENCY": "4"}).ended_with(4)
    assert "DHTCRAWL_FETCH_CONCURENCY" in ended.one_line()


def test_a_value_out_of_range_says_what_would_be_right(crawler: Crawler, outputs: Outputs) -> None:
    message = refused(crawler, outputs, 4, "http://example.com/", "--set", "fetch.concurrency=0")
    assert "fetch.concurrency" in message
    assert "1 or more" in message


@pytest.mark.parametrize(
    "seed", ["ftp://example.com/", "http://", "http://exa mple/", "http://[::1", "javascript:void(0)"]
)
def test_a_seed_that_is_no_web_address_is_a_usage_error(seed: str, crawler: Crawler, outputs: Outputs) -> None:
    message = refused(crawler, outputs, 2, seed)
    assert seed in message
    assert "https://" in message, "the message shows what would be right"


def test_a_file_in_the_place_of_the_directory_is_named(crawler: Crawler, outputs: Outputs) -> None:
    outputs.out.write_text("not a directory")
    message = refused(crawler, outputs, 1, "http://example.com/")
    assert str(outputs.out) in message
    assert "Errno" not in message, "the message is for people"
    assert "--out" in message or "--data-dir" in message, "the message names the remedy"


@pytest.mark.needs_root
def test_a_directory_that_may_not_be_read_is_named(crawler: Crawler, outputs: Outputs, root: None) -> None:
    outputs.out.mkdir(mode=0o700)
    os.chown(outputs.out, 65534, 65534)
    ended = crawler.run("crawl", "http://example.com/", "--out", outputs.out, wrapper=POWERLESS).ended_with(1)
    assert str(outputs.out) in ended.one_line()
    assert "permission denied" in ended.one_line().lower()


@pytest.mark.needs_root
def test_what_another_user_keeps_private_is_no_bug_and_in_nobodys_way(
    stub: StubServer, crawler: Crawler, tmp_path: Path, root: None
) -> None:
    """Outputs that were handed on are exported without what lies beside them; in their directory others crawl, too."""
    stub.page("/")
    command = ["crawl", f"{stub.url}/", "--allow-private", "--delay", "0"]
    crawler.run(*command, "--out", tmp_path / "home/handed").ended_with(0)
    private = tmp_path / "home/handed.node"
    private.chmod(0o700)
    os.chown(private, 65534, 65534)
    assert "bug" not in crawler.run("fsck", "--out", "handed", wrapper=POWERLESS).ended_with(1).one_line()
    crawler.run("export", "handed", "--format", "csv", wrapper=POWERLESS).ended_with(0)
    crawler.run(*command, wrapper=POWERLESS).ended_with(0)


@pytest.mark.parametrize("name", ["n" * 300, "loop"])
def test_a_name_that_cannot_be_a_file_is_told_as_that(name: str, crawler: Crawler, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/loop").symlink_to("loop")
    for command in (["crawl", "http://example.com/", "--out", name], ["verify", name], ["fsck", "--out", name]):
        message = crawler.run(*command).one_line()
        assert name in message, message
        assert "bug" not in message, message


@pytest.mark.parametrize("charset", ["utf-8", "iso8859-1"])
def test_a_name_that_is_no_utf_8_is_a_name(charset: str, stub: StubServer, crawler: Crawler, tmp_path: Path) -> None:
    stub.page("/")
    env = {"PYTHONIOENCODING": f"{charset}:strict"}
    name = os.fsdecode(b"caf\xe9")
    crawler.run("crawl", f"{stub.url}/", "--allow-private", "--out", name, env=env).ended_with(0)
    told = crawler.run("export", name, "--format", "csv", env=env).ended_with(0).stdout
    assert told == "wrote caf\\udce9.csv: 1 pages\n"
    assert crawler.run("fsck", "--out", name, env=env).ended_with(0).stdout.endswith(": sound\n")


def test_a_store_of_a_later_version_is_refused_untouched(stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    stub.page("/", *(f"/{number}" for number in range(50)))
    command = ["crawl", f"{stub.url}/", "--allow-private", "--delay", "50ms", "--out", str(outputs.out)]
    with crawler.start(*command) as running:
        until(lambda: len(stub.paths()) >= 3 or running.ended, "some requests")
        running.send(signal.SIGINT)
        running.wait().ended_with(11)
    key, path = b"\x00format", str(outputs.node / "store")
    with plyvel.DB(path) as store:
        later = b"%d" % (int(store.get(key)) + 1)
        store.put(key, later)
    message = crawler.run(*command).ended_with(4).one_line()
    assert later.decode() in message
    assert "upgrade" in message
    with plyvel.DB(path) as store:
        assert store.get(key) == later


def test_a_private_seed_is_refused_unless_allowed(stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    stub.page("/")
    message = refused(crawler, outputs, 9, f"{stub.url}/")
    assert "--allow-private" in message
    assert stub.asked == []


def test_only_the_hosts_that_seeds_name_are_allowed(stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    with StubServer() as inner:
        inner.page("/secret")
        stub.page("/", f"{inner.url}/secret")
        crawl = ["crawl", f"{stub.url}/", "--allow-private", "--scope", "any", "--delay", "0"]
        crawler.run(*crawl, "--out", outputs.out, *HASTY).ended_with(0)
        assert inner.asked == []
    assert {(row["url"], row["reason"]) for row in outputs.skipped()} == {(f"{inner.url}/secret", "private-address")}


def test_a_name_that_does_not_resolve_ends_the_crawl_with_nothing_fetched(crawler: Crawler, outputs: Outputs) -> None:
    message = refused(crawler, outputs, 9, "http://no-such-host.invalid/", *HASTY)
    assert "no-such-host.invalid" in message


def test_a_site_that_is_down_ends_the_crawl_with_nothing_fetched(crawler: Crawler, outputs: Outputs) -> None:
    down = f"127.0.0.1:{free_port()}"
    message = refused(crawler, outputs, 9, f"http://{down}/", "--allow-private", *HASTY)
    assert down in message


def refused(crawler: Crawler, outputs: Outputs, code: int, *argv: str) -> str:
    """The one line with which `crawl` ended."""
    ended: Outcome = crawler.run("crawl", *argv, "--out", outputs.out)
    return ended.ended_with(code).one_line()
