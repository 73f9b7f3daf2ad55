"""The admin HTTP over a real socket, with a node that is none behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
import msgpack
import pytest
from yarl import URL

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.url_story import url_story
from dhtcrawl.errors import ConfigError, StorageError, StorageFull, UsageError
from dhtcrawl.searches import SearchEngine, Searches, Wanted
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.web import admin, bodies
from dhtcrawl.web.admin import Access, serve
from dhtcrawl.web.api import ApiError, NodeApi

from .fake import BODY, CRAWL, NODE, OTHER, TWIN, FakeNode

pytestmark = pytest.mark.loops("asyncio")

LOCAL = "127.0.0.1"
ID = CRAWL.hex()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"].startswith("application/json"), self
        return json.loads(self.body)

    @property
    def error(self) -> str:
        message = self.json["error"]
        assert "\n" not in message
        return str(message)


class Browser:
    """Asks the server, with any headers."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.port = port

    async def __call__(
        self, method: str, path: str, headers: dict[str, str] | None = None, data: bytes | None = None
    ) -> Answer:
        url = f"http://{LOCAL}:{self.port}{path}"
        async with self.session.request(method, url, headers=headers, data=data) as response:
            return Answer(response.status, response.headers, await response.read())


@asynccontextmanager
async def browsing(node: NodeApi, host: str = LOCAL, token: str = "") -> AsyncIterator[Browser]:
    """Serve `node`; yields what asks it."""
    async with (
        asyncio.timeout(30),
        serve(node, host, 0, access=Access(token)) as (_, port),
        aiohttp.ClientSession() as session,
    ):
        yield Browser(session, port)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


async def ask(node: FakeNode, method: str, path: str, data: object = None, **headers: str) -> Answer:
    """One request and its answer."""
    body = None if data is None else data if isinstance(data, bytes) else json.dumps(data).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with browsing(node) as browser:
        return await browser(method, path, named, body)


# -- questions --


@pytest.mark.parametrize("what", ["status", "peers", "crawls"])
async def test_what_the_node_says_is_passed_on(what: str, node: FakeNode) -> None:
    answer = await ask(node, "GET", f"/api/v1/{what}")
    assert answer.status == 200
    assert answer.json == await getattr(node, what)()


async def test_healthz_is_ok_while_the_node_answers(node: FakeNode) -> None:
    assert (await ask(node, "GET", "/healthz")).body == b"ok\n"
    node.error = StorageError("the disk is gone")
    assert (await ask(node, "GET", "/healthz")).status == 500


async def test_a_node_that_reads_its_store_is_asked_nothing_and_shows_its_page(node: FakeNode) -> None:
    opened = asyncio.Event()

    async with serve(node, LOCAL, 0, is_open=opened.is_set) as (_, port), aiohttp.ClientSession() as session:
        browser = Browser(session, port)
        for method, path in (("GET", "/api/v1/status"), ("GET", "/healthz"), ("POST", "/api/v1/leave")):
            answer = await browser(method, path)
            assert (answer.status, "ask again in a moment" in answer.error) == (503, True)
        assert (await browser("GET", "/")).status == 200
        assert node.asked == []
        opened.set()
        assert (await browser("GET", "/healthz")).status == 200


@pytest.mark.parametrize("prefix", [ID, ID[:4], ID[:9].upper(), ID[:31]])
async def test_a_crawl_is_named_by_the_start_of_its_id(prefix: str, node: FakeNode) -> None:
    assert (await ask(node, "GET", f"/api/v1/crawls/{prefix}")).json == node.known[CRAWL]
    assert node.asked[-1] == ("crawl", CRAWL)


