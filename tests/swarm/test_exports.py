"""What a node hands out of its crawls, and that asking for it makes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.bench import Bench
from storage.stores import CRAWL

from dhtcrawl.rpc.tasks.messages import Call, Refused, Result
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import Directory, MemoryDirectory
from dhtcrawl.storage.store.records import pack
from dhtcrawl.swarm.bodies.exports import Exports
from dhtcrawl.swarm.calls.bodies import ExportChunk
from swarm.fake_peers import node

FILE = f"{CRAWL.hex()[:12]}-{node(0).hex()[:12]}-00000.warc.gz"


class ExportBench(Bench):
    """Makes the directory of a crawl when it is asked for it, as a node does."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self.made: dict[bytes, MemoryDirectory] = {}
        self._group = group
        Exports(self.committer, self.archive_of, self._over).serve(self.registry)

    def archive_of(self, crawl: bytes) -> Directory:
        return self.made.setdefault(crawl, MemoryDirectory())

    async def chunk(self, crawl: bytes, name: str = FILE) -> Any:
        call = Call(ExportChunk.terms.name, ExportChunk(crawl, name, 0, 100).to_map())
        reply = self.registry.answer(node(1), call, self._group)
        reply = await reply if isinstance(reply, asyncio.Future) else reply
        return reply.value if isinstance(reply, Result) else reply

    async def _over(self, crawl: bytes) -> None:
        return


async def test_a_member_that_asks_for_files_of_crawls_that_are_none_has_no_directory_made() -> None:
    """Six of them a call, and each for good: any member could fill the disk with them."""
    async with asyncio.TaskGroup() as group:
        bench = ExportBench(group)
        for number in range(3):
            assert isinstance(await bench.chunk(number.to_bytes(16, "big")), Refused)
        assert bench.made == {}


async def test_of_an_archive_file_comes_what_is_committed() -> None:
    async with asyncio.TaskGroup() as group:
        bench = ExportBench(group)
        bench.made[CRAWL] = MemoryDirectory()
        bench.made[CRAWL].files[FILE] = bytearray(b"committed, and more")
        bench.engine.write({keys.ARCHIVE + CRAWL + FILE.encode(): pack(9)}, sync=False)
        assert await bench.chunk(CRAWL) == {"data": b"committed"}
        assert isinstance(await bench.chunk(CRAWL, "../" + FILE), Refused)
