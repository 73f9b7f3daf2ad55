"""`verify` finds what somebody, or a disk, changed behind our back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .crawler import Crawler
from .outputs import Outputs
from .stub import StubServer


def flip_a_byte(out: Path) -> Path:
    (file,) = out.glob("archive/*.warc.gz")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    return file


def cut_the_tail(out: Path) -> Path:
    (file,) = out.glob("archive/*.warc.gz")
    file.write_bytes(file.read_bytes()[:-20])
    return file


def drop_a_page(out: Path) -> Path:
    (file,) = out.glob("pages/*.jsonl")
    file.write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    return file


def move_an_offset(out: Path) -> Path:
    (file,) = out.glob("indexes/*.cdxj")
    file.write_text(file.read_text().replace('"offset": "', '"offset": "1').replace('"offset":"', '"offset":"1'))
    return file


@pytest.mark.parametrize("damage", [flip_a_byte, cut_the_tail, drop_a_page, move_an_offset])
def test_damaged_outputs_do_not_verify_and_the_place_is_named(
    damage: Callable[[Path], Path], stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", "/a", "/b")
    stub.page("/a")
    stub.page("/b")
    crawler.run("crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out", outputs.out).ended_with(0)
    crawler.check(outputs.out)
    before = {path: path.read_bytes() for path in outputs.out.rglob("*.*") if path.is_file()}
    damaged = damage(outputs.out)
    assert damaged.read_bytes() != before[damaged], "nothing was damaged: the test shows nothing"
    verified = crawler.run("verify", outputs.out)
    assert verified.code == 1, verified
    assert "Traceback" not in verified.stderr, verified
    assert damaged.name in verified.stdout or f"{damaged.parent.name}/" in verified.stdout, verified
