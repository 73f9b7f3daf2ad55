"""What a node that nobody answered is told: another secret, none, an open swarm, or nobody there."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
from closed.members import OTHER, OTHERS, RING, SECRET, Member
from rpc.wire import task
from rpc.worlds import take_all

from dhtcrawl.cli import no_way_in
from dhtcrawl.cli.addresses import JoinOptions
from dhtcrawl.cli.no_way_in import why_refused, why_unanswered
from dhtcrawl.closed import tls
from dhtcrawl.closed.secret import Ring
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.units import Address, format_address

OURS, THEIRS = RING.used.name, OTHERS.used.name


async def told(directory: Path, there: Ring | None, ours: Ring | None) -> str:
    """The reason that a node with `ours` is given, which a node with `there` did not answer; "" for none."""
    one, two = Member(directory, 1), Member(directory, 2)
    shown = None if there is None else one.tls(there)
    async with TaskTransport(lambda: Hello(one.id, 1, "active"), take_all, tls=shown) as node:
        address = await node.listen("127.0.0.1", 0)
        own_tls, own_name = (None, "") if ours is None else (two.tls(ours), ours.used.name)
        refusal = await asyncio.to_thread(why_refused, [address], own_tls, own_name)
    assert refusal is None or refusal.exit_code == 32
    return "" if refusal is None else str(refusal).replace(format_address(address), "THERE")


@pytest.mark.loops("asyncio")
@pytest.mark.parametrize(
    ("there", "ours", "reason"),
    [
        (OTHERS, RING, f"its secret is {THEIRS}, ours {OURS}; use the secret of that swarm"),
        (RING, None, f"it is in a closed swarm, whose secret {OURS} we do not have; name its file with --secret-file"),
        (
            Ring.of((OTHER,)),
            Ring.of((SECRET, OTHER)),
            f"it does not let us in: it dropped our secret {OURS} for {THEIRS}, or this node is banned there",
        ),
        (
            None,
            RING,
            "what listens there is in no closed swarm, and we have a secret; leave it out to join an open swarm",
        ),
        (None, None, ""),
        (RING, RING, ""),  # then it is the datagrams that do not get through
    ],
)
async def test_the_reason_is_what_the_other_end_shows(
    there: Ring | None, ours: Ring | None, reason: str, tmp_path: Path
) -> None:
    assert await told(tmp_path, there, ours) == (f"--bootstrap THERE: {reason}" if reason else "")


@pytest.mark.loops("asyncio")
@pytest.mark.parametrize("cut", [False, True])
async def test_a_node_that_is_busy_has_refused_nobody(
    cut: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(no_way_in, "TIMEOUT_S", 0.3)
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    context, seen = one.tls().server, list[asyncio.StreamWriter]()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer)
        if cut and len(seen) > 1:  # where too many shake hands
            writer.transport.abort()
            return
        with contextlib.suppress(ssl.SSLError):  # who only reads the certificate shows none
            await writer.start_tls(context)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    assert await asyncio.to_thread(why_refused, [address], two.tls(), OURS) is None
    assert len(seen) == 2
    server.close()


@pytest.mark.loops("asyncio")
async def test_a_clock_that_is_far_off_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Early(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Early:
            return cls(2020, 5, 1, tzinfo=tz)

    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    right = two.tls()
    monkeypatch.setattr(tls, "datetime", Early)
    async with (
        TaskTransport(lambda: Hello(one.id, 1, "active"), take_all, tls=one.tls()) as late,
        TaskTransport(lambda: Hello(two.id, 1, "active"), take_all, tls=right) as asker,
    ):
        address = await late.listen("127.0.0.1", 0)
        refusal = await asyncio.to_thread(why_refused, [address], right, OURS)
        for _ in range(2):
            assert isinstance(await asker.request(address, task()), Failure)
    assert "its certificate cannot be used (certificate has expired); are the clocks" in str(refusal)
    assert [record.message.partition("refused ")[2] for record in caplog.records] == [
        "(certificate has expired); are the clocks of both machines right?"
    ]


@pytest.mark.loops("asyncio", "uvloop")
@pytest.mark.parametrize(("year", "alert"), [(2020, "certificate expired"), (2220, "bad certificate")])
async def test_a_node_whose_certificate_others_refuse_is_told_so_itself(
    year: int, alert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Off(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Off:
            return cls(year, 5, 1, tzinfo=tz)

    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    right = two.tls()
    monkeypatch.setattr(tls, "datetime", Off)
    async with (
        TaskTransport(lambda: Hello(one.id, 1, "active"), take_all, tls=one.tls()) as asker,
        TaskTransport(lambda: Hello(two.id, 1, "active"), take_all, tls=right) as other,
    ):
        address = await other.listen("127.0.0.1", 0)
        for _ in range(2):
            assert isinstance(await asker.request(address, task()), Failure)
    (told,) = [record.message for record in caplog.records]
    assert told.startswith(f"the node at 127.0.0.1 port {address[1]} refuses the certificate of this one (")
    assert told.endswith(f"alert {alert}); are the clocks of both machines right?")


@pytest.mark.loops("asyncio")
async def test_a_node_that_still_has_the_secret_that_another_dropped_is_told_so_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    async with (
        TaskTransport(lambda: Hello(one.id, 1, "active"), take_all, tls=one.tls(Ring.of((SECRET, OTHER)))) as asker,
        TaskTransport(lambda: Hello(two.id, 1, "active"), take_all, tls=two.tls(OTHERS)) as other,
    ):
        assert isinstance(await asker.request(await other.listen("127.0.0.1", 0), task()), Failure)
    assert [record.message.partition("); ")[2] for record in caplog.records] == [
        "has it another secret than this node?"
    ]


@pytest.mark.loops("asyncio")
async def test_who_has_another_secret_is_not_asked_for_the_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Member(tmp_path, 1), Member(tmp_path, 2)
    async with (
        TaskTransport(lambda: Hello(one.id, 1, "active"), take_all, tls=one.tls(OTHERS)) as other,
        TaskTransport(lambda: Hello(two.id, 1, "active"), take_all, tls=two.tls()) as asker,
    ):
        assert isinstance(await asker.request(await other.listen("127.0.0.1", 0), task()), Failure)
    assert [record.message.partition("); ")[2] for record in caplog.records] == [
        "has it another secret than this node?"
    ]


def test_where_nobody_listens_there_is_no_other_reason(tmp_path: Path) -> None:
    assert why_refused([("127.0.0.1", 1)], Member(tmp_path, 1).tls(), OURS) is None
    assert why_refused([], None, "") is None


FAR, NEAR, ALL = ("192.0.2.7", 8468), ("127.0.0.1", 8468), ("::", 8468)


@pytest.mark.parametrize(
    ("bootstrap", "listen", "advertise", "reason"),
    [
        (FAR, NEAR, None, "no answer from 192.0.2.7:8468; --listen 127.0.0.1:8468 leads to this machine alone: leave"),
        (FAR, ALL, FAR, "192.0.2.7:8468: that is this node itself; name another node, or none to begin a swarm"),
        (NEAR, NEAR, None, "127.0.0.1:8468: that is this node itself"),
        (("127.0.0.1", 8470), NEAR, None, ""),
        (
            ("::1", 8470),
            NEAR,
            None,
            "no answer from [::1]:8470; --listen 127.0.0.1:8468 is IPv4, as they are not",
        ),
        (FAR, ("2001:db8::1", 8468), None, "--listen [2001:db8::1]:8468 is IPv6, as they are not"),
        (("localhost", 8470), ("::1", 8468), None, ""),
        (FAR, ALL, ("192.0.2.8", 8468), ""),
        (FAR, ("192.0.2.8", 8468), None, ""),
    ],
)
def test_addresses_of_its_own_that_no_answer_comes_to_are_the_reason(
    bootstrap: Address, listen: Address, advertise: Address | None, reason: str
) -> None:
    error = why_unanswered(JoinOptions((bootstrap,), listen, advertise, ("127.0.0.1", 8469), open_swarm=True))
    assert reason in str(error)
    assert (error is None) == (not reason)