@pytest.mark.parametrize(
    ("prefix", "status", "says"),
    [
        ("ab1", 400, "4 hex digits of its id, or more"),
        ("wxyz", 400, "'wxyz' is no crawl"),
        ("ab12" * 9, 400, "is no crawl"),
        ("%2e%2e%2fab", 400, "is no crawl"),
        ("ffff", 404, "no crawl ffff here"),
        ("ff" * 16, 404, "no crawl ffffffffffff here"),
        ("ab12", 409, "ab12 could be any of 2 crawls"),
    ],
)
async def test_a_crawl_that_is_not_named_well_is_told_so(prefix: str, status: int, says: str, node: FakeNode) -> None:
    node.known[TWIN] = node.one(TWIN)
    answer = await ask(node, "GET", f"/api/v1/crawls/{prefix}")
    assert (answer.status, says in answer.error) == (status, True), answer.error


async def test_a_crawl_is_resumed_with_other_limits(node: FakeNode) -> None:
    body = json.dumps({"settings": {"max_pages": "20", "delay_s": "2s"}}).encode()
    assert (await ask(node, "POST", f"/api/v1/crawls/{ID[:6]}/resume", body)).status == 200
    assert node.asked[-1] == ("control", CRAWL, "resume", {"max_pages": 20, "delay_s": 2.0})


@pytest.mark.parametrize(
    ("action", "body", "says"),
    [
        ("resume", b"no JSON", "is no JSON"),
        ("resume", b"[]", "is no JSON object"),
        ("resume", b'{"settings": 7}', "is no JSON object"),
        ("resume", b'{"settings": {"copies": 3}}', "copies cannot change in a crawl that has begun"),
        ("resume", b'{"settings": {"max_pages": -1}}', "use 0 or more"),
        ("resume", b'{"settings": {}, "max_pages": 9}', "'max_pages' is no field of this; there are settings"),
        ("pause", b'{"settings": {}}', "pause takes no body"),
    ],
)
async def test_what_cannot_change_is_refused(action: str, body: bytes, says: str, node: FakeNode) -> None:
    answer = await ask(node, "POST", f"/api/v1/crawls/{ID[:6]}/{action}", body)
    assert (answer.status, says in answer.json["error"]) == (400, True), answer.json
    assert not [call for call in node.asked if call[0] == "control"]


@pytest.mark.parametrize("action", ["pause", "resume", "stop"])
async def test_a_crawl_is_paused_resumed_and_stopped(action: str, node: FakeNode) -> None:
    assert (await ask(node, "POST", f"/api/v1/crawls/{ID[:6]}/{action}")).status == 200
    assert node.asked[-1] == ("control", CRAWL, action)


async def test_nothing_else_can_be_done_to_a_crawl_and_nothing_by_looking(node: FakeNode) -> None:
    assert (await ask(node, "POST", f"/api/v1/crawls/{ID}/explode")).status == 404
    for path in (f"crawls/{ID}/stop", "leave", "drain", "shutdown"):
        assert (await ask(node, "GET", f"/api/v1/{path}")).status in (404, 405)
    assert [call for call in node.asked if call[0] in ("control", "leave", "drain", "shutdown")] == []


async def test_what_was_given_up_is_listed_and_decided_about(node: FakeNode) -> None:
    path = f"/api/v1/crawls/{ID[:6]}/given-up"
    assert (await ask(node, "GET", path)).json == node.manual
    assert (await ask(node, "POST", path, data=b'{"decision": "drop", "urls": ["EXAMPLE.org/a"]}')).json["count"] == 1
    assert (await ask(node, "POST", path, data=b'{"decision": "release", "urls": null}')).json["count"] == 2
    decided = [call[1:] for call in node.asked if call[0] == "decide"]
    assert decided == [(CRAWL, "drop", ["http://example.org/a"]), (CRAWL, "release", None)]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"decision": "burn"}',
        b'{"decision": "drop", "urls": []}',
        b'{"decision": "drop", "urls": ["ftp:"]}',
        b'{"decision": "drop", "url": ["http://a/"]}',
    ],
)
async def test_what_is_no_decision_is_refused(body: bytes, node: FakeNode) -> None:
    answer = await ask(node, "POST", f"/api/v1/crawls/{ID}/given-up", data=body)
    assert answer.status == 400
    assert answer.error
    assert not [call for call in node.asked if call[0] == "decide"]


