"""What a node tells people of a crawl: the figures of the whole swarm, and why nothing moves.

The coordinator of a crawl adds up what it hears in its waves (`dhtcrawl.swarm.lifecycle.roll`); any other node asks it,
with one call, at most so often. Where it does not answer, a node tells its own share, and says whose it is. Of a crawl
that has ended, the record has the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.rpc.peers.ask_all import answers_of
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.standing import OWED, crawl_standing, sentence
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.calls.lifecycle import AskProgress, CrawlFigures, ProgressRow
from dhtcrawl.swarm.calls.words import obstacle_in
from dhtcrawl.swarm.lifecycle.roll import SILENT_S

KEPT_S: Final = 0.4  # an answer is told again so long, whoever asks
KEPT_MAX: Final = 512
SWARM, NODE = "swarm", "this node"


@dataclass(frozen=True, slots=True)
class _Told:
    at: float
    version: int
    figures: CrawlFigures
    whose: str


class CrawlFiguresAsked:
    """Asks for the figures of crawls, for one node."""

    def __init__(self, peers: Callable[[], Peers], clock: Clock) -> None:
        """`peers()` is called only once the node listens."""
        self._peers_now = peers
        self._clock = clock
        self._kept: dict[tuple[bytes, bool], _Told] = {}

    @property
    def _peers(self) -> Peers:
        return self._peers_now()

    async def of(self, record: CrawlRecord, *, nodes: bool) -> dict[str, Any]:
        """`standing`, `counters`, `counters_of`, `as_of_s`; with `nodes` also `per_node` and `waiting_for`."""
        told = self._kept.get((record.crawl_id, nodes))
        now = self._clock.monotonic()
        if told is None or told.version != record.version or now - told.at > KEPT_S:
            told = await self._ask(record, nodes=nodes)
            self._kept.pop((record.crawl_id, nodes), None)
            self._kept[record.crawl_id, nodes] = told
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        figures = told.figures
        age_s = figures.heard_ms / 1000 + max(0.0, self._clock.monotonic() - told.at)
        shown = {
            "standing": crawl_standing(record.state, record.ended, obstacle_in(figures.obstacle)),
            "counters": dict(figures.counters),
            "counters_of": told.whose,
            "as_of_s": 0.0 if record.ended else round(age_s, 3),
        }
        if not nodes:
            return shown
        waiting = [line for row in figures.nodes for line in _owed(row.node, row.waiting)]
        return shown | {"per_node": [_row(row) for row in figures.nodes], "waiting_for": waiting}

    async def _ask(self, record: CrawlRecord, *, nodes: bool) -> _Told:
        peers, crawl = self._peers, record.crawl_id
        if record.ended:
            figures, whose = await self._of_ended(record, nodes=nodes)
        else:
            owner = peers.view.owner(crawl_key(crawl))
            node = peers.node_id if owner is None else owner.id
            answer = await peers.call(node, AskProgress(crawl, nodes=nodes))
            figures, whose = (await self._here(crawl), NODE) if isinstance(answer, Failure) else (answer, SWARM)
        return _Told(self._clock.monotonic(), record.version, figures, whose)

    async def _here(self, crawl: bytes) -> CrawlFigures:
        answer = await self._peers.call(self._peers.node_id, AskProgress(crawl, here=True))
        if isinstance(answer, Failure):
            return CrawlFigures({}, {})
        row = ProgressRow(self._peers.node_id, 0, True, answer.counters, answer.waiting, answer.obstacle)
        return CrawlFigures(answer.counters, answer.waiting, obstacle=answer.obstacle, nodes=(row,), nodes_total=1)

    async def _of_ended(self, record: CrawlRecord, *, nodes: bool) -> tuple[CrawlFigures, str]:
        """Of an end that an earlier version wrote there are no sums."""
        rows: tuple[ProgressRow, ...] = ()
        if nodes:
            asked = AskProgress(record.crawl_id, here=True)
            answers = await answers_of(self._peers, self._peers.view.ids, asked)
            told = {node: answer.counters for node, answer in answers.items() if answer.counters}
            rows = tuple(ProgressRow(node, 0, True, counters, {}, None) for node, counters in told.items())
        if record.totals:
            return CrawlFigures(record.totals, {}, nodes=rows, nodes_total=len(rows)), SWARM
        return (await self._here(record.crawl_id)), NODE


def _row(row: ProgressRow) -> dict[str, Any]:
    obstacle, heard_s = obstacle_in(row.obstacle), row.heard_ms / 1000
    there = row.member and heard_s < SILENT_S
    return {
        "node": row.node.hex(),
        "state": "active" if there else "silent" if row.member else "gone",
        "heard_s": round(heard_s, 3),
        "counters": dict(row.counters),
        "text": "" if obstacle is None else sentence(obstacle),
    }


def _owed(node: bytes, waiting: Mapping[str, int]) -> list[str]:
    return [f"{node.hex()[:12]}: {count} {OWED.get(word, word)}" for word, count in waiting.items() if count]
