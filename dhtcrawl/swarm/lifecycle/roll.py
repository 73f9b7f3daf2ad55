"""How a crawl stands at all of its nodes, as its coordinator heard: figures added up, and why nothing moves. Pure.

A node that is gone keeps its row, with the figures that it told last, also where the crawl has ended and goes on. Its
pages still count: they may come back with it, and each one that another node has to fetch anew is counted by its owner
(`pages_reopened`) and taken off, as far as figures of others are here. So the sum never falls without a reason, and
never has a page twice.

The coordinator tells its possible successors the rows that they could not hear again, `told`: its own, and those of
nodes that are gone. Times are seconds on the coordinator's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.standing import PACE_S, Cause, Obstacle, first
from dhtcrawl.storage.store.counters import told
from dhtcrawl.storage.store.crawl_record import PAUSED, STOPPING, CrawlRecord
from dhtcrawl.swarm.calls.lifecycle import CrawlFigures, CrawlStanding, GoneRow, ProgressRow
from dhtcrawl.swarm.calls.words import NODES_TOLD_MAX, obstacle_in, obstacle_of, row_of

SILENT_S: Final = 3.0  # a node that was not heard of for so long is said not to answer
ROWS_MAX: Final = 4_096
# Of one node at one moment: a sum over nodes says nothing, or another figure says it.
_NOT_ADDED: Final = frozenset({"seconds", "bytes", "pages_out", "pages_used"})
_OF_NOW: Final = ("queued", "in_flight")  # what a node that is gone has none of
# They hold for a moment again and again while a crawl goes on.
_PASSING: Final = frozenset(
    {Cause.OWED, Cause.LEASE, Cause.GATEKEEPER, Cause.ROBOTS, Cause.DELAY, Cause.JOINING, Cause.ALONE}
)


@dataclass(slots=True)
class _NodeRow:
    heard_at: float
    counters: Mapping[str, int | float]
    waiting: Mapping[str, int]
    obstacle: Obstacle | None
    awaited: tuple[Obstacle, ...] = ()  # nodes that are gone, and how many pages lie only there
    told: bool = False  # by an earlier coordinator; the node itself was not heard here, or not since the crawl goes on


@loop_state
class Roll:
    """The nodes of one crawl; `heard` takes what they report."""

    def __init__(self) -> None:
        self._rows: dict[bytes, _NodeRow] = {}
        self._since: dict[tuple[str, str], float] = {}  # since when the obstacles of now have held
        self._elapsed_s = 0.0
        self._elapsed_at: float | None = None  # when that was so; None: the crawl may not have gone on since then

    def begin_again(self) -> None:
        """Note that the crawl goes on after an end: a coordinator may have heard later of nodes that are gone."""
        for row in self._rows.values():
            row.told = True
        self._elapsed_at = None

    def heard(self, node: bytes, report: CrawlStanding, now: float) -> None:
        """Take a member's report."""
        known = self._rows.get(node)
        # Where the crawl does not run yet, or any more, a node has no figures to tell.
        counters = report.counters or (known.counters if known is not None else {})
        if report.knows:
            self._rows[node] = _NodeRow(
                now, counters, report.waiting, obstacle_in(report.obstacle), tuple(map(obstacle_of, report.awaited))
            )
        while len(self._rows) > ROWS_MAX:
            del self._rows[next(iter(self._rows))]

    def hear_of(self, rows: Iterable[GoneRow], now: float) -> None:
        """Take what the coordinator tells of nodes; what they have said themselves counts more if it is newer."""
        for row in rows:
            heard_at, known = now - row.heard_ms / 1000, self._rows.get(row.node)
            if known is None or (known.told and known.heard_at < heard_at):
                self._rows[row.node] = _NodeRow(heard_at, row.counters, {}, None, told=True)

    def elapsed_s(self, now: float) -> float:
        """How long the crawl has gone on: the most that a node has counted, and further by the coordinator's clock.

        Who has counted most may be gone.
        """
        passed_s = 0.0 if self._elapsed_at is None else max(0.0, now - self._elapsed_at)
        counted_s = max((row.counters.get("seconds", 0.0) for row in self._rows.values()), default=0.0)
        self._elapsed_s, self._elapsed_at = max(self._elapsed_s + passed_s, counted_s), now
        return self._elapsed_s

    def told(self, own: bytes, members: Iterable[bytes], now: float) -> tuple[GoneRow, ...]:
        """The rows for those that may coordinate next: the coordinator's own, and those of nodes that are gone."""
        here = set(members) - {own}
        rows = [(node, row) for node, row in self._rows.items() if node not in here]
        rows.sort(key=lambda each: each[1].heard_at, reverse=True)
        told = [(node, row.heard_at, _counted(row.counters)) for node, row in rows[:NODES_TOLD_MAX]]
        for node, _, counters in told:
            if node == own:
                counters["seconds"] = max(counters.get("seconds", 0.0), self._elapsed_s)
        return tuple(GoneRow(node, _ms(now - heard_at), counters) for node, heard_at, counters in told)

    def totals(self, members: Iterable[bytes]) -> dict[str, int | float]:
        """The counters of all nodes, added up; `seconds` is the longest that one of them has run."""
        here, told = set(members), []
        for node, row in self._rows.items():
            gone = () if node in here else _OF_NOW
            told.append({name: count for name, count in row.counters.items() if name not in gone})
        return added_up(told)

    def obstacle(self, record: CrawlRecord, members: Iterable[bytes], now: float) -> Obstacle | None:
        """The first reason why nothing moves, at any node; None while something moves."""
        if record.state in (PAUSED, STOPPING):
            return Obstacle(Cause.PAUSED if record.state == PAUSED else Cause.STOPPING)
        rows = {node: self._rows[node] for node in members if node in self._rows}
        found = [
            Obstacle(Cause.SILENT, node.hex(), for_s=now - row.heard_at)
            for node, row in rows.items()
            if now - row.heard_at >= SILENT_S
        ]
        moving = any(not row.obstacle and _may_move(row) for row in rows.values() if now - row.heard_at < SILENT_S)
        found += _merged(row.obstacle for row in rows.values() if row.obstacle is not None)
        self._since = {(each.cause, each.about): self._since.get((each.cause, each.about), now) for each in found}
        lasting = [self._timed(each, now) for each in found]
        lasting = [each for each in lasting if each.cause not in _PASSING or (each.for_s or 0.0) >= PACE_S]
        return None if moving else first(lasting)

    def figures(self, record: CrawlRecord, members: Sequence[bytes], now: float, *, nodes_max: int) -> CrawlFigures:
        """The answer to `crawl_progress`."""
        here = set(members)
        obstacle = self.obstacle(record, members, now)
        waiting = Counter[str]()
        heard = [self._rows[node] for node in here & self._rows.keys()]
        for row in heard:
            waiting.update(row.waiting)
        oldest = min((row.heard_at for row in heard), default=now)
        lost = {gone.about: gone for gone in _merged(gone for row in heard for gone in row.awaited)}
        told = [
            ProgressRow(
                node,
                _ms(now - row.heard_at),
                node in here,
                row.counters,
                row.waiting if node in here else {},
                row_of(row.obstacle if node in here else lost.get(node.hex())),
            )
            for node, row in sorted(self._rows.items())[:nodes_max]
        ]
        return CrawlFigures(
            self.totals(members),
            dict(waiting),
            heard_ms=_ms(now - oldest),
            obstacle=row_of(obstacle),
            nodes=tuple(told),
            nodes_total=len(self._rows),
        )

    def _timed(self, obstacle: Obstacle, now: float) -> Obstacle:
        if obstacle.for_s is not None:
            return obstacle
        return obstacle._replace(for_s=now - self._since[obstacle.cause, obstacle.about])