@pytest.mark.parametrize("what", ["leave", "drain", "shutdown"])
async def test_a_node_can_be_told_to_go(what: str, node: FakeNode) -> None:
    assert (await ask(node, "POST", f"/api/v1/{what}")).status == 200
    assert node.asked == [(what,)]


@pytest.mark.parametrize("what", ["locate", "why"])
async def test_a_url_is_asked_for_in_its_canonical_form(what: str, node: FakeNode) -> None:
    assert (await ask(node, "GET", f"/api/v1/{what}?url=EXAMPLE.org/a%23b")).status == 200
    assert node.asked[0] == (what, "http://example.org/a", None)
    assert (await ask(node, "GET", f"/api/v1/{what}?url=example.org&crawl={ID[:5]}")).status == 200
    assert (what, "http://example.org/", CRAWL) in node.asked
    for query in ("", "?url=", "?url=mailto:x", "?url=example.org&crawl=zz"):
        assert (await ask(node, "GET", f"/api/v1/{what}{query}")).status == 400


async def test_why_comes_with_the_story_that_the_command_prints(node: FakeNode) -> None:
    (answer,) = (await ask(node, "GET", "/api/v1/why?url=example.org")).json
    assert answer["story"] == url_story(answer)
    assert answer["story"][0] == "is queued, and will be fetched when its host's turn comes"


async def test_the_hosts_of_a_crawl_are_asked_for(node: FakeNode) -> None:
    answer = await ask(node, "GET", f"/api/v1/crawls/{ID[:6]}/hosts")
    assert (answer.status, answer.json["hosts"]) == (200, node.hosts_told)
    assert node.asked[-1] == ("hosts", CRAWL)
    assert (await ask(node, "POST", f"/api/v1/crawls/{ID}/hosts")).status == 404


async def test_a_host_is_asked_for_with_its_port(node: FakeNode) -> None:
    assert (await ask(node, "GET", "/api/v1/hosts/Example.org:8080")).json["robots"]["crawl_delay_s"] == 2.5
    assert node.asked == [("explain_host", "example.org:8080")]


@pytest.mark.parametrize(
    ("named", "host"),
    [
        ("m%C3%BCnchen.de", "xn--mnchen-3ya.de"), ("xn--mnchen-3ya.de:80", "xn--mnchen-3ya.de"),
        ("[::0:1]:8080", "[::1]:8080"), ("0x7f.1", "127.0.0.1"),
    ],
)  # fmt: skip
async def test_a_host_is_asked_for_as_urls_have_it(named: str, host: str, node: FakeNode) -> None:
    assert (await ask(node, "GET", f"/api/v1/hosts/{named}")).status == 200
    assert node.asked == [("explain_host", host)]


@pytest.mark.parametrize(
    "bad",
    ["a%20b", "a%2Fb", "a@b", "x" * 400, "%00", "exa%00mple", "%ED%A0%80", "a:99999", "[::1", "..", "%2E%2E", "."],
)
async def test_what_is_no_host_is_refused(bad: str, node: FakeNode) -> None:
    async with browsing(node) as browser:
        # As it is: a URL would be put right first, and lead elsewhere.
        url = URL(f"http://{LOCAL}:{browser.port}/api/v1/hosts/{bad}", encoded=True)
        async with browser.session.get(url) as response:
            assert response.status == 400
            assert (await response.json())["error"].startswith("that is no host")
    assert node.asked == []


