"""What the answers of a node of a swarm have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dhtcrawl.node.failed_crawls import FiguresWithCauses
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.peers.ask_all import ask_all
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.web.api import ApiError

SEEDS_SHOWN: Final = 3


class Answers:
    """The node that answers, and the figures of crawls that it asks others for.

    Raises:
        ApiError: by every method, where what is asked cannot be.
    """

    def __init__(self, swarm: SwarmNode, figures: FiguresWithCauses) -> None:
        self._swarm = swarm
        self._figures = figures

    def record_of(self, crawl_id: bytes) -> CrawlRecord:
        """The record of a crawl.

        Raises:
            ApiError: 404, it is not known here.
        """
        record = self._swarm.crawls.get(crawl_id)
        if record is None:
            raise ApiError(404, f"no crawl {crawl_id.hex()[:12]} here; see 'dhtcrawl crawls'")
        return record

    def asked(self, crawl_id: bytes | None) -> list[CrawlRecord]:
        """The record of the crawl that was asked about; of all crawls for None."""
        return list(self._swarm.crawls) if crawl_id is None else [self.record_of(crawl_id)]

    async def rows_of(self, records: list[CrawlRecord]) -> list[dict[str, Any]]:
        """Crawls as `NodeApi.crawls` lists them."""

        async def row(record: CrawlRecord) -> dict[str, Any]:
            return {
                "crawl": record.crawl_id.hex(),
                "state": state_of(record),
                "seeds": record.spec.all_seeds[:SEEDS_SHOWN],
                "seeds_total": len(record.spec.all_seeds),
                "ended": record.ended,
                **await self._figures.of(record, nodes=False),
            }

        return await ask_all(records, row)


def state_of(record: CrawlRecord) -> str:
    """running, paused, stopping or ended."""
    return "ended" if record.ended else record.state


def plain(value: object) -> Any:
    """A value from the wire in JSON's types."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
