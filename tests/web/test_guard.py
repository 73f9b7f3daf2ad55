"""Who may ask: a web page that is not ours may neither read nor command, whatever name it came by."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.errors import StorageError
from dhtcrawl.web.guard import HEADERS, ServerLog, host_in, may_name

from .fake import FakeNode
from .test_admin import Answer, Browser, ask, browsing

pytestmark = pytest.mark.loops("asyncio")


@pytest.mark.parametrize(
    "header",
    ["127.0.0.1:8469", "localhost", "LOCALHOST:1", "[::1]:8469", "[::1]", "127.8.9.10", "[::ffff:127.0.0.1]:80"],
)
async def test_a_request_that_names_loopback_is_answered(header: str) -> None:
    assert (await ask(FakeNode(), "GET", "/api/v1/status", Host=header)).status == 200


@pytest.mark.parametrize(
    "header",
    [
        "evil.example", "evil.example:8469", "localhost.evil.example", "127.0.0.1.evil.example:8469", "192.0.2.1:8469",
        "[2001:db8::1]:8469", "", ":8469", "[::1", "127.0.0.1@evil.example", "localhost:8469:evil.example",
    ],
)  # fmt: skip
async def test_a_name_that_was_made_to_point_here_gets_nothing(header: str) -> None:
    node = FakeNode()
    for method, path in (("GET", "/"), ("GET", "/metrics"), ("GET", "/api/v1/status"), ("POST", "/api/v1/leave")):
        answer = await ask(node, method, path, Host=header)
        assert (answer.status, list(answer.json)) == (403, ["error"])
    assert node.asked == []


async def test_what_is_refused_is_one_line_of_json_whatever_it_names(caplog: pytest.LogCaptureFixture) -> None:
    node = FakeNode()
    named = await raw(b"GET /api/v1/status HTTP/1.1\r\nHost: \xff\r\nConnection: close\r\n\r\n")
    head, _, body = named.partition(b"\r\n\r\n")
    assert head.split()[1] == b"403"
    assert body == b'{"error": "this node is not \\udcff; use the address it listens on"}\n'
    assert json.loads(body)["error"].startswith("this node is not \udcff;")
    submitted = await ask(node, "POST", "/api/v1/crawls", {"seeds": ["http://a.example/"], "settings": {"\ud800": 1}})
    assert submitted.status == 400
    assert submitted.error == "\ud800 is no setting of a crawl; is the node of another version?"
    assert submitted.headers["Content-Type"] == "application/json; charset=utf-8"
    assert {name: submitted.headers[name] for name in HEADERS} == HEADERS
    assert caplog.records == []


async def raw(request: bytes) -> bytes:
    """What a client that is no library gets."""
    node = FakeNode()
    async with browsing(node) as browser:
        reader, writer = await asyncio.open_connection("127.0.0.1", browser.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert node.asked == []
    return answer


CHUNKED = b"Host: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"\xff\xff\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
        b"POST /api/v1/crawls HTTP/1.1\r\n" + CHUNKED + b"zz\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_one_line_at_debug(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = await raw(request_)
    assert answer.split()[1] == b"400"
    records = [record for record in caplog.records if record.name.startswith(("aiohttp", "dhtcrawl"))]
    assert [(record.levelname, record.exc_info) for record in records] == [("DEBUG", None)]
    said = records[0].getMessage()
    assert said.startswith("127.0.0.1 sent what is no HTTP request: ")
    assert said.isprintable()
    assert len(said) < 300


async def test_a_body_that_is_not_coded_as_it_says_is_refused_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await ask(FakeNode(), "POST", "/api/v1/crawls", b"{}" * 50, Content_Encoding="gzip")
    assert answer.status == 400
    assert answer.error == "the body is not coded as its headers say; send it as it is, without a coding"
    assert caplog.records == []


async def test_a_fault_of_our_own_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    node = FakeNode()
    node.error = RuntimeError("a bug")
    assert (await ask(node, "GET", "/api/v1/status")).status == 500
    node.error = StorageError("the disk is gone")
    assert (await ask(node, "GET", "/api/v1/status")).error == "the disk is gone"
    assert [(record.levelname, bool(record.exc_info)) for record in caplog.records] == [
        ("ERROR", True),
        ("ERROR", False),
    ]


def test_a_fault_of_the_server_itself_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("a bug")
    except RuntimeError as error:
        ServerLog().exception("Error handling request from %s", "127.0.0.1", exc_info=error)
        ServerLog().exception("Unhandled exception")
    assert [(record.levelname, bool(record.exc_info)) for record in caplog.records] == [("ERROR", True)] * 2
    assert caplog.records[0].getMessage() == "Error handling request from 127.0.0.1"


@pytest.mark.parametrize(
    "hosts", [b"", b"Host: localhost\r\nHost: evil.example\r\n", b"Host: evil.example\r\nHost: localhost\r\n"]
)
async def test_a_request_with_no_name_or_two_is_refused(hosts: bytes) -> None:
    answer = await raw(b"GET /api/v1/status HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
    assert answer.split()[1] in (b"400", b"403")


async def test_a_name_in_the_first_line_does_not_count() -> None:
    answer = await raw(
        b"GET http://localhost/api/v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert answer.split()[1] == b"403"


async def command(**headers: str) -> Answer:
    node = FakeNode()
    answer = await ask(node, "POST", "/api/v1/leave", Host="localhost:8469", **headers)
    assert bool(node.asked) is (answer.status == 200)
    return answer


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://localhost:8469"}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}]
)
async def test_our_own_page_and_a_command_may_command(headers: dict[str, str]) -> None:
    assert (await command(**headers)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://localhost:8469"},
        {"Origin": "http://localhost:8470"},
        {"Origin": "http://localhost"},
        {"Origin": "http://localhost:8469.evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_a_page_of_another_site_may_not_command(headers: dict[str, str]) -> None:
    answer = await command(**headers)
    assert (answer.status, "another site" in answer.error) == (403, True)


async def test_nobody_is_given_leave_to_read_from_another_site() -> None:
    for method, path in (("GET", "/api/v1/status"), ("GET", "/"), ("OPTIONS", "/api/v1/leave"), ("GET", "/nowhere")):
        headers = (await ask(FakeNode(), method, path, Host="localhost")).headers
        assert "Access-Control-Allow-Origin" not in headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


async def test_a_node_on_every_address_answers_to_addresses_and_not_to_names() -> None:
    async with browsing(FakeNode(), host="0.0.0.0") as browser:
        for host, status in (
            ("192.0.2.1:8469", 200),
            ("[2001:db8::1]", 200),
            ("localhost", 200),
            ("evil.example", 403),
        ):
            assert (await browser("GET", "/healthz", {"Host": host})).status == status


TOKEN = "a-token-that-nobody-guesses"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Authorization": f"bearer  {TOKEN} "}, 200),
        ({}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": "Bearer é"}, 401),
    ],
)
async def test_with_a_token_only_who_sends_it_is_answered(headers: dict[str, str], status: int) -> None:
    node = FakeNode()
    async with browsing(node, token=TOKEN) as browser:
        for method, path in (("GET", "/api/v1/status"), ("GET", "/metrics"), ("GET", "/api/v1/events"), ("GET", "/no")):
            answered = await _status(browser, method, path, headers)
            assert answered == (404 if path == "/no" and status == 200 else status)
        # Neither a command, nor a body that is read before.
        assert await _status(browser, "POST", "/api/v1/crawls", headers, b"{") == (400 if status == 200 else 401)
        assert await _status(browser, "POST", "/api/v1/leave", headers) == status
    assert (("leave",) in node.asked) is (status == 200)


async def _status(browser: Browser, method: str, path: str, headers: dict[str, str], data: bytes | None = None) -> int:
    """The status; the stream of events has no end, so no answer is read."""
    url = f"http://127.0.0.1:{browser.port}{path}"
    async with browser.session.request(method, url, headers=headers, data=data) as response:
        if response.status == 401:
            assert response.headers["WWW-Authenticate"] == "Bearer"
            assert "--admin-token-file" in (await response.json())["error"]
            assert TOKEN not in await response.text()
        return response.status


async def test_without_the_token_there_is_the_page_to_sign_in_and_whether_the_node_is_well() -> None:
    node = FakeNode()
    async with browsing(node, token=TOKEN) as browser:
        page = await browser("GET", "/")
        assert (page.status, TOKEN.encode() in page.body) == (200, False)
        assert (await browser("GET", "/healthz")).body == b"ok\n"
        # A page of another site may not try tokens, either.
        answer = await browser("POST", "/api/v1/leave", {"Origin": "http://evil.example"})
        assert (answer.status, "another site" in answer.error) == (403, True)


async def test_two_tokens_in_one_request_are_none() -> None:
    twice = b"".join(b"Authorization: Bearer " + TOKEN.encode() + b"\r\n" for _ in range(2))
    node = FakeNode()
    async with browsing(node, token=TOKEN) as browser:
        reader, writer = await asyncio.open_connection("127.0.0.1", browser.port)
        writer.write(b"GET /api/v1/peers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + twice + b"\r\n")
        assert (await reader.read()).split()[1] in (b"400", b"401")
        writer.close()
        await writer.wait_closed()
    assert node.asked == []


def test_a_node_answers_to_the_name_it_was_told_to_listen_on() -> None:
    assert may_name("node1.example.org", "node1.example.org")
    assert may_name("192.0.2.7", "192.0.2.7")
    assert not may_name("192.0.2.8", "192.0.2.7")
    assert may_name("2001:db8:0:0::7", "2001:db8::7")


def test_a_node_that_was_told_a_name_answers_to_the_address_that_it_says_it_has() -> None:
    assert may_name("192.0.2.7", "node1.example.org")
    assert may_name("2001:db8::7", "node1.example.org")
    assert not may_name("node2.example.org", "node1.example.org")
    assert not may_name("", "node1.example.org")


@given(st.text(max_size=40))
def test_no_header_is_read_as_loopback_that_does_not_say_so(text: str) -> None:
    host = host_in(text)
    if may_name(host, "127.0.0.1"):
        assert (
            text.strip().lower().lstrip("[").startswith(("127.", "localhost", "::1", "::ffff:7f", "::ffff:127.", "0"))
        )
