"""What a node says of itself and of the members that it knows, how it is stopped, and its metrics."""

from __future__ import annotations

import resource
from collections import Counter
from typing import Any, Final

from dhtcrawl import __version__
from dhtcrawl.node.answers.common import Answers
from dhtcrawl.node.failed_crawls import FiguresWithCauses
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.standing import out_of_contact
from dhtcrawl.storage.store.outcomes import ERROR_KINDS
from dhtcrawl.units import format_address

# Of `CrawlCounters`, what is told under the same name: summed over the nodes it is what the API tells of all crawls.
_COUNTED: Final = (
    "pages", "pages_ok", "pages_reopened", "fetches", "refetches", "retried", "redirects", "dead", "body_bytes",
    "urls_seen", "robots_fetches", "probes", "policy_faults",
)  # fmt: skip

_UNKNOWN: Final = "unknown"  # in place of a secret's name


class NodeAnswers(Answers):
    """The part of `NodeApi` that is about the node itself."""

    def __init__(self, swarm: SwarmNode, figures: FiguresWithCauses) -> None:
        super().__init__(swarm, figures)
        self._started_at = swarm.node.ports.clock.monotonic()

    async def status(self) -> dict[str, Any]:
        swarm = self._swarm
        states = Counter(member.state.value for member in swarm.gossip.view.members)
        lost = swarm.lost_contact()
        return {
            "node": swarm.id.hex(),
            "state": swarm.state,
            "version": __version__,
            "address": format_address(swarm.address),
            "uptime_s": round(swarm.node.ports.clock.monotonic() - self._started_at, 3),
            "members": dict(states),
            "secret": self._secret(),
            "secrets": self._secrets(),
            "contact": None if lost is None else out_of_contact(*lost),
            "crawls": len(swarm.runs),
            "pages_undercopied": sum(counters.pages_undercopied for counters in swarm.runs.counters),
            "storage_sync": swarm.node.config.storage.sync,
            "waiting": [
                {"crawl": row["crawl"], "text": row["standing"]["text"]}
                for row in await self.rows_of([record for record in swarm.crawls if not record.ended])
                if row["standing"]["text"]
            ],
        }

    def _secret(self) -> str | None:
        sealed = self._swarm.routing.plane.sealed
        return None if sealed is None else sealed.sealer.used

    def _secrets(self) -> dict[str, int]:
        sealed = self._swarm.routing.plane.sealed
        if sealed is None:
            return {}
        told = sealed.sealer.secrets_used() | {self._swarm.id: sealed.sealer.used}
        # Who was not heard yet may use any, also one that is about to be dropped.
        used = Counter(told.get(member.id, _UNKNOWN) for member in self._swarm.gossip.view.members)
        return {name: used[name] for name in (*sealed.sealer.accepted, *used)}

    async def peers(self) -> list[dict[str, Any]]:
        swarm = self._swarm
        sealed = swarm.routing.plane.sealed
        secrets = {} if sealed is None else sealed.sealer.secrets_used()
        rows = [
            {
                "node": member.id.hex(),
                "address": format_address(member.address),
                "state": member.state.value,
                "self": member.id == swarm.id,
                "rtt_s": None if member.id == swarm.id else swarm.rtt_s(member.address),
                "gone_s": None,
                "secret": self._secret() if member.id == swarm.id else secrets.get(member.id),
                **self._breaches(member.address[0]),
            }
            for member in swarm.gossip.view.members
        ]
        gone = swarm.gossip.members.gone(swarm.node.ports.clock.monotonic())
        return rows + [
            {
                "node": record.id.hex(),
                "address": format_address(record.address),
                "state": "left" if record.state is NodeState.LEFT else "gone",
                "self": False,
                "rtt_s": None,
                "gone_s": round(gone_s, 3),
                "secret": None,
                **self._breaches(record.address[0]),
            }
            for record, gone_s in gone
            if record.id not in swarm.gossip.view.ids
        ]

    def _breaches(self, host: str) -> dict[str, Any]:
        count, left_s = self._swarm.breaches(host)
        return {"breaches": count, "paused_s": round(left_s, 3)}

    async def leave(self) -> dict[str, Any]:
        alone = not any(member.id != self._swarm.id and member.owns for member in self._swarm.gossip.view.members)
        self._swarm.leave()
        await self._swarm.over.wait()
        return {"handed_over": self._swarm.handed.pushed, "left": self._swarm.handed.refused, "alone": alone}

    async def drain(self) -> dict[str, Any]:
        return {"drained": await self._swarm.drain()}

    async def shutdown(self) -> dict[str, Any]:
        self._swarm.shutdown()
        return {}

    def metrics(self) -> dict[str, float]:
        swarm = self._swarm
        found: dict[str, float] = {}
        for state in MemberState:
            count = sum(member.state is state for member in swarm.gossip.view.members)
            found[f'members{{state="{state.value}"}}'] = count
        totals: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        kinds: Counter[str] = Counter()
        for counters in swarm.runs.counters:
            totals.update({name: getattr(counters, name) for name in _COUNTED} | {"retried": counters.retried_in_all})
            kinds.update(counters.kinds)
        totals["politeness_violations"] = swarm.gate.book.violations
        totals["politeness_exceptions"] = swarm.gate.exceptions
        found |= {f"{name}_total": float(totals[name]) for name in sorted(totals)}
        # Each kind from the start, as Prometheus advises: no rate shows the first error of a series that it begins.
        found |= {f'errors_total{{kind="{kind}"}}': float(kinds[kind]) for kind in ERROR_KINDS}
        found["queued"] = sum(len(run.parts.frontier) for _, run in swarm.runs)
        found["in_flight"] = sum(run.parts.frontier.in_flight for _, run in swarm.runs)
        found["uptime_seconds"] = swarm.node.ports.clock.monotonic() - self._started_at
        found["crawls_running"] = len(swarm.runs)
        found["pages_undercopied"] = sum(counters.pages_undercopied for counters in swarm.runs.counters)
        found["links_taken_total"] = swarm.records.inbox.links_taken
        found["records_taken_total"] = swarm.records.inbox.records_taken
        found["records_sent_total"] = swarm.records.replicator.records_sent
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found["process_cpu_seconds_total"] = usage.ru_utime + usage.ru_stime
        return found
