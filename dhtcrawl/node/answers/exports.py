"""What the nodes have of a crawl, for a command that gathers it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from dhtcrawl.node.answers.common import Answers
from dhtcrawl.storage.collect.facts import Unreachable
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.store.crawl_record import COMPLETE, to_wire
from dhtcrawl.swarm.bodies.peer_source import PeerSource
from dhtcrawl.swarm.calls.bodies import ExportFacts, NodeFigures
from dhtcrawl.web.api import ApiError, Row

T = TypeVar("T")


class ExportAnswers(Answers):
    """The part of `NodeApi` that is about outputs."""

    async def export_record(self, crawl_id: bytes) -> bytes:
        return to_wire(self.record_of(crawl_id))

    async def export_nodes(self, crawl_id: bytes) -> list[dict[str, Any]]:
        record = self.record_of(crawl_id)
        members = {member.id.hex(): member for member in self._swarm.gossip.view.members}
        # A participant that left gave its pages to an heir, which is named too.
        named = dict.fromkeys([*(node for node in record.participants if node not in record.heirs), *members])
        if record.ended == COMPLETE:
            # The pages of participants that are gone were fetched again by others.
            named = dict.fromkeys(node for node in named if node in members)
        return [fact for node in named if (fact := await self._facts(crawl_id, node, node in members)) is not None]

    async def export_rows(
        self, crawl_id: bytes, node: bytes, kind: bytes, cursor: bytes
    ) -> tuple[list[Row], bytes | None]:
        rows, after = await _answered(node, PeerSource(self._swarm.peers, crawl_id).rows(node, kind, cursor))
        return list(rows), after

    async def export_files(self, crawl_id: bytes, node: bytes) -> list[tuple[str, int]]:
        return await _answered(node, PeerSource(self._swarm.peers, crawl_id).files(node))

    async def export_chunk(self, crawl_id: bytes, node: bytes, name: str, offset: int, limit: int) -> bytes:
        return await _answered(node, PeerSource(self._swarm.peers, crawl_id).chunk(node, name, offset, limit))

    async def _facts(self, crawl_id: bytes, node: str, member: bool) -> dict[str, Any] | None:
        asked = ExportFacts(crawl_id)
        value = await self._swarm.peers.call(bytes.fromhex(node), asked) if member else None
        reachable = isinstance(value, NodeFigures)
        facts = value if isinstance(value, NodeFigures) else NodeFigures({})
        counters = dict(facts.counters)
        if reachable and not counters and node not in self.record_of(crawl_id).participants:
            return None  # it has nothing of this crawl
        return {
            "node": node,
            "counters": counters,
            "cpu_seconds": counters.get("cpu_seconds", 0.0),
            "rss_bytes_max": facts.rss_bytes_max,
            "seconds": counters.get("seconds", 0.0),
            "archive_dir": None,
            "reachable": reachable,
        }


async def _answered(node: bytes, answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (Unreachable, BadRow) as error:
        raise ApiError(502, f"{node.hex()[:12]} {error}") from error
