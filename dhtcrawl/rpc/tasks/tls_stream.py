"""TLS on a connection: a protocol to the socket below, a transport to the protocol above. No tasks, no threads.

    socket ──data_received──▶ incoming ─▶ OpenSSL ──▶ data_received ──▶ protocol
    socket ◀──────write────── outgoing ◀─ OpenSSL ◀──── write ◀──────── protocol

The protocol above is made once the handshake is done, so what a stranger sends
before that reaches nothing but OpenSSL. Each loop has a TLS of its own, and in
none can the handshakes of strangers be counted and cut: hence this one, which
also ends in two steps as TCP does, so that last words arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

HANDSHAKE_BYTES_MAX: Final = 16_384  # a member's part of it has 2,000
_RECORD_BYTES_MAX: Final = 16_384  # RFC 8446, section 5.1


def _is_lost(_error: ssl.SSLError) -> None:
    """The connection is lost, and the protocol above hears of that."""


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """One end of one connection."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        done: Callable[[TlsStream, OSError | None], object],
        *,
        server_side: bool,
        broken: Callable[[ssl.SSLError], object] = _is_lost,
    ) -> None:
        """`make` the protocol above; `done` is told once that the handshake is, or why it came to nothing.

        `broken` is told what TLS ends with later: in TLS 1.3 a client is done before the server has seen who it is.
        """
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._make = make
        self._done: Callable[[TlsStream, OSError | None], object] | None = done
        self._below: asyncio.Transport | None = None
        self._above: asyncio.Protocol | None = None
        self._broken = broken
        self._ending = False
        self._heard_all = False  # the other end has said that nothing follows
        self._unproven_bytes = 0  # that came before the handshake was done

    # To the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._advance()

    def data_received(self, data: bytes) -> None:
        # What follows the other end's last word is ignored (RFC 8446, section 6.1): OpenSSL reads no more of it, so it
        # would be kept.
        if self._ending or self._heard_all:
            return
        self._incoming.write(data)
        self._advance()
        if self._above is None and not self._ending:
            self._unproven_bytes += len(data)
            if self._unproven_bytes > HANDSHAKE_BYTES_MAX:
                self._finish(ConnectionAbortedError(f"more than {HANDSHAKE_BYTES_MAX:,} bytes without an end"))
                self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending = True
        self._finish(ConnectionResetError("the connection was closed in the handshake"))
        if self._above is not None:
            self._above.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # To the protocol above

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._ending:
            self._tls.write(data)
            self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Say that nothing follows. What still comes is not read any more."""
        self._ending = True
        with contextlib.suppress(ssl.SSLError):  # it waits for the other end's, and we do not
            self._tls.unwrap()
        self._flush()
        if self._below is not None:
            self._below.write_eof()

    def close(self) -> None:
        self._ending = True
        if self._below is not None:
            self._below.close()

    def abort(self) -> None:
        self._ending = True
        if self._below is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        return self._ending

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return default if self._below is None else self._below.get_extra_info(name, default)

    # Between the two

    def _advance(self) -> None:
        try:
            if self._above is None and not self._shake_hands():
                return
            self._read()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            if self._above is not None:
                self._broken(error)
            self._finish(error)
            self.close()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        finally:
            self._flush()
        self._finish(None)
        if self._ending:
            return False
        self._above = cast(asyncio.Protocol, self._make())
        self._above.connection_made(self)
        return True

    def _read(self) -> None:
        while not self._ending:
            data = self._tls.read(_RECORD_BYTES_MAX)
            if not data:
                self._heard_all = True  # TCP's end follows
                return
            assert self._above is not None, "it is made with the handshake"
            self._above.data_received(data)
            # To ask in vain costs more than the rest: OpenSSL's error becomes an exception.
            if not self._incoming.pending and not self._tls.pending():
                return

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and self._below is not None and not self._below.is_closing():
            self._below.write(data)

    def _finish(self, error: OSError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self, error)
