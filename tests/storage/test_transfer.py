"""What is brought from another node is whole and in order, whatever that node sends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from storage.stores import CRAWL
from storage.swarm_stores import NODES, Part

from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.storage.collect.export import Row, export_rows
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX
from dhtcrawl.storage.collect.transfer import LINKS_BYTES_MAX, bring_bytes, row_pages, whole_rows
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.memory import MemoryEngine

FILE = bytes(range(256)) * (CHUNK_BYTES_MAX // 100)
Pages = dict[bytes, tuple[Sequence[Row], Any]]


async def brought(at: int, end: int, most: int = CHUNK_BYTES_MAX, **odd: Any) -> tuple[bytes, list[tuple[int, int]]]:
    """What was appended, and what was asked for; a node gives `most` bytes an answer, or `odd`."""
    got, asked = bytearray(), []

    async def chunk(name: str, offset: int, limit: int) -> bytes:
        asked.append((offset, limit))
        data: bytes = odd.get("data", FILE[offset : offset + min(limit, most)])
        return data

    committer = LoopCommitter(GroupRunner(MemoryEngine(), sync=False))
    await bring_bytes(committer, chunk, "a.warc.gz", at, end, lambda _, data: got.extend(data))
    return bytes(got), asked


async def test_a_part_of_a_file_comes_whole_in_chunks_no_longer_than_asked_for() -> None:
    end = 2 * CHUNK_BYTES_MAX + 10
    data, asked = await brought(5, end)
    assert data == FILE[5:end]
    assert asked == [
        (5, CHUNK_BYTES_MAX),
        (5 + CHUNK_BYTES_MAX, CHUNK_BYTES_MAX),
        (5 + 2 * CHUNK_BYTES_MAX, 5),
    ]
    assert (await brought(0, 1000, most=7))[0] == FILE[:1000]
    assert await brought(9, 9) == (b"", [])


@pytest.mark.parametrize("data", [b"", bytes(11), None, "text"])
async def test_nothing_or_too_much_is_no_chunk(data: Any) -> None:
    with pytest.raises(BadRow):
        await brought(0, 10, data=data)


async def pages_of(pages: Pages, cursor: bytes) -> tuple[Sequence[Row], Any]:
    return pages[cursor]


async def test_pages_end_with_the_last_cursor_and_none_leads_back() -> None:
    pages: Pages = {b"": ([(b"a", b"1")], b"b"), b"b": ([(b"b", b"2")], None)}
    assert [rows async for rows in row_pages(partial(pages_of, pages))] == [[(b"a", b"1")], [(b"b", b"2")]]
    assert [rows async for rows in row_pages(partial(pages_of, pages), b"b")] == [[(b"b", b"2")]]
    for back in (b"b", b"a", b"", "c", 7):
        pages[b"b"] = [], back
        with pytest.raises(BadRow):
            assert [rows async for rows in row_pages(partial(pages_of, pages))] == []


@pytest.mark.parametrize("bytes_max", [41, 100, 1000, 1 << 18])
async def test_link_keys_in_parts_are_joined(bytes_max: int) -> None:
    node = Part(NODES[0])
    links = {number.to_bytes(20, "big"): bytes([number]) * 20 * size for number, size in enumerate((1, 30, 0, 9, 40))}
    node.store.engine.write({keys.LINKS + CRAWL + key: value for key, value in links.items()}, sync=False)

    async def ask(cursor: bytes) -> tuple[list[Row], bytes | None]:
        return node.store.run(lambda txn: export_rows(txn, CRAWL, keys.LINKS, cursor, bytes_max))

    found = [rows async for rows in whole_rows(ask, keys.LINKS)]
    assert all(found)
    assert [row for rows in found for row in rows] == list(links.items())


@pytest.mark.parametrize(
    "rows",
    [
        [(bytes(20) + (3).to_bytes(4, "big"), b"odd")],
        [(bytes(24), b"abc"), (bytes(24), b"abc")],
        [(bytes(24), b"abc"), (bytes(20) + (2).to_bytes(4, "big"), b"c")],
        [(bytes(24), b"much too long")],
    ],
    ids=["no beginning", "twice", "overlap", "too long"],
)
async def test_parts_that_do_not_fit_together_are_refused(rows: list[Row]) -> None:
    with pytest.raises(BadRow):
        assert [page async for page in whole_rows(partial(pages_of, {b"": (rows, None)}), keys.LINKS, b"", 10)] == []
    whole = [page async for page in whole_rows(partial(pages_of, {b"": (rows, None)}), keys.PAGE)]
    assert whole == [rows], "other kinds have no parts"


@pytest.mark.parametrize("further", [0, 1])
async def test_no_node_has_more_link_keys_of_a_page_joined_than_fit_into_memory(further: int) -> None:
    half = bytes(LINKS_BYTES_MAX // 2)
    parts = [half, half, b"x" * further]
    pages: Pages = {
        bytes([number]): ([(bytes(20) + (number * len(half)).to_bytes(4, "big"), part)], bytes([number + 1]))
        for number, part in enumerate(parts)
    }
    pages[bytes([len(parts)])] = [], None
    if further:
        with pytest.raises(BadRow):
            assert [rows async for rows in whole_rows(partial(pages_of, pages), keys.LINKS, bytes(1))] == []
    else:
        ((row,),) = [rows async for rows in whole_rows(partial(pages_of, pages), keys.LINKS, bytes(1))]
        assert len(row[1]) == LINKS_BYTES_MAX
