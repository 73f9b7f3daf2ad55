"""A log record is one line, whatever a peer or a site sent, and holds no password."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.cli.log_lines import (
    FIELD_CHARS_MAX,
    MESSAGE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    JsonLines,
    TextLines,
    one_line,
)

HOSTILE = "a\r\nb\x1b[2Jc\u2028d\u202ee\udc80f\x00"
AT = datetime(2026, 3, 4, 5, 6, 7, 89_000, UTC).timestamp()


def record(message: str, *args: object, error: BaseException | None = None, **fields: object) -> logging.LogRecord:
    told = logging.LogRecord(
        "dhtcrawl.fetch", logging.WARNING, __file__, 1, message, args, (type(error), error, None) if error else None
    )
    told.created = AT
    vars(told).update(fields)
    return told


def test_a_json_line_has_a_time_in_utc_a_level_a_logger_a_message_and_the_records_fields() -> None:
    lines = JsonLines()
    lines.node = "ab12"
    told = record("%s answered %d", "http://a/", 503, url="http://a/", status=503, seconds=0.25, size=7)
    assert json.loads(lines.format(told)) == {
        "ts": "2026-03-04T05:06:07.089Z",
        "level": "warning",
        "logger": "dhtcrawl.fetch",
        "message": "http://a/ answered 503",
        "node": "ab12",
        "url": "http://a/",
        "status": 503,
        "seconds": 0.25,
    }
    assert json.loads(lines.format(record("relayed", node="cd34")))["node"] == "cd34"


@pytest.mark.parametrize("lines", [JsonLines(), TextLines()])
@given(text=st.text() | st.just(HOSTILE))
def test_a_record_is_one_printable_line(lines: logging.Formatter, text: str) -> None:
    line = lines.format(record("it said %s", text, url=text, peer=text))
    assert line.isprintable()
    if isinstance(lines, JsonLines):
        assert json.loads(line).keys() == {"ts", "level", "logger", "message", "url", "peer"}


def test_a_traceback_is_one_line_in_json_and_indented_lines_in_text() -> None:
    told = record("it failed", error=ValueError(f"x\n2026-03-04 05:06:07,089 ERROR dhtcrawl: forged {HOSTILE}"))
    line = JsonLines().format(told)
    assert line.isprintable()
    assert "ValueError: x" in json.loads(line)["traceback"]
    first, *rest = TextLines().format(told).split("\n")
    assert first.endswith("WARNING dhtcrawl.fetch: it failed")
    assert rest
    assert all(row.startswith("  ") and row.isprintable() for row in rest)


def test_the_length_of_a_line_is_bounded() -> None:
    long = "x" * 1_000_000
    row = json.loads(JsonLines().format(record(long, url=long, error=ValueError(long))))
    assert len(row["message"]) == MESSAGE_CHARS_MAX
    assert len(row["url"]) == FIELD_CHARS_MAX
    assert len(row["traceback"]) <= TRACEBACK_CHARS_MAX
    assert len(TextLines().format(record(long))) < MESSAGE_CHARS_MAX + 100


@pytest.mark.parametrize("value", [float("inf"), float("nan"), sys.float_info.max, 10**30, True])
def test_every_number_is_json(value: float) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads(JsonLines().format(record("m", wait_s=value)), parse_constant=refuse)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("moved to https://me:secret@a.example/x?u=b@c", "moved to https://a.example/x?u=b@c"),
        ("ftp://me:se@cret@a.example, http://t@b.example/", "ftp://a.example, http://b.example/"),
        ("mail me@a.example, see http://a.example/@me", "mail me@a.example, see http://a.example/@me"),
    ],
)
def test_a_line_holds_no_password_of_a_url(text: str, told: str) -> None:
    assert one_line(text) == told
