"""What the log says of requests, retries, waits and robots.txt: enough to see what a crawl is doing, and no more."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from storage.stores import CRAWL

from dhtcrawl.crawl.fetcher import Fetcher
from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.fetch.robots import Robots

from .fetch_world import SEED, Answer, SmallWeb

HTML = {"content-type": "text/html"}
ROBOTS = "http://a.example/robots.txt"
TEXT = {"content-type": "text/plain"}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, "dhtcrawl"):
        yield caplog


def told(log: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname.lower()}: {record.getMessage()}" for record in log.records]


async def page(answer: Answer, times: int = 1, rules: bytes = b"") -> None:
    """The seed is asked for, whose robots.txt is known."""
    world = SmallWeb({SEED: answer})
    world.parts.robots.put("http://a.example", Robots.parse(rules))
    fetcher = Fetcher(world.services, world.spec, world.parts, world.assignment)
    world.add(SEED)
    for _ in range(times):
        await fetcher.run(await world.next())


async def robots(answer: Answer, times: int = 1, **settings: float) -> None:
    """The robots.txt of the seed is asked for."""
    world = SmallWeb({ROBOTS: answer}, **settings)
    fetcher = Fetcher(world.services, world.spec, world.parts, world.assignment)
    world.add(SEED)
    for _ in range(times):
        await fetcher.run(await world.next())


async def test_an_answer_is_told_with_status_bytes_seconds_and_attempt(log: pytest.LogCaptureFixture) -> None:
    await page((200, HTML, b"<p>page</p>"))
    assert told(log) == [f"debug: {SEED} answered 200 with 11 bytes after 0.100 s, attempt 1"]
    (record,) = log.records
    fields = vars(record)
    assert {name: fields[name] for name in ("url", "status", "bytes", "attempt")} == {
        "url": SEED,
        "status": 200,
        "bytes": 11,
        "attempt": 1,
    }
    assert fields["seconds"] == pytest.approx(0.1)
    assert fields["crawl"] == CRAWL.hex()
    assert record.name == "dhtcrawl.crawl.fetcher"


async def test_a_busy_host_is_told_with_its_wait_and_why_and_so_is_the_retry(log: pytest.LogCaptureFixture) -> None:
    await page((503, {"retry-after": "7"}, b""), times=2)
    assert told(log) == [
        f"debug: {SEED} answered 503 with 0 bytes after 0.100 s, attempt 1",
        "debug: a.example is left alone for 7 s: it answered 503",
        f"debug: {SEED} is to be tried again after 7 s",
        f"debug: {SEED} answered 503 with 0 bytes after 0.100 s, attempt 2",
        "debug: a.example is left alone for 7 s: it answered 503",
    ]


async def test_a_long_wait_is_told_to_those_who_ask_for_little(log: pytest.LogCaptureFixture) -> None:
    await page((429, {"retry-after": "600"}, b""))
    assert "info: a.example is left alone for 600 s: it answered 429" in told(log)


async def test_a_failure_is_told_with_its_kind_and_what_follows(log: pytest.LogCaptureFixture) -> None:
    await page(FetchFailureKind.TIMEOUT, times=2)
    assert told(log) == [
        f"debug: {SEED} gave no answer after 0.100 s, attempt 1, timeout: as the test says",
        f"debug: {SEED} is to be tried again after 1 s",
        f"debug: {SEED} gave no answer after 0.100 s, attempt 2, timeout: as the test says",
        f"debug: {SEED} will not be fetched (failed): timeout: as the test says",
    ]


async def test_a_host_without_a_connection_is_told_with_its_wait_and_once_when_it_is_given_up(
    log: pytest.LogCaptureFixture,
) -> None:
    await page(FetchFailureKind.CONNECT, times=4)
    said = told(log)
    assert "debug: a.example is left alone for 1 s: failure 1 in a row, connect: as the test says" in said
    gone = [line for line in said if line.startswith("info")]
    assert gone == ["info: http://a.example gets no more requests from this crawl: connect: as the test says"]


async def test_what_robots_txt_forbids_is_told(log: pytest.LogCaptureFixture) -> None:
    await page((200, HTML, b""), rules=b"User-agent: *\nDisallow: /")
    assert told(log) == [f"debug: {SEED} will not be fetched (robots): robots.txt disallows it"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, TEXT, b"User-agent: *\nDisallow: /x"), "debug: robots.txt of http://a.example allows the home page"),
        (
            (200, TEXT, b"User-agent: *\nDisallow: /"),
            "info: robots.txt of http://a.example does not allow the home page",
        ),
        (
            (200, TEXT, b"User-agent: *\nCrawl-delay: 30"),
            "info: robots.txt of http://a.example allows the home page, and asks for 30 s between two requests",
        ),
        ((404, TEXT, b""), "debug: robots.txt of http://a.example allows everything, for there is none"),
    ],
)
async def test_the_verdict_of_a_robots_txt_is_told_louder_where_it_keeps_the_crawl_back(
    answer: Answer, says: str, log: pytest.LogCaptureFixture
) -> None:
    await robots(answer)
    first, *_, last = told(log)
    assert first.startswith(f"debug: {ROBOTS} answered {answer[0]} with ")
    assert last == says


async def test_a_robots_txt_that_cannot_be_had_is_told_with_its_waits_and_its_verdict(
    log: pytest.LogCaptureFixture,
) -> None:
    await robots((500, TEXT, b""), times=2)
    said = told(log)
    assert "debug: a.example is left alone for 1 s: 500 for robots.txt" in said
    assert said[-1] == "info: robots.txt of http://a.example allows nothing, for it answers with errors"


async def test_nothing_is_told_unless_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    await page((200, HTML, b"<p>page</p>"))
    await robots((404, TEXT, b""))
    assert caplog.records == []
