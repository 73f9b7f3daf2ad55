"""Replies that servers send, and what each comes to: written anew from RFC 9110, 9112 and 1945.

A row is kept where browsers or curl keep it and where the RFCs say what it
means; `Kept` says as what. It is refused where they leave no meaning, with the
words that a user reads. Where two readers could take a reply differently, its
connection may not be used again. The connection is closed after the last byte.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass

from dhtcrawl.fetch.http import FetchFailureKind

HEAD_BYTES_MAX = 2000

OK = b"HTTP/1.1 200 OK\r\n"
L3 = b"Content-Length: 3\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"\r\n"
PLAIN = L3 + END + b"abc"
LAST = b"0\r\n\r\n"
ONE_CHUNK = b"3\r\nabc\r\n" + LAST


@dataclass(frozen=True, slots=True)
class Kept:
    """A reply that is read; `fields` are those of its head as they are told, each in a line."""

    body: bytes = b"abc"
    fields: bytes = b"Content-Length: 3"
    status: int = 200
    reusable: bool = True  # whether the connection may be used again
    whole: bool = True  # whether the body is told as complete


@dataclass(frozen=True, slots=True)
class Refused:
    """No reply: `words` are what a user reads."""

    words: str
    kind: FetchFailureKind = FetchFailureKind.PROTOCOL


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The connection was closed before the head was complete."""


Result = Kept | Refused | Unfinished


@dataclass(frozen=True, slots=True)
class Row:
    """What is sent, and what it comes to; `bodiless`: in answer to a HEAD."""

    sent: bytes
    result: Result
    bodiless: bool = False


NOT_HTTP = Refused("not HTTP: the answer does not begin with HTTP/")
NO_FIELDS = Kept(fields=b"", reusable=False)
LAST_USE = Kept(reusable=False)
CHUNKS = Kept(fields=b"Transfer-Encoding: chunked")
CHUNKS_LAST_USE = Kept(fields=b"Transfer-Encoding: chunked", reusable=False)


def status_line(line: str) -> Refused:
    """The refusal of a status line."""
    return Refused(f"not HTTP: the status line is {line!r}")


def cut(body: bytes, *, reusable: bool = False) -> Kept:
    """Chunks that break off."""
    return Kept(body, b"Transfer-Encoding: chunked", whole=False, reusable=reusable)


def length(text: bytes, body: bytes = b"abc", *, reusable: bool = True, whole: bool = True) -> Kept:
    """A reply whose only field is a Content-Length."""
    return Kept(body, b"Content-Length: " + text, reusable=reusable, whole=whole)


def of(status: int, *, reusable: bool = True) -> Kept:
    """The plain reply with another status."""
    return Kept(status=status, reusable=reusable)


def fields(text: bytes, *, reusable: bool = True) -> Kept:
    """The plain reply with more fields before its length."""
    return Kept(fields=text + b"\nContent-Length: 3", reusable=reusable)