def added_up(nodes: Iterable[Mapping[str, int | float]]) -> dict[str, int | float]:
    """The counters of several nodes as those of all; `seconds` is the longest that one of them has run.

    What one node has released is taken off here where another one counted it.
    """
    found, seconds, rows = Counter[str](), 0.0, list(nodes)
    for counters in rows:
        found.update({name: count for name, count in counters.items() if name not in _NOT_ADDED})
        seconds = max(seconds, counters.get("seconds", 0.0))
    # A page that a node had fetched anew was another's, and is here twice only where that one's figures are: they may
    # be unknown, as where all nodes were started anew and some did not come back.
    pages = found["pages"]
    twice = sum(int(min(row.get("pages_reopened", 0), pages - row.get("pages", 0))) for row in rows)
    found["pages"] = max(0, pages - twice)
    return dict(sorted(told(found).items())) | {"seconds": seconds}


def _may_move(row: _NodeRow) -> bool:
    """Whether a node has something under way, or something that it may start."""
    return row.counters.get("in_flight", 0) > 0 or row.counters.get("queued", 0) > 0


def _merged(obstacles: Iterable[Obstacle]) -> list[Obstacle]:
    """Those with one cause about one thing as one: what waits for it added up, and the shortest time left."""
    found: dict[tuple[str, str], Obstacle] = {}
    for each in obstacles:
        known = found.get((each.cause, each.about))
        if known is None:
            found[each.cause, each.about] = each
        else:
            left = [left_s for left_s in (known.left_s, each.left_s) if left_s is not None]
            found[each.cause, each.about] = known._replace(
                number=known.number + each.number, left_s=min(left, default=None), detail=known.detail or each.detail
            )
    return list(found.values())


def _counted(counters: Mapping[str, int | float]) -> dict[str, int | float]:
    """Those that are not 0: they are told in every wave."""
    return {name: count for name, count in counters.items() if count}


def _ms(seconds: float) -> int:
    return max(0, round(1000 * seconds))
