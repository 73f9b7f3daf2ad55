"""A crawl on all nodes of a swarm, gathered through the admin HTTP of one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from dhtcrawl.cli.client import NodeClient
from dhtcrawl.cli.gather import gather
from dhtcrawl.cli.main import fail
from dhtcrawl.cli.places import check_whole, node_dir
from dhtcrawl.cli.runtime import locked
from dhtcrawl.cli.wait import stop_of
from dhtcrawl.errors import DhtcrawlError
from dhtcrawl.storage.collect.facts import CrawlFacts, NodeFacts, Unreachable, read_facts
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX
from dhtcrawl.storage.collect.merge_stores import EndedStore
from dhtcrawl.storage.outputs.outputs import OutputCounters
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED, CrawlRecord, NotARecord, from_wire
from dhtcrawl.web.api import Row

T = TypeVar("T")


class HttpSource:
    """One crawl as `dhtcrawl.cli.gather.Source`.

    Raises:
        Unreachable: the node that was asked for rows, files or a chunk does not give them.
        DhtcrawlError: `nodes` raises what `NodeClient` does.
    """

    def __init__(self, client: NodeClient, crawl: str) -> None:
        self._client = client
        self._crawl = crawl

    async def nodes(self) -> list[NodeFacts]:
        return [read_facts(fields) for fields in await self._client.export_nodes(self._crawl)]

    async def rows(self, node: str, kind: bytes, cursor: bytes) -> tuple[Sequence[Row], bytes | None]:
        return await _reached(self._client.export_rows(self._crawl, node, kind, cursor))

    async def files(self, node: str) -> list[tuple[str, int]]:
        return await _reached(self._client.export_files(self._crawl, node))

    async def chunk(self, node: str, name: str, offset: int, limit: int) -> bytes:
        limit = min(limit, CHUNK_BYTES_MAX)
        return await _reached(self._client.export_chunk(self._crawl, node, name, offset, limit))

    def local_dir(self, node: str) -> Path | None:
        return None  # it may be on another machine

    def stores(self) -> Sequence[EndedStore]:
        return ()  # the nodes run, so only they can read them


async def _reached(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except DhtcrawlError as error:
        raise Unreachable(f"cannot be asked ({error})") from error


class AskedCrawl(NamedTuple):
    """What the nodes say of a crawl before anything of it is gathered."""

    record: CrawlRecord
    facts: CrawlFacts
    nodes: list[NodeFacts]


async def record_of(client: NodeClient, crawl: str) -> CrawlRecord:
    """Ask a node for the record of a crawl.

    Raises:
        UsageError: it knows no such crawl.
        NodeUnreachable: it does not answer.
        DhtcrawlError: it sent nonsense.
    """
    try:
        return from_wire(await client.export_record(crawl))
    except NotARecord as error:
        raise DhtcrawlError(f"what answers at {client.name} sent no record of the crawl ({error})") from error


async def ask_about(client: NodeClient, crawl: str) -> AskedCrawl:
    """Ask a node of a crawl.

    Raises:
        UsageError: it knows no such crawl.
        NodeUnreachable: it does not answer.
        DhtcrawlError: it sent nonsense.
    """
    record = await record_of(client, crawl)
    status, stop = await client.status(), stop_of(record.ended)
    nodes = await HttpSource(client, crawl).nodes()
    facts = CrawlFacts(
        ended=bool(record.ended),
        complete=record.ended in (COMPLETE, FAILED),
        nodes=len(record.participants),
        seconds=max((node.seconds for node in nodes), default=0.0),
        storage_sync=status.get("storage_sync") is not False,
        pending_reason="" if stop is None else stop.reason,
    )
    return AskedCrawl(record, facts, nodes)


async def gather_from(
    client: NodeClient, crawl: str, out: Path, *, sync: bool = True, say: Callable[[str], None] = fail
) -> tuple[Summary, OutputCounters]:
    """Gather a crawl below `out`, which is locked meanwhile.

    `say` gets one line for each node that could not be gathered.

    Raises:
        UsageError: `out` holds another crawl, lacks its store or is in use, or the node knows no such crawl.
        NodeUnreachable: the node does not answer.
        StorageError: the disk failed or is full; the same call goes on from there.
        DhtcrawlError: the node sent nonsense.
    """
    record, facts, _ = await ask_about(client, crawl)
    data_dir = node_dir(out)
    check_whole(out, data_dir)
    with locked(data_dir):
        return await gather(HttpSource(client, crawl), record, out, data_dir, facts, sync=sync, say=say)