@pytest.mark.parametrize("read", ["submission", "changes_in", "decision_in"])
async def test_what_a_body_says_is_read_while_the_loop_runs_on(
    read: str, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers, where = {"submission": "", "changes_in": f"/{ID}/resume", "decision_in": f"/{ID}/given-up"}, list[str]()
    real = getattr(admin, read)

    def noted(body: object) -> Any:
        where.append(threading.current_thread().name)
        return real(body)

    monkeypatch.setattr(admin, read, noted)
    body = {
        "submission": {"seeds": ["https://a.example/"]},
        "changes_in": {"settings": {"max_pages": 20}},
        "decision_in": {"decision": "drop", "urls": ["https://a.example/"]},
    }[read]
    assert (await ask(node, "POST", f"/api/v1/crawls{readers[read]}", body)).status < 300
    assert len(where) == 1
    assert where != [threading.main_thread().name]


# -- submitting --


async def test_a_submission_arrives_with_canonical_seeds_and_every_setting(node: FakeNode) -> None:
    body = {"seeds": ["EXAMPLE.org", "example.org/"], "settings": {"depth": 3, "delay_s": 1e-05, "exclude": ["x$"]}}
    answer = await ask(node, "POST", "/api/v1/crawls", body)
    assert (answer.status, answer.json) == (201, {"crawl": ID})
    expected = CrawlSettings(depth=3, delay_s=1e-05, exclude=("x$",))
    assert node.asked == [("submit", CrawlSpec(("http://example.org/",), expected))]


async def test_what_a_client_sends_is_what_arrives(node: FakeNode) -> None:
    settings = CrawlSettings(max_pages=9, size_limit_bytes=1 << 40, include=("a", "b"), allow_private=True)
    engine = SearchEngine("engine", "http://a.example/?{query}", type="meta", delay_s=0.5)
    searches = Searches((engine,), (("b.example",),), (Wanted("milk", ("milk",), 0, (0,)),))
    spec = CrawlSpec(("http://a.example/",), settings, searches=searches)
    body = {"seeds": list(spec.seeds), "settings": asdict(settings), "searches": searches.plain()}
    assert (await ask(node, "POST", "/api/v1/crawls", body)).status == 201
    assert node.asked == [("submit", spec)]


@pytest.mark.parametrize("searches", [[], {"version": 1, "engines": [], "sites": [], "tasks": []}])
async def test_searches_that_are_none_are_refused(node: FakeNode, searches: object) -> None:
    answer = await ask(node, "POST", "/api/v1/crawls", {"seeds": ["http://a.example/"], "searches": searches})
    assert answer.status == 400
    assert "searches" in answer.json["error"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body is no JSON"),
        (b"{", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b"\xff\xfe", "the body is no JSON"),
        ([], "no JSON object"),
        ({}, "seeds is no list"),
        ({"seeds": "http://a/"}, "seeds is no list"),
        ({"seeds": [1]}, "seeds is no list"),
        ({"seeds": []}, "no seed given"),
        ({"seeds": ["mailto:x"]}, "is no web address"),
        ({"seeds": ["http://me:pw@a/"]}, "password"),
        ({"seeds": ["http://a/"], "settings": []}, "settings is no JSON object"),
        ({"seeds": ["http://a/"], "max_pages": 5}, "'max_pages' is no field of this; there are seeds, settings, "),
        ({"seeds": ["http://a/"], "settings": {"dpeth": 1}}, "dpeth is no setting of a crawl"),
        ({"seeds": ["http://a/"], "settings": {"depth": "deep"}}, "use a whole number"),
        ({"seeds": ["http://a/"], "settings": {"depth": None}}, "use a whole number"),
        ({"seeds": ["http://a/"], "settings": {"delay_s": float("nan")}}, "use a duration"),
        ({"seeds": ["http://a/"], "settings": {"delay_s": -1}}, "use a duration"),
        ({"seeds": ["http://a/"], "settings": {"include": ["("]}}, "no regular expression"),
        ({"seeds": ["http://a/"], "settings": {"exclude": [r"(a)\1"]}}, r"has a backreference \1"),
        ({"seeds": ["http://a/"], "settings": {"include": [1]}}, "list of strings"),
    ],
)
async def test_a_submission_that_is_none_is_refused_before_the_node_sees_it(
    body: object, says: str, node: FakeNode
) -> None:
    answer = await ask(node, "POST", "/api/v1/crawls", body)
    assert (answer.status, says in answer.error) == (400, True), answer.error
    assert node.asked == []