STATUS_LINES = {
    "plain": Row(OK + PLAIN, Kept()),
    "no reason phrase": Row(b"HTTP/1.1 200 \r\n" + PLAIN, Kept()),
    "no reason phrase and no space": Row(b"HTTP/1.1 200\r\n" + PLAIN, Kept()),
    "no reason phrase, bare LF": Row(b"HTTP/1.1 200\n" + PLAIN, Kept()),
    "a long reason phrase": Row(b"HTTP/1.1 200 " + b"very " * 60 + b"fine\r\n" + PLAIN, Kept()),
    "a reason in UTF-8": Row("HTTP/1.1 200 Très bien\r\n".encode() + PLAIN, Kept()),
    "a reason in Latin-1": Row(b"HTTP/1.1 200 Tr\xe8s bien\r\n" + PLAIN, Kept()),
    "a reason with a tab": Row(b"HTTP/1.1 200 O\tK\r\n" + PLAIN, Kept()),
    "a reason with a CR": Row(b"HTTP/1.1 200 O\rK\r\n" + PLAIN, LAST_USE),
    "a reason that looks like a status": Row(b"HTTP/1.1 200 404 Not Found\r\n" + PLAIN, Kept()),
    "two spaces after the version": Row(b"HTTP/1.1  200 OK\r\n" + PLAIN, Kept()),
    "a tab after the version": Row(b"HTTP/1.1\t200 OK\r\n" + PLAIN, Kept()),
    "a tab after the status": Row(b"HTTP/1.1 200\tOK\r\n" + PLAIN, Kept()),
    "two spaces after the status": Row(b"HTTP/1.1 200  OK\r\n" + PLAIN, Kept()),
    "a version in lower case": Row(b"http/1.1 200 OK\r\n" + PLAIN, Kept()),
    "a version in mixed case": Row(b"Http/1.1 200 OK\r\n" + PLAIN, Kept()),
    "HTTP/1.0": Row(b"HTTP/1.0 200 OK\r\n" + PLAIN, LAST_USE),
    "HTTP/1.0 without a length": Row(b"HTTP/1.0 200 OK\r\n\r\nabc", NO_FIELDS),
    "HTTP/1.0 that keeps alive": Row(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + PLAIN, fields(b"Connection: keep-alive")
    ),
    "HTTP/1.0 that keeps alive without a length": Row(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nabc",
        Kept(fields=b"Connection: keep-alive", reusable=False),
    ),
    "HTTP/1": Row(b"HTTP/1 200 OK\r\n" + PLAIN, LAST_USE),
    "HTTP/1.2": Row(b"HTTP/1.2 200 OK\r\n" + PLAIN, Kept()),
    "HTTP/0.9 with a head": Row(b"HTTP/0.9 200 OK\r\n" + PLAIN, LAST_USE),
    "HTTP/2.0 in the words of HTTP/1": Row(b"HTTP/2.0 200 OK\r\n" + PLAIN, LAST_USE),
    "HTTP/2 in the words of HTTP/1": Row(b"HTTP/2 200\r\n" + PLAIN, LAST_USE),
    "HTTP/9.9": Row(b"HTTP/9.9 200 OK\r\n" + PLAIN, LAST_USE),
    "status 201": Row(b"HTTP/1.1 201 Created\r\n" + PLAIN, of(201)),
    "status 203": Row(b"HTTP/1.1 203 Other\r\n" + PLAIN, of(203)),
    "status 206": Row(b"HTTP/1.1 206 Part\r\n" + PLAIN, of(206)),
    "status 299": Row(b"HTTP/1.1 299 Odd\r\n" + PLAIN, of(299)),
    "status 300": Row(b"HTTP/1.1 300 Choose\r\n" + PLAIN, of(300)),
    "status 418": Row(b"HTTP/1.1 418 Teapot\r\n" + PLAIN, of(418)),
    "status 503": Row(b"HTTP/1.1 503 Later\r\n" + PLAIN, of(503)),
    "status 600": Row(b"HTTP/1.1 600 Odd\r\n" + PLAIN, of(600)),
    "status 999": Row(b"HTTP/1.1 999 Denied\r\n" + PLAIN, of(999)),
    "status 000": Row(b"HTTP/1.1 000 Nothing\r\n" + PLAIN, status_line("HTTP/1.1 000 Nothing")),
    "status 099": Row(b"HTTP/1.1 099 Low\r\n" + PLAIN, status_line("HTTP/1.1 099 Low")),
    "a status of two digits": Row(b"HTTP/1.1 20 OK\r\n" + PLAIN, status_line("HTTP/1.1 20 OK")),
    "a status of four digits": Row(b"HTTP/1.1 2000 OK\r\n" + PLAIN, status_line("HTTP/1.1 2000 OK")),
    "a status with a letter": Row(b"HTTP/1.1 20x OK\r\n" + PLAIN, status_line("HTTP/1.1 20x OK")),
    "a negative status": Row(b"HTTP/1.1 -200 OK\r\n" + PLAIN, status_line("HTTP/1.1 -200 OK")),
    "a status in other digits": Row(
        "HTTP/1.1 ２００ OK\r\n".encode() + PLAIN, status_line("HTTP/1.1 ï¼\x92ï¼\x90ï¼\x90 OK")
    ),
    "a status and its reason in one word": Row(b"HTTP/1.1 200OK\r\n" + PLAIN, Kept()),
    "no status": Row(b"HTTP/1.1 OK\r\n" + PLAIN, status_line("HTTP/1.1 OK")),
    "nothing after the version": Row(b"HTTP/1.1\r\n" + PLAIN, status_line("HTTP/1.1")),
    "only a space after the version": Row(b"HTTP/1.1 \r\n" + PLAIN, status_line("HTTP/1.1")),
    "no version": Row(b"HTTP/ 200 OK\r\n" + PLAIN, status_line("HTTP/ 200 OK")),
    "a version without its second number": Row(b"HTTP/1. 200 OK\r\n" + PLAIN, status_line("HTTP/1. 200 OK")),
    "HTTP/1.10": Row(b"HTTP/1.10 200 OK\r\n" + PLAIN, status_line("HTTP/1.10 200 OK")),
    "HTTP/11.1": Row(b"HTTP/11.1 200 OK\r\n" + PLAIN, status_line("HTTP/11.1 200 OK")),
    "HTTP/one": Row(b"HTTP/one 200 OK\r\n" + PLAIN, status_line("HTTP/one 200 OK")),
    "a NUL in the reason": Row(b"HTTP/1.1 200 O\0K\r\n" + PLAIN, Refused("a NUL byte in the response head")),
    "a reason without end": Row(
        b"HTTP/1.1 200 " + b"a" * HEAD_BYTES_MAX,
        Refused("the response head is larger than the limit of 2000 bytes", FetchFailureKind.HEADERS),
    ),
}

