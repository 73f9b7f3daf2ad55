"""What a node tells people of a crawl: the figures of the whole swarm, and why nothing moves.

The coordinator of a crawl adds up what it hears in its waves (`dhtcrawl.swarm.lifecycle.roll`); any other node asks it,
with one call, at most so often, whoever wants to know it and whether with a row for each node or without. While it does
not answer, a node tells what it told last, and how old that is, or its own share, and says whose it is. Of a crawl that
has ended, the record has the sums.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.rpc.peers.ask_all import answers_of
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.standing import OWED, Cause, Obstacle, crawl_standing, sentence
from dhtcrawl.storage.store import counters
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.calls.lifecycle import AskProgress, CrawlFigures, ProgressRow
from dhtcrawl.swarm.calls.words import obstacle_in, obstacle_row
from dhtcrawl.swarm.lifecycle.roll import SILENT_S, added_up

KEPT_S: Final = 0.4  # an answer is told again so long, whoever asks
KEPT_ENDED_S: Final = 30.0  # that of all members about a crawl that has ended: nothing of it changes
ROWS_WANTED_S: Final = 3.0  # whoever watches a crawl's rows asks again within that
KEPT_MAX: Final = 512
ANSWER_S: Final = 2.0  # for the coordinator to answer: people wait for it
SWARM, NODE = "swarm", "this node"
# Nodes do not tell each other what is 0; an earlier version did not count `pages_ok`, so that nothing is known of it.
_NONE: Final = {name: 0 for name in CrawlCounters().figures() if name != "pages_ok"} | {"queued": 0, "in_flight": 0}


@dataclass(frozen=True, slots=True)
class _Told:
    asked_at: float
    heard_at: float
    version: int
    figures: CrawlFigures
    whose: str
    rows: bool  # whether there is a row for each node
    kept_s: float = KEPT_S


@dataclass(slots=True)
class _Asked:
    """What is known of one crawl."""

    asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # who comes meanwhile waits for the same answer
    told: _Told | None = None
    rows_wanted_at: float = -math.inf

    def heard(self, told: _Told) -> None:
        """Keep an answer. Nobody else has asked meanwhile: `asking` is held."""
        self.told = told

    def fresh(self, version: int, now: float, *, nodes: bool) -> _Told | None:
        """The answer, if it still counts."""
        told = self.told
        counts = told is not None and told.version == version and now - told.asked_at <= told.kept_s
        return told if told is not None and counts and (told.rows or not nodes) else None


class CrawlFiguresAsked:
    """Asks for the figures of crawls, for one node."""

    def __init__(self, peers: Callable[[], Peers], clock: Clock) -> None:
        """`peers()` is called only once the node listens."""
        self._peers_now = peers
        self._clock = clock
        self._kept: dict[bytes, _Asked] = {}

    @property
    def _peers(self) -> Peers:
        return self._peers_now()

    async def of(self, record: CrawlRecord, *, nodes: bool) -> dict[str, Any]:
        """`standing`, `counters`, `counters_of`, `as_of_s`; with `nodes` also `per_node` and `waiting_for`."""
        told = await self._told(record, nodes=nodes)
        figures, since_s = told.figures, max(0.0, self._clock.monotonic() - told.heard_at)
        age_s = figures.heard_ms / 1000 + since_s
        shown = {
            "standing": crawl_standing(record.state, record.ended, obstacle_in(figures.obstacle)),
            "counters": {**_NONE, **counters.shown(figures.counters)},
            "counters_of": told.whose,
            "as_of_s": 0.0 if record.ended else round(age_s, 3),
        }
        if not nodes:
            return shown
        waiting = [line for row in figures.nodes for line in _owed(row.node, row.waiting)]
        return shown | {
            "per_node": [self._row(row, record, since_s) for row in figures.nodes],
            "waiting_for": waiting,
        }

    def _earlier(self, last: _Told | None, version: int) -> dict[bytes, ProgressRow]:
        """The rows of the last answer about the same end, older by now."""
        if last is None or last.version != version:
            return {}
        passed_ms = round(1000 * max(0.0, self._clock.monotonic() - last.heard_at))
        return {row.node: row._replace(heard_ms=row.heard_ms + passed_ms) for row in last.figures.nodes}

    def _row(self, row: ProgressRow, record: CrawlRecord, since_s: float) -> dict[str, Any]:
        obstacle, heard_s = obstacle_in(row.obstacle), row.heard_ms / 1000 + since_s
        member = row.member and (not record.ended or row.node in self._peers.view)
        there = member and (record.ended or heard_s < SILENT_S)
        return {
            "node": row.node.hex(),
            "state": "active" if there else "silent" if member else "gone",
            "heard_s": 0.0 if record.ended and there else round(heard_s, 3),
            "counters": {**_NONE, **counters.shown(row.counters)},
            "text": "" if obstacle is None else sentence(obstacle),
        }

    async def _told(self, record: CrawlRecord, *, nodes: bool) -> _Told:
        known = self._kept.pop(record.crawl_id, None) or _Asked()
        self._kept[record.crawl_id] = known
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        if nodes:
            known.rows_wanted_at = self._clock.monotonic()
        async with known.asking:
            now = self._clock.monotonic()
            told = known.fresh(record.version, now, nodes=nodes)
            if told is None:
                # One answer does for both who look at the list of crawls and who watch this one.
                wanted = nodes or now - known.rows_wanted_at < ROWS_WANTED_S
                told = await self._ask(record, known.told, nodes=wanted)
                known.heard(told)
        return told

    async def _ask(self, record: CrawlRecord, last: _Told | None, *, nodes: bool) -> _Told:
        peers, crawl, kept_s = self._peers, record.crawl_id, KEPT_S
        if record.ended:
            figures, whose, whole = await self._of_ended(record, last, nodes=nodes)
            kept_s = KEPT_ENDED_S if whole else KEPT_S
        else:
            owner = peers.view.owner(crawl_key(crawl))
            node = peers.node_id if owner is None else owner.id
            answer = await peers.call(node, AskProgress(crawl, nodes=nodes), timeout_s=ANSWER_S)
            if isinstance(answer, Failure) and last is not None and last.whose == SWARM:
                return self._as_last(last, record, node)
            figures, whose = (await self._here(crawl), NODE) if isinstance(answer, Failure) else (answer, SWARM)
        now = self._clock.monotonic()
        return _Told(now, now, record.version, figures, whose, rows=nodes, kept_s=kept_s)

    def _as_last(self, last: _Told, record: CrawlRecord, coordinator: bytes) -> _Told:
        """What the coordinator told last, and that it does not answer."""
        now, told = self._clock.monotonic(), last.figures
        silent = Obstacle(Cause.SILENT, coordinator.hex(), for_s=now - last.heard_at)
        figures = CrawlFigures(
            told.counters,
            told.waiting,
            heard_ms=told.heard_ms,
            obstacle=obstacle_row(silent),
            nodes=told.nodes,
            nodes_total=told.nodes_total,
        )
        return _Told(now, last.heard_at, record.version, figures, SWARM, rows=last.rows)

    async def _here(self, crawl: bytes) -> CrawlFigures:
        answer = await self._peers.call(self._peers.node_id, AskProgress(crawl, here=True))
        if isinstance(answer, Failure):
            return CrawlFigures({}, {})
        row = ProgressRow(self._peers.node_id, 0, True, answer.counters, answer.waiting, answer.obstacle)
        return CrawlFigures(answer.counters, answer.waiting, obstacle=answer.obstacle, nodes=(row,), nodes_total=1)

    async def _of_ended(
        self, record: CrawlRecord, last: _Told | None, *, nodes: bool
    ) -> tuple[CrawlFigures, str, bool]:
        """The figures, whose they are, and whether all members that were asked have told theirs.

        Of an end that an earlier version wrote there are no sums: the members that are asked are added up.
        """
        rows: tuple[ProgressRow, ...] = ()
        whole = True
        if nodes:
            asked, members = AskProgress(record.crawl_id, here=True), self._peers.view.ids
            answers = await answers_of(self._peers, members, asked)
            whole = len(answers) == len(members)
            told = {node: answer.counters for node, answer in answers.items() if answer.counters}
            found = {node: ProgressRow(node, 0, True, figures, {}, None) for node, figures in told.items()}
            # What a node did that does not answer any more is part of the sums: its row stays.
            rows = tuple((self._earlier(last, record.version) | found).values())
        if not record.totals and not rows:
            return (await self._here(record.crawl_id)), NODE, False
        totals = record.totals or added_up(row.counters for row in rows)
        return CrawlFigures(totals, {}, nodes=rows, nodes_total=len(rows)), SWARM, whole


def _owed(node: bytes, waiting: Mapping[str, int]) -> list[str]:
    return [f"{node.hex()[:12]}: {count} {OWED.get(word, word)}" for word, count in waiting.items() if count]