async def test_a_policy_that_this_node_cannot_run_is_refused_as_such(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    body = {"seeds": ["http://a/"], "settings": {"policy": "gnp"}}
    answer = await ask(node, "POST", "/api/v1/crawls", body)
    assert (answer.status, "gnp needs numpy, not installed here" in answer.error) == (422, True), answer.error
    assert node.asked == []


async def test_too_many_seeds_at_once_are_refused(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 1 << 20)
    ok = {"seeds": ["http://a.example/"] * 40_000}
    assert (await ask(node, "POST", "/api/v1/crawls", ok)).status == 201
    answer = await ask(node, "POST", "/api/v1/crawls", b" " * ((1 << 20) + 1))
    assert (answer.status, "submit them in parts" in answer.error) == (413, True)


@pytest.mark.parametrize("sent", ["", f"GET /healthz HTTP/1.1\r\nHost: {LOCAL}\r\nA: "])
@pytest.mark.parametrize("before", ["", f"GET / HTTP/1.1\r\nHost: {LOCAL}\r\n\r\n"])
async def test_a_client_whose_head_does_not_come_is_closed(
    before: str, sent: str, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "HEAD_S", 0.05)
    async with browsing(node) as browser:
        reader, writer = await asyncio.open_connection(LOCAL, browser.port)
        try:
            writer.write((before + sent).encode())
            with suppress(ConnectionResetError):  # where this test came late itself
                await reader.read()  # until the node closes
        finally:
            writer.close()


async def test_posts_that_send_nothing_keep_no_other_out(node: FakeNode) -> None:
    # Each announces 60 MB, as one that will fill a place would; before, two of them held both places for two minutes.
    head = f"POST /api/v1/crawls HTTP/1.1\r\nHost: {LOCAL}\r\nContent-Length: 60000000\r\n\r\n"
    async with browsing(node) as browser:
        silent = [await asyncio.open_connection(LOCAL, browser.port) for _ in range(5)]
        try:
            for _, writer in silent:
                writer.write(head.encode() + b'{"seeds":')
                await writer.drain()
            for seeds in (1, 40_000):  # a body that needs no place, and one that does
                body = json.dumps({"seeds": ["http://a.example/"] * seeds}).encode()
                assert (await browser("POST", "/api/v1/crawls", data=body)).status == 201
        finally:
            for _, writer in silent:
                writer.close()


# -- exports --


async def test_rows_travel_as_msgpack_with_a_cursor(node: FakeNode) -> None:
    path = f"/api/v1/crawls/{ID}/export/rows?node={NODE.hex()}&kind=t&cursor="
    first = await ask(node, "GET", path)
    assert msgpack.unpackb(first.body) == [[[b"\x00key", b"\xffvalue"]], b"\x01"]
    assert node.asked == [("export_rows", CRAWL, NODE, b"t", b"")]
    assert msgpack.unpackb((await ask(node, "GET", f"{path}01")).body) == [[], None]


async def test_a_crawls_record_travels_as_bytes_and_its_nodes_as_json(node: FakeNode) -> None:
    answer = await ask(node, "GET", f"/api/v1/crawls/{ID}/export/record")
    assert (answer.headers["Content-Type"], answer.body) == ("application/octet-stream", b"\x00record")
    nodes = (await ask(node, "GET", f"/api/v1/crawls/{ID}/export/nodes")).json
    assert [facts["node"] for facts in nodes] == [NODE.hex(), OTHER.hex()]


async def test_files_travel_in_chunks(node: FakeNode) -> None:
    path = f"/api/v1/crawls/{ID}/export/files?node={OTHER.hex()}"
    ((name, length),) = (await ask(node, "GET", path)).json
    assert length == len(BODY)
    query = f"node={OTHER.hex()}&name={name.replace(' ', '%20').replace('&', '%26')}&offset=3&limit=5"
    answer = await ask(node, "GET", f"/api/v1/crawls/{ID}/export/chunk?{query}")
    assert (answer.headers["Content-Type"], answer.body) == ("application/octet-stream", BODY[3:8])
    assert node.asked[-1] == ("export_chunk", CRAWL, OTHER, name, 3, 5)


@pytest.mark.parametrize(
    "query",
    [
        "rows?node=00&kind=t",
        "rows?kind=t",
        f"rows?node={NODE.hex()}&kind=zz",
        f"rows?node={NODE.hex()}",
        f"rows?node={NODE.hex()}&kind=t&cursor=x",
        "files?node=xyz",
        f"chunk?node={NODE.hex()}&name=..&offset=0&limit=1",
        f"chunk?node={NODE.hex()}&name=a%2Fb&offset=0&limit=1",
        f"chunk?node={NODE.hex()}&name=a%00&offset=0&limit=1",
        f"chunk?node={NODE.hex()}&name={'a' * 300}&offset=0&limit=1",
        f"chunk?node={NODE.hex()}&name=a&offset=-1&limit=1",
        f"chunk?node={NODE.hex()}&name=a&offset=0&limit=99999999",
        f"chunk?node={NODE.hex()}&name=a&offset=%D9%A3&limit=1",
        f"chunk?node={NODE.hex()}&name=a&offset=0",
    ],
)
async def test_an_export_with_a_bad_argument_is_refused(query: str, node: FakeNode) -> None:
    answer = await ask(node, "GET", f"/api/v1/crawls/{ID}/export/{query}")
    assert (answer.status, answer.error.startswith("the argument ")) == (400, True)
    assert node.asked == []


# -- errors --


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (ApiError(409, "it has\nended"), 409, "it has ended"),
        (UsageError("no such thing"), 400, "no such thing"),
        (ConfigError("no such setting"), 400, "no such setting"),
        (StorageFull("the disk is full"), 507, "the disk is full"),
        (StorageError("the disk failed"), 500, "the disk failed"),
        (RuntimeError("secret of the house"), 500, "unexpected RuntimeError"),
    ],
)
async def test_an_error_is_one_line_of_json(
    error: Exception, status: int, says: str, node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.error = error
    with caplog.at_level(logging.ERROR, "dhtcrawl"):
        answer = await ask(node, "GET", "/api/v1/status")
    assert (answer.status, says in answer.error) == (status, True)
    assert "secret" not in answer.error
    assert bool(caplog.records) is (status >= 500)


async def test_a_path_that_leads_nowhere_is_told_so(node: FakeNode) -> None:
    assert "GET /api/v2/status" in (await ask(node, "GET", "/api/v2/status")).error
    wrong = await ask(node, "PUT", "/api/v1/crawls")
    assert (wrong.status, sorted(wrong.headers["Allow"].split(","))) == (
        405,
        ["GET", "HEAD", "POST"],
    )  # RFC 9110, 15.5.6


async def test_on_every_address_it_is_asked_over_both_families(node: FakeNode) -> None:
    async with serve(node, "::", 0, access=Access("t" * 20)) as (host, port), aiohttp.ClientSession() as session:
        assert host == "::"
        for name in (LOCAL, "[::1]"):
            async with session.get(f"http://{name}:{port}/healthz") as response:
                assert response.status == 200, name
        with pytest.raises(UsageError, match=rf"--admin \[::\]:{port}: address already in use"):
            await _enter(node, "::", port)


async def test_a_port_that_is_taken_is_told_with_the_remedy(node: FakeNode) -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            await _enter(node, LOCAL, port)
    assert str(caught.value) == f"--admin 127.0.0.1:{port}: address already in use; name another with --admin"
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(UsageError, match=rf"--admin {host}:0: .*; name another"):
            await _enter(node, host, 0)


async def _enter(node: NodeApi, host: str, port: int) -> None:
    async with serve(node, host, port):
        pass


async def test_an_answer_under_way_arrives_though_the_server_closes(node: FakeNode) -> None:
    leaving, go = asyncio.Event(), asyncio.Event()

    async def leave() -> dict[str, Any]:
        leaving.set()
        await go.wait()
        return {"handed_over": 1, "left": 0}

    node.leave = leave  # type: ignore[method-assign]
    async with asyncio.timeout(30), aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        async with serve(node, LOCAL, 0) as (_, port):
            asked = group.create_task(Browser(session, port)("POST", "/api/v1/leave"))
            await leaving.wait()
            go.set()
        assert (await asked).json == {"handed_over": 1, "left": 0}