NOT_REPLIES = {
    "no HTTP at all": Row(b"<!doctype html><p>HTTP/0.9", NOT_HTTP),
    "HTTP without a slash": Row(b"HTTP 200 OK\r\n" + PLAIN, NOT_HTTP),
    "SHOUTcast": Row(b"ICY 200 OK\r\n" + PLAIN, NOT_HTTP),
    "a request": Row(b"GET / HTTP/1.1\r\n\r\n", NOT_HTTP),
    "the settings frame of HTTP/2": Row(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00d", NOT_HTTP),
    "the preface of HTTP/2": Row(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NOT_HTTP),
    "an alert of TLS": Row(b"\x15\x03\x01\x00\x02\x02F", NOT_HTTP),
    "SSH": Row(b"SSH-2.0-OpenSSH_9.2\r\n", NOT_HTTP),
    "SMTP": Row(b"220 mail.example ESMTP\r\n", NOT_HTTP),
    "a byte order mark": Row(b"\xef\xbb\xbf" + OK + PLAIN, NOT_HTTP),
    "a space before the status line": Row(b" " + OK + PLAIN, NOT_HTTP),
    "garbage before the status line": Row(b"xx" + OK + PLAIN, NOT_HTTP),
    "a field before the status line": Row(L3 + OK + PLAIN, NOT_HTTP),
    "another letter in the middle": Row(b"HTTQ/1.1 200 OK\r\n" + PLAIN, NOT_HTTP),
    "nothing": Row(b"", Unfinished()),
    "empty lines only": Row(b"\r\n\r\n\n", Unfinished()),
    "a beginning": Row(b"HTT", Unfinished()),
    "half a status line": Row(b"HTTP/1.1 200 O", Unfinished()),
    "a status line": Row(OK, Unfinished()),
    "a head without its empty line": Row(OK + L3, Unfinished()),
    "a head with half of its empty line": Row(OK + L3 + b"\r", Unfinished()),
    "a head whose lines end in CR": Row(b"HTTP/1.1 200 OK\rContent-Length: 3\r\rabc", Unfinished()),
}

LINE_ENDS = {
    "bare LF": Row(b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", Kept()),
    "bare LF after the status line": Row(b"HTTP/1.1 200 OK\n" + PLAIN, Kept()),
    "bare LF after a field": Row(OK + b"Content-Length: 3\n\r\nabc", Kept()),
    "bare LF as the empty line": Row(OK + L3 + b"\nabc", Kept()),
    "an empty line first": Row(END + OK + PLAIN, Kept()),
    "an empty line of LF first": Row(b"\n" + OK + PLAIN, Kept()),
    "many empty lines first": Row(b"\r\n" * 50 + b"\n\n" + OK + PLAIN, Kept()),
    "a CR in a value": Row(OK + b"X: a\rb\r\n" + PLAIN, fields(b"X: a b", reusable=False)),
    "a CR in a value that could begin another field": Row(
        OK + b"X: a\rContent-Length: 9\r\n" + PLAIN, fields(b"X: a Content-Length: 9", reusable=False)
    ),
    "a CR before the line break": Row(OK + b"X: a\r\r\n" + PLAIN, fields(b"X: a", reusable=False)),
    "a CR before a name": Row(
        OK + b"X: a\r\n\rContent-Length: 9\r\n" + PLAIN, fields(b"X: a Content-Length: 9", reusable=False)
    ),
    "a CR before the first name": Row(OK + b"\rContent-Length: 9\r\n" + PLAIN, LAST_USE),
    "a CR in a name": Row(OK + b"X\rY: a\r\n" + PLAIN, fields(b"X Y: a", reusable=False)),
    "a line of a CR": Row(OK + b"X: a\r\n\r\r\n" + PLAIN, fields(b"X: a", reusable=False)),
    "a body that begins with a line break": Row(OK + L3 + b"\r\n\r\na", Kept(b"\r\na")),
    "a body that looks like a reply": Row(
        OK + b"Content-Length: 21\r\n\r\n" + OK + b"\r\na\n", length(b"21", OK + b"\r\na\n")
    ),
}

FIELDS = {
    "no fields": Row(OK + b"\r\nabc", NO_FIELDS),
    "no space after the colon": Row(OK + b"Content-Length:3\r\n\r\nabc", Kept()),
    "blanks around the value": Row(OK + b"Content-Length: \t 3 \t\r\n\r\nabc", Kept()),
    "a name in lower case": Row(OK + b"content-length: 3\r\n\r\nabc", Kept(fields=b"content-length: 3")),
    "a name in capitals": Row(OK + b"CONTENT-LENGTH: 3\r\n\r\nabc", Kept(fields=b"CONTENT-LENGTH: 3")),
    "an empty value": Row(OK + b"X:\r\n" + PLAIN, fields(b"X: ")),
    "a value of blanks": Row(OK + b"X: \t \r\n" + PLAIN, fields(b"X: ")),
    "a value with colons": Row(OK + b"X: a: b:c\r\n" + PLAIN, fields(b"X: a: b:c")),
    "a name of odd characters": Row(OK + b"!#$%&'*+-.^_`|~9: x\r\n" + PLAIN, fields(b"!#$%&'*+-.^_`|~9: x")),
    "a value in UTF-8": Row(OK + "X: é\r\n".encode() + PLAIN, fields("X: é".encode())),
    "a value in Latin-1": Row(OK + b"X: \xe9\r\n" + PLAIN, fields(b"X: \xe9")),
    "a value of all 8-bit bytes": Row(
        OK + b"X: " + bytes(range(128, 256)) + b"\r\n" + PLAIN, fields(b"X: " + bytes(range(128, 256)))
    ),
    "control characters in a value": Row(OK + b"X: a\x01\x0b\x1b\x7fb\r\n" + PLAIN, fields(b"X: a\x01\x0b\x1b\x7fb")),
    "a NUL in a value": Row(OK + b"X: a\0b\r\n" + PLAIN, Refused("a NUL byte in the response head")),
    "a NUL in a name": Row(OK + b"X\0: a\r\n" + PLAIN, Refused("a NUL byte in the response head")),
    "the same field often": Row(OK + b"X: a\r\nx: b\r\nX: a\r\n" + PLAIN, fields(b"X: a\nx: b\nX: a")),
    "a space before the colon": Row(OK + b"X : a\r\n" + PLAIN, fields(b"X: a", reusable=False)),
    "a space before the colon of a length": Row(OK + b"Content-Length : 3\r\n\r\nabc", LAST_USE),
    "a tab before the colon of a length": Row(OK + b"Content-Length\t:3\r\n\r\nabc", LAST_USE),
    "a space before the colon of a coding": Row(
        OK + b"Transfer-Encoding : chunked\r\n\r\n" + ONE_CHUNK, CHUNKS_LAST_USE
    ),
    "a space in a name": Row(OK + b"Bad Name: a\r\n" + PLAIN, fields(b"Bad Name: a", reusable=False)),
    "parentheses in a name": Row(OK + b"X(y): a\r\n" + PLAIN, fields(b"X(y): a", reusable=False)),
    "8-bit bytes in a name": Row(OK + b"X\xe9: a\r\n" + PLAIN, fields(b"X\xe9: a", reusable=False)),
    "a control character before a length": Row(
        OK + b"\x0bContent-Length: 9\r\n" + PLAIN, fields(b"\x0bContent-Length: 9", reusable=False)
    ),
    "an underscore in the name of a length": Row(OK + b"Content_Length: 9\r\n" + PLAIN, fields(b"Content_Length: 9")),
    "no colon": Row(OK + b"odd line\r\n" + PLAIN, fields(b"odd line", reusable=False)),
    "no colon and LF": Row(OK + b"odd line\n" + PLAIN, fields(b"odd line", reusable=False)),
    "nothing before the colon": Row(OK + b": a\r\n" + PLAIN, fields(b": a", reusable=False)),
    "only a colon": Row(OK + b":\r\n" + PLAIN, fields(b":", reusable=False)),
    "a second status line": Row(OK + OK + PLAIN, fields(b"HTTP/1.1 200 OK", reusable=False)),
    "a folded value": Row(OK + b"X: a\r\n b\r\n\tc\r\n" + PLAIN, fields(b"X: a b c")),
    "a folded value and LF": Row(OK + b"X: a\n  b\n" + PLAIN, fields(b"X: a b")),
    "a value that begins in the second line": Row(OK + b"X:\r\n a\r\n" + PLAIN, fields(b"X: a")),
    "a folded line of blanks": Row(OK + b"X: a\r\n \t\r\n" + PLAIN, fields(b"X: a")),
    "a folded length": Row(OK + b"Content-Length:\r\n 3\r\n\r\nabc", Kept()),
    "a folded coding": Row(OK + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n" + ONE_CHUNK, CHUNKS),
    "a fold that looks like a length": Row(
        OK + b"X: a\r\n Content-Length: 9\r\n" + PLAIN, fields(b"X: a Content-Length: 9")
    ),
    "a fold after a line without a colon": Row(OK + b"odd\r\n line\r\n" + PLAIN, fields(b"odd line", reusable=False)),
    "a fold before the first field": Row(OK + b" X: a\r\n" + PLAIN, LAST_USE),
    "folds only": Row(OK + b" a\r\n b\r\n\r\nabc", NO_FIELDS),
    "many folds": Row(OK + b"X: a\r\n" + b" b\r\n" * 300 + PLAIN, fields(b"X: a" + b" b" * 300)),
    "many lines": Row(OK + b"A:\r\n" * 400 + PLAIN, fields(b"\n".join([b"A: "] * 400))),
    "a long line": Row(OK + b"X: " + b"a" * 1900 + b"\r\n" + PLAIN, fields(b"X: " + b"a" * 1900)),
    "a long name": Row(OK + b"X" * 1900 + b": a\r\n" + PLAIN, fields(b"X" * 1900 + b": a")),
    "a line that is too long": Row(
        OK + b"X: " + b"a" * HEAD_BYTES_MAX + b"\r\n" + PLAIN,
        Refused("the response head is larger than the limit of 2000 bytes", FetchFailureKind.HEADERS),
    ),
    "too many lines": Row(
        OK + b"X: a\r\n" * 350 + PLAIN,
        Refused("the response head is larger than the limit of 2000 bytes", FetchFailureKind.HEADERS),
    ),
}

LENGTHS = {
    "a body longer than its length": Row(OK + PLAIN + b"def", LAST_USE),
    "a second reply behind the first": Row(OK + PLAIN + OK + PLAIN, LAST_USE),
    "a line break behind the body": Row(OK + PLAIN + b"\r\n", LAST_USE),
    "a body shorter than its length": Row(OK + b"Content-Length: 9\r\n\r\nabc", length(b"9", whole=False)),
    "a length and no body": Row(OK + L3 + END, Kept(b"", whole=False)),
    "zero": Row(OK + b"Content-Length: 0\r\n\r\n", length(b"0", b"")),
    "zero and a body": Row(OK + b"Content-Length: 0\r\n\r\nabc", length(b"0", b"", reusable=False)),
    "leading zeros": Row(OK + b"Content-Length: 0003\r\n\r\nabc", length(b"0003")),
    "many leading zeros": Row(OK + b"Content-Length: " + b"0" * 40 + b"3\r\n\r\nabc", length(b"0" * 40 + b"3")),
    "no value": Row(OK + b"Content-Length:\r\n\r\nabc", length(b"", reusable=False)),
    "no value, and one": Row(OK + b"Content-Length:\r\n" + PLAIN, fields(b"Content-Length: ", reusable=False)),
    "equal ones": Row(OK + L3 + PLAIN, fields(b"Content-Length: 3")),
    "equal ones, three": Row(OK + L3 + L3 + PLAIN, fields(b"Content-Length: 3\nContent-Length: 3")),
    "equal ones in one line": Row(OK + b"Content-Length: 3, 3\r\n\r\nabc", length(b"3, 3")),
    "equal ones, written differently": Row(
        OK + b"Content-Length: 3,03 ,\r\n\r\nabc", length(b"3,03 ,", reusable=False)
    ),
    "different ones": Row(
        OK + b"Content-Length: 4\r\n" + PLAIN, Refused("the reply has different Content-Lengths: 3 and 4")
    ),
    "different ones in one line": Row(
        OK + b"Content-Length: 3, 4\r\n\r\nabcd", Refused("the reply has different Content-Lengths: 3 and 4")
    ),
    "many different ones": Row(
        OK + b"Content-Length: 5,4,3,2,1\r\n\r\nabcd", Refused("the reply has different Content-Lengths: 1 and 2 and 3")
    ),
    "different ones, of which one has a space before its colon": Row(
        OK + b"Content-Length : 4\r\n" + PLAIN, Refused("the reply has different Content-Lengths: 3 and 4")
    ),
    "a negative one": Row(OK + b"Content-Length: -3\r\n\r\nabc", Refused("the Content-Length is not a number: '-3'")),
    "one with a plus": Row(OK + b"Content-Length: +3\r\n\r\nabc", Refused("the Content-Length is not a number: '+3'")),
    "one in hexadecimal": Row(
        OK + b"Content-Length: 0x3\r\n\r\nabc", Refused("the Content-Length is not a number: '0x3'")
    ),
    "one with a point": Row(
        OK + b"Content-Length: 3.0\r\n\r\nabc", Refused("the Content-Length is not a number: '3.0'")
    ),
    "two numbers": Row(OK + b"Content-Length: 3 3\r\n\r\nabc", Refused("the Content-Length is not a number: '3 3'")),
    "a folded pair": Row(
        OK + b"Content-Length: 3\r\n 3\r\n\r\nabc", Refused("the Content-Length is not a number: '3 3'")
    ),
    "a word": Row(OK + b"Content-Length: many\r\n\r\nabc", Refused("the Content-Length is not a number: 'many'")),
    "one in other digits": Row(
        OK + b"Content-Length: \xb2\r\n\r\nabc", Refused("the Content-Length is not a number: '\xb2'")
    ),
    "one with a parameter": Row(
        OK + b"Content-Length: 3;a\r\n\r\nabc", Refused("the Content-Length is not a number: '3;a'")
    ),
    "one as large as a file may be": Row(
        OK + b"Content-Length: " + b"9" * 18 + b"\r\n\r\nabc", length(b"9" * 18, whole=False)
    ),
    "one that is larger": Row(
        OK + b"Content-Length: 1" + b"0" * 18 + b"\r\n\r\nabc", Refused("the Content-Length is larger than any file")
    ),
}

CHUNKS_ROWS = {
    "one": Row(OK + CHUNKED + END + ONE_CHUNK, CHUNKS),
    "several": Row(OK + CHUNKED + END + b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n" + LAST, CHUNKS),
    "none": Row(OK + CHUNKED + END + LAST, Kept(b"", b"Transfer-Encoding: chunked")),
    "a size in hexadecimal": Row(
        OK + CHUNKED + END + b"1A\r\n" + b"x" * 26 + b"\r\n" + LAST, Kept(b"x" * 26, b"Transfer-Encoding: chunked")
    ),
    "a size with leading zeros": Row(OK + CHUNKED + END + b"0003\r\nabc\r\n000\r\n\r\n", CHUNKS),
    "blanks after a size": Row(OK + CHUNKED + END + b"3 \t\r\nabc\r\n0 \r\n\r\n", CHUNKS),
    "blanks before a size": Row(OK + CHUNKED + END + b" 3\r\nabc\r\n" + LAST, CHUNKS),
    "an extension": Row(OK + CHUNKED + END + b"3;x\r\nabc\r\n" + LAST, CHUNKS),
    "extensions with values": Row(OK + CHUNKED + END + b'3;x=y;z="a b"\r\nabc\r\n0;w\r\n\r\n', CHUNKS),
    "an extension after blanks": Row(OK + CHUNKED + END + b"3 ; x = y\r\nabc\r\n" + LAST, CHUNKS),
    "an extension with 8-bit bytes": Row(OK + CHUNKED + END + b"3;\xe9\r\nabc\r\n" + LAST, CHUNKS),
    "a long extension": Row(OK + CHUNKED + END + b"3;" + b"x" * 1000 + b"\r\nabc\r\n" + LAST, CHUNKS),
    "a CR in an extension": Row(OK + CHUNKED + END + b"3;a\rb\r\nabc\r\n" + LAST, CHUNKS_LAST_USE),
    "bare LF": Row(OK + CHUNKED + END + b"3\nabc\n0\n\n", CHUNKS),
    "data of line breaks": Row(
        OK + CHUNKED + END + b"4\r\n\r\n\r\n\r\n" + LAST, Kept(b"\r\n\r\n", b"Transfer-Encoding: chunked")
    ),
    "data that looks like a chunk": Row(
        OK + CHUNKED + END + b"5\r\n0\r\n\r\n\r\n" + LAST, Kept(b"0\r\n\r\n", b"Transfer-Encoding: chunked")
    ),
    "a trailer": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\nX: a\r\n\r\n", CHUNKS),
    "several trailers": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\nX: a\r\nY: b\r\n c\r\n\r\n", CHUNKS),
    "a trailer with LF": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\nX: a\n\n", CHUNKS),
    "a trailer that is no field": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\nodd\r\n\r\n", CHUNKS),
    "a trailer that tells a length": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n", CHUNKS),
    "bytes behind the last": Row(OK + CHUNKED + END + ONE_CHUNK + b"surplus", CHUNKS_LAST_USE),
    "a reply behind the last": Row(OK + CHUNKED + END + ONE_CHUNK + OK + PLAIN, CHUNKS_LAST_USE),
    # RFC 9112, 8: it is complete once the chunk of size 0 has come.
    "no end of the trailers": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\n", CHUNKS),
    "no end of a trailer": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\nX: a", CHUNKS),
    "half an end": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\n\r", CHUNKS),
    "no chunk of size 0": Row(OK + CHUNKED + END + b"3\r\nabc\r\n", cut(b"abc", reusable=True)),
    "a size of 0 without its line break": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0", cut(b"abc", reusable=True)),
    "nothing": Row(OK + CHUNKED + END, cut(b"", reusable=True)),
    "data that break off": Row(OK + CHUNKED + END + b"9\r\nabc", cut(b"abc", reusable=True)),
    "a size that is too small": Row(OK + CHUNKED + END + b"2\r\nabc\r\n" + LAST, cut(b"ab")),
    "a size that is too large": Row(
        OK + CHUNKED + END + b"4\r\nabc\r\n" + LAST, Kept(b"abc\r", b"Transfer-Encoding: chunked")
    ),
    "no line break after data": Row(OK + CHUNKED + END + b"3\r\nabc" + LAST, cut(b"abc")),
    "a CR only after data": Row(OK + CHUNKED + END + b"3\r\nabc\r3\r\ndef\r\n" + LAST, cut(b"abc")),
    "two CR after data": Row(OK + CHUNKED + END + b"3\r\nabc\r\r\n" + LAST, cut(b"abc")),
    "an empty line for a size": Row(OK + CHUNKED + END + b"\r\n3\r\nabc\r\n" + LAST, cut(b"")),
    "a size that is a word": Row(OK + CHUNKED + END + b"3\r\nabc\r\nzz\r\n", cut(b"abc")),
    "a size with 0x": Row(OK + CHUNKED + END + b"0x3\r\nabc\r\n" + LAST, cut(b"")),
    "a negative size": Row(OK + CHUNKED + END + b"-3\r\nabc\r\n" + LAST, cut(b"")),
    "a size with a plus": Row(OK + CHUNKED + END + b"+3\r\nabc\r\n" + LAST, cut(b"")),
    "a size with an underscore": Row(OK + CHUNKED + END + b"0_3\r\nabc\r\n" + LAST, cut(b"")),
    "a size and a word": Row(OK + CHUNKED + END + b"3 x\r\nabc\r\n" + LAST, cut(b"")),
    "a size of 16 digits": Row(OK + CHUNKED + END + b"f" * 16 + b"\r\nabc", cut(b"abc", reusable=True)),
    "a size of 17 digits": Row(OK + CHUNKED + END + b"0" * 16 + b"3\r\nabc\r\n" + LAST, cut(b"")),
    "an extension without end": Row(OK + CHUNKED + END + b"3;" + b"x" * 5000 + b"\r\nabc\r\n" + LAST, cut(b"")),
    "too many trailers": Row(OK + CHUNKED + END + b"3\r\nabc\r\n0\r\n" + b"X: a\r\n" * 500 + END, CHUNKS_LAST_USE),
    "no chunks at all": Row(OK + CHUNKED + END + b"<html>", cut(b"", reusable=True)),
    "no chunks at all, but lines": Row(OK + CHUNKED + END + b"<html>\n<p>\n", cut(b"")),
}

CODINGS = {
    "chunked in capitals": Row(
        OK + b"Transfer-Encoding: CHUNKED\r\n\r\n" + ONE_CHUNK, Kept(fields=b"Transfer-Encoding: CHUNKED")
    ),
    "chunked with empty items": Row(
        OK + b"Transfer-Encoding: , chunked,\r\n\r\n" + ONE_CHUNK,
        Kept(fields=b"Transfer-Encoding: , chunked,", reusable=False),
    ),
    "chunked twice in one line": Row(
        OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + ONE_CHUNK,
        Kept(fields=b"Transfer-Encoding: chunked, chunked", reusable=False),
    ),
    "chunked twice in two lines": Row(
        OK + CHUNKED + CHUNKED + END + ONE_CHUNK,
        Kept(fields=b"Transfer-Encoding: chunked\nTransfer-Encoding: chunked", reusable=False),
    ),
    "identity": Row(OK + b"Transfer-Encoding: identity\r\n" + PLAIN, fields(b"Transfer-Encoding: identity")),
    "identity and chunked": Row(
        OK + b"Transfer-Encoding: identity, chunked\r\n\r\n" + ONE_CHUNK,
        Kept(fields=b"Transfer-Encoding: identity, chunked", reusable=False),
    ),
    "an empty coding": Row(OK + b"Transfer-Encoding:\r\n" + PLAIN, fields(b"Transfer-Encoding: ")),
    "gzip": Row(OK + b"Transfer-Encoding: gzip\r\n\r\nabc", Kept(fields=b"Transfer-Encoding: gzip", reusable=False)),
    "gzip and chunked": Row(
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + ONE_CHUNK,
        Kept(fields=b"Transfer-Encoding: gzip, chunked", reusable=False),
    ),
    "chunked before gzip": Row(
        OK + b"Transfer-Encoding: chunked, gzip\r\n\r\nabc",
        Kept(fields=b"Transfer-Encoding: chunked, gzip", reusable=False),
    ),
    "gzip and a length": Row(
        OK + b"Transfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\nabc",
        Kept(fields=b"Transfer-Encoding: gzip\nContent-Length: 1", reusable=False),
    ),
    "an unknown coding": Row(
        OK + b"Transfer-Encoding: xchunked\r\n\r\nabc", Kept(fields=b"Transfer-Encoding: xchunked", reusable=False)
    ),
    "chunked with a parameter": Row(
        OK + b"Transfer-Encoding: chunked;x\r\n\r\nabc", Kept(fields=b"Transfer-Encoding: chunked;x", reusable=False)
    ),
    "chunked in quotes": Row(
        OK + b'Transfer-Encoding: "chunked"\r\n\r\nabc', Kept(fields=b'Transfer-Encoding: "chunked"', reusable=False)
    ),
    "chunked after a control character": Row(
        OK + b"Transfer-Encoding: \x0bchunked\r\n\r\nabc",
        Kept(fields=b"Transfer-Encoding: \x0bchunked", reusable=False),
    ),
    "chunked beside a length": Row(
        OK + L3 + CHUNKED + END + b"1\r\na\r\n" + LAST,
        Kept(b"a", b"Content-Length: 3\nTransfer-Encoding: chunked", reusable=False),
    ),
    "chunked before a length": Row(
        OK + CHUNKED + L3 + END + b"1\r\na\r\n" + LAST,
        Kept(b"a", b"Transfer-Encoding: chunked\nContent-Length: 3", reusable=False),
    ),
    # RFC 9112, 6.3: where chunks say the end, lengths are not looked at.
    "chunked beside different lengths": Row(
        OK + b"Content-Length: 4\r\n" + L3 + CHUNKED + END + b"1\r\na\r\n" + LAST,
        Kept(b"a", b"Content-Length: 4\nContent-Length: 3\nTransfer-Encoding: chunked", reusable=False),
    ),
    "chunked beside a word for a length": Row(
        OK + b"Content-Length: x\r\n" + CHUNKED + END + b"1\r\na\r\n" + LAST,
        Kept(b"a", b"Content-Length: x\nTransfer-Encoding: chunked", reusable=False),
    ),
    "chunked beside an empty length": Row(
        OK + b"Content-Length:\r\n" + CHUNKED + END + b"1\r\na\r\n" + LAST,
        Kept(b"a", b"Content-Length: \nTransfer-Encoding: chunked", reusable=False),
    ),
    "chunked by HTTP/1.0": Row(b"HTTP/1.0 200 OK\r\n" + CHUNKED + END + ONE_CHUNK, CHUNKS_LAST_USE),
    "chunked by HTTP/1.0 that keeps alive": Row(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + CHUNKED + END + ONE_CHUNK,
        Kept(fields=b"Connection: keep-alive\nTransfer-Encoding: chunked", reusable=False),
    ),
}

CONNECTIONS = {
    "close": Row(OK + b"Connection: close\r\n" + PLAIN, fields(b"Connection: close", reusable=False)),
    "close in capitals": Row(OK + b"Connection: CLOSE\r\n" + PLAIN, fields(b"Connection: CLOSE", reusable=False)),
    "close among others": Row(
        OK + b"Connection: x , close\r\n" + PLAIN, fields(b"Connection: x , close", reusable=False)
    ),
    "close and keep-alive": Row(
        OK + b"Connection: keep-alive\r\nConnection: close\r\n" + PLAIN,
        fields(b"Connection: keep-alive\nConnection: close", reusable=False),
    ),
    "keep-alive": Row(OK + b"Connection: keep-alive\r\n" + PLAIN, fields(b"Connection: keep-alive")),
    "another word": Row(OK + b"Connection: closed\r\n" + PLAIN, fields(b"Connection: closed")),
    "close, and no length": Row(
        OK + b"Connection: close\r\n\r\nabc", Kept(fields=b"Connection: close", reusable=False)
    ),
    "close, and an empty body": Row(OK + b"Connection: close\r\n\r\n", Kept(b"", b"Connection: close", reusable=False)),
    "keep-alive, and no length": Row(
        OK + b"Connection: keep-alive\r\n\r\nabc", Kept(fields=b"Connection: keep-alive", reusable=False)
    ),
}

INTERIM = {
    "100": Row(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + PLAIN, Kept()),
    "100 without a reason": Row(b"HTTP/1.1 100\r\n\r\n" + OK + PLAIN, Kept()),
    "102 and 103": Row(b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\n" + OK + PLAIN, Kept()),
    "many": Row(b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\n" * 100 + OK + PLAIN, Kept()),
    "199": Row(b"HTTP/1.1 199 Odd\r\n\r\n" + OK + PLAIN, Kept()),
    "bare LF": Row(b"HTTP/1.1 100 Continue\n\n" + OK + PLAIN, Kept()),
    "an empty line between": Row(b"HTTP/1.1 100 Continue\r\n\r\n\r\n" + OK + PLAIN, Kept()),
    "a length that is none": Row(b"HTTP/1.1 103 Hints\r\nContent-Length: 3\r\n\r\n" + OK + PLAIN, Kept()),
    "different lengths that are none": Row(b"HTTP/1.1 103 Hints\r\nContent-Length: 3, 4\r\n\r\n" + OK + PLAIN, Kept()),
    "close that is none": Row(b"HTTP/1.1 103 Hints\r\nConnection: close\r\n\r\n" + OK + PLAIN, Kept()),
    "by HTTP/1.0": Row(b"HTTP/1.0 100 Continue\r\n\r\n" + OK + PLAIN, Kept()),
    "nothing after it": Row(b"HTTP/1.1 100 Continue\r\n\r\n", Unfinished()),
    "half a head after it": Row(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + L3, Unfinished()),
    "no HTTP after it": Row(b"HTTP/1.1 100 Continue\r\n\r\nabc", NOT_HTTP),
    "101": Row(
        b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n",
        Refused("unexpected status 101: the server changes the protocol"),
    ),
    "101 after 100": Row(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching\r\n\r\n",
        Refused("unexpected status 101: the server changes the protocol"),
    ),
}

BODILESS = {
    "204": Row(b"HTTP/1.1 204 None\r\n\r\n", Kept(b"", b"", 204)),
    "204 with a body": Row(b"HTTP/1.1 204 None\r\n" + PLAIN, Kept(b"", status=204, reusable=False)),
    "204 with a length": Row(b"HTTP/1.1 204 None\r\n" + L3 + END, Kept(b"", status=204)),
    "204 with chunks": Row(
        b"HTTP/1.1 204 None\r\n" + CHUNKED + END + ONE_CHUNK,
        Kept(b"", b"Transfer-Encoding: chunked", 204, reusable=False),
    ),
    # RFC 9112, 6.3: their fields are not looked at.
    "204 with different lengths": Row(
        b"HTTP/1.1 204 None\r\nContent-Length: 4\r\n" + L3 + END,
        Kept(b"", b"Content-Length: 4\nContent-Length: 3", 204, reusable=False),
    ),
    "304": Row(b"HTTP/1.1 304 Same\r\n\r\n", Kept(b"", b"", 304)),
    "304 with a length": Row(b"HTTP/1.1 304 Same\r\n" + L3 + END, Kept(b"", status=304)),
    "304 with a body": Row(b"HTTP/1.1 304 Same\r\n" + PLAIN, Kept(b"", status=304, reusable=False)),
    "304 with a word for a length": Row(
        b"HTTP/1.1 304 Same\r\nContent-Length: x\r\n\r\n", Kept(b"", b"Content-Length: x", 304, reusable=False)
    ),
    "304 by HTTP/1.0": Row(b"HTTP/1.0 304 Same\r\n\r\n", Kept(b"", b"", 304, reusable=False)),
    "205 with a body": Row(b"HTTP/1.1 205 Reset\r\n" + PLAIN, of(205)),
    "205 without a length": Row(b"HTTP/1.1 205 Reset\r\n\r\n", Kept(b"", b"", 205, reusable=False)),
    "205 with a body without a length": Row(b"HTTP/1.1 205 Reset\r\n\r\nabc", Kept(b"", b"", 205, reusable=False)),
    "301 with a body": Row(
        b"HTTP/1.1 301 Moved\r\nLocation: /\r\n" + PLAIN, Kept(fields=b"Location: /\nContent-Length: 3", status=301)
    ),
    "301 with too long a body": Row(b"HTTP/1.1 301 Moved\r\n" + PLAIN + b"def", of(301, reusable=False)),
    "302 without a length": Row(b"HTTP/1.1 302 Found\r\n\r\nabc", Kept(fields=b"", status=302, reusable=False)),
    "404 without a body": Row(b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n", Kept(b"", b"Content-Length: 0", 404)),
    "500 without a length": Row(b"HTTP/1.1 500 Oh\r\n\r\n", Kept(b"", b"", 500, reusable=False)),
    "HEAD": Row(OK + L3 + END, Kept(b""), bodiless=True),
    "HEAD with chunks": Row(OK + CHUNKED + END, Kept(b"", b"Transfer-Encoding: chunked"), bodiless=True),
    "HEAD without a length": Row(OK + END, Kept(b"", b""), bodiless=True),
    "HEAD with a body": Row(OK + PLAIN, Kept(b"", reusable=False), bodiless=True),
    "HEAD with different lengths": Row(
        OK + b"Content-Length: 4\r\n" + L3 + END,
        Kept(b"", b"Content-Length: 4\nContent-Length: 3", reusable=False),
        bodiless=True,
    ),
}


def _coded(coding: bytes, body: bytes) -> Row:
    head = b"Content-Encoding: " + coding + b"\r\nContent-Length: %d\r\n" % len(body)
    return Row(OK + head + END + body, Kept(body, head.replace(b"\r\n", b"\n").rstrip(b"\n")))


_DEFLATE = zlib.compressobj(wbits=-15)
RAW_DEFLATE = _DEFLATE.compress(b"abc") + _DEFLATE.flush()

# A content coding, right or wrong, is the body's: it is kept as it was sent.
LABELS = {
    "gzip": _coded(b"gzip", gzip.compress(b"abc", mtime=0)),
    "gzip over a plain body": _coded(b"gzip", b"abc"),
    "gzip over an empty body": _coded(b"gzip", b""),
    "gzip over deflate": _coded(b"gzip", zlib.compress(b"abc")),
    "gzip that is cut": _coded(b"gzip", gzip.compress(b"abc", mtime=0)[:-5]),
    "gzip twice over one": _coded(b"gzip, gzip", gzip.compress(b"abc", mtime=0)),
    "x-gzip": _coded(b"x-gzip", gzip.compress(b"abc", mtime=0)),
    "identity over gzip": _coded(b"identity", gzip.compress(b"abc", mtime=0)),
    "deflate": _coded(b"deflate", zlib.compress(b"abc")),
    "deflate that is raw": _coded(b"deflate", RAW_DEFLATE),
    "deflate over gzip": _coded(b"deflate", gzip.compress(b"abc", mtime=0)),
    "br over gzip": _coded(b"br", gzip.compress(b"abc", mtime=0)),
    "br over a plain body": _coded(b"br", b"abc"),
    "an unknown one": _coded(b"utf-8", b"abc"),
    "none at all": _coded(b"", b"abc"),
}

_SECTIONS = {
    "status line": STATUS_LINES,
    "no reply": NOT_REPLIES,
    "line ends": LINE_ENDS,
    "fields": FIELDS,
    "length": LENGTHS,
    "chunks": CHUNKS_ROWS,
    "coding": CODINGS,
    "connection": CONNECTIONS,
    "interim": INTERIM,
    "without a body": BODILESS,
    "label": LABELS,
}
TABLE = {f"{section}: {name}": row for section, rows in _SECTIONS.items() for name, row in rows.items()}
