"""TLS between a socket and a protocol: what comes when the other end has said that nothing follows."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from dhtcrawl.rpc.tasks.tls_stream import TlsStream

from .members import Member


class Socket(asyncio.Transport):
    """The end of a socket that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False


class Listener(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = bytearray()

    def data_received(self, data: bytes) -> None:
        self.heard += data


def test_what_comes_behind_the_end_that_a_member_has_said_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, buffers = ssl.MemoryBIO, list[ssl.MemoryBIO]()

    def buffer() -> ssl.MemoryBIO:
        buffers.append(make())
        return buffers[-1]

    socket, above = Socket(), Listener()
    with monkeypatch.context() as patched:
        patched.setattr(ssl, "MemoryBIO", buffer)
        stream = TlsStream(
            Member(tmp_path, 1).tls().server, lambda: above, lambda stream, error: None, server_side=True
        )
    down, up = make(), make()
    member = Member(tmp_path, 2).tls().client.wrap_bio(down, up)
    stream.connection_made(socket)
    with pytest.raises(ssl.SSLWantReadError):
        member.do_handshake()
    stream.data_received(up.read())
    down.write(socket.written)
    member.do_handshake()
    member.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):  # it waits for ours
        member.unwrap()
    stream.data_received(up.read())
    for _ in range(16):
        stream.data_received(bytes(65_536))
    assert above.heard == b"last words"
    assert sum(each.pending for each in buffers) == 0
