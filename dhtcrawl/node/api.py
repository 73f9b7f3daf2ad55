"""`NodeApi` of a node of a swarm: what the admin HTTP and the commands can see and do."""

from __future__ import annotations

import dataclasses
import resource
from collections import Counter
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, TypeVar

from dhtcrawl import __version__
from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.budget import LIMIT_OF, is_raised
from dhtcrawl.crawl.explain import explain
from dhtcrawl.keyspace import crawl_key, host_key, placement
from dhtcrawl.node.crawl_figures import CrawlFiguresAsked
from dhtcrawl.node.explain_live import host_here, hosts_here, live_facts
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.view import Member, MemberState
from dhtcrawl.rpc.peers.ask_all import answers_of, ask_all
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.spec import NONCE_BYTES, CrawlSpec, typed_url
from dhtcrawl.standing import HostCondition
from dhtcrawl.storage.collect.facts import Unreachable
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    PAUSED,
    RUNNING,
    STOPPED,
    STOPPING,
    CrawlRecord,
    changed,
    fits_the_wire,
    to_wire,
    with_settings,
)
from dhtcrawl.storage.store.outcomes import ERROR_KINDS
from dhtcrawl.swarm.bodies.peer_source import PeerSource
from dhtcrawl.swarm.calls.bodies import ExportFacts, NodeFigures
from dhtcrawl.swarm.calls.explain import ExplainHost, ExplainUrl, Explanation
from dhtcrawl.swarm.calls.lifecycle import RELEASE
from dhtcrawl.swarm.lifecycle.reopen_check import FINAL
from dhtcrawl.units import format_address
from dhtcrawl.web.api import Action, ApiError, Decision, Row

SEEDS_SHOWN = 3
_OF_PAGES = ("status", "final_url", "fetched_at", "error", "archive")  # in the answer to `why`
ASKERS_MAX = 32  # nodes that are asked how a host stands with them
T = TypeVar("T")


class Api:
    """Answers the admin HTTP of one node, asking other nodes where it must."""

    def __init__(self, swarm: SwarmNode, registry: CallRegistry) -> None:
        self._swarm = swarm
        self._started_at = swarm.node.ports.clock.monotonic()
        self._figures = CrawlFiguresAsked(lambda: swarm.peers, swarm.node.ports.clock)
        registry.serve(ExplainUrl, self._on_why)
        registry.serve(ExplainHost, self._on_explain_host)

    # The node

    async def status(self) -> dict[str, Any]:
        swarm = self._swarm
        states = Counter(member.state.value for member in swarm.gossip.view.members)
        return {
            "node": swarm.id.hex(),
            "state": swarm.state,
            "version": __version__,
            "address": format_address(swarm.address),
            "uptime_s": round(swarm.node.ports.clock.monotonic() - self._started_at, 3),
            "members": dict(states),
            "crawls": len(swarm.runs),
            "pages_undercopied": sum(run.parts.counters.pages_undercopied for _, run in swarm.runs),
            "storage_sync": swarm.node.config.storage.sync,
            "waiting": [
                {"crawl": row["crawl"], "text": row["standing"]["text"]}
                for row in await self._rows([record for record in swarm.crawls if not record.ended])
                if row["standing"]["text"]
            ],
        }

    async def peers(self) -> list[dict[str, Any]]:
        swarm = self._swarm
        rows = [
            {
                "node": member.id.hex(),
                "address": format_address(member.address),
                "state": member.state.value,
                "self": member.id == swarm.id,
                "rtt_s": None if member.id == swarm.id else swarm.rtt_s(member.address),
                "gone_s": None,
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
            }
            for record, gone_s in gone
            if record.id not in swarm.gossip.view.ids
        ]

    async def leave(self) -> dict[str, Any]:
        alone = not any(
            member.id != self._swarm.id and member.state is not MemberState.JOINING
            for member in self._swarm.gossip.view.members
        )
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
        totals: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for _, run in swarm.runs:
            counters = run.parts.counters
            for name in ("pages", "pages_ok", "fetches", "refetches", "body_bytes", "urls_seen", "robots_fetches"):
                totals[name] += getattr(counters, name)
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
        found["pages_undercopied"] = sum(run.parts.counters.pages_undercopied for _, run in swarm.runs)
        found["links_taken_total"] = swarm.records.inbox.links_taken
        found["records_taken_total"] = swarm.records.inbox.records_taken
        found["records_sent_total"] = swarm.records.replicator.records_sent
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found["process_cpu_seconds_total"] = usage.ru_utime + usage.ru_stime
        return found

    # Crawls

    async def crawls(self, ended_max: int | None = None) -> list[dict[str, Any]]:
        records = list(self._swarm.crawls)
        if ended_max is not None:
            ended = [record for record in records if record.ended]
            records = [record for record in records if not record.ended] + ended[max(0, len(ended) - ended_max) :]
        return await self._rows(records)

    async def submit(self, seeds: list[str], settings: dict[str, Any]) -> dict[str, Any]:
        if not self._swarm.ready.is_set():
            raise ApiError(503, "the node has not joined yet; try again in a moment")
        values: dict[str, Any] = {
            n: tuple(value) if isinstance(value, list) else value for n, value in settings.items()
        }
        spec = CrawlSpec(tuple(seeds), CrawlSettings(**values))
        nonce = self._swarm.node.ports.rng.randbytes(NONCE_BYTES)
        record = CrawlRecord(spec.crawl_id(nonce), spec, nonce)
        if not fits_the_wire(record):
            raise ApiError(
                400, f"{len(spec.seeds)} seeds are too many for one crawl of a swarm; split them into several"
            )
        await self._swarm.crawls.publish(record)
        return {"crawl": record.crawl_id.hex()}

    async def crawl(self, crawl_id: bytes) -> dict[str, Any]:
        record = self._record(crawl_id)
        coordinator = self._swarm.gossip.view.owner(crawl_key(crawl_id))
        return {
            "crawl": crawl_id.hex(),
            "spec": {"seeds": list(record.spec.seeds), "settings": dataclasses.asdict(record.settings)},
            "state": _state(record),
            "ended": record.ended,
            "coordinator": None if coordinator is None else coordinator.id.hex(),
            **await self._figures.of(record, nodes=True),
        }

    async def hosts(self, crawl_id: bytes) -> dict[str, Any]:
        run = self._swarm.runs.of(self._record(crawl_id).crawl_id)
        told = {"node": self._swarm.id.hex(), "running": run is not None}
        if run is None:
            return told | {"hosts": [], "states": {}, "total": 0, "looked_at": 0}
        return told | hosts_here(run.parts, self._swarm.gate.book, self._swarm.node.ports.clock)

    async def control(self, crawl_id: bytes, action: Action, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        record = self._record(crawl_id)
        if settings or (action == "resume" and record.ended):
            return await self._resume_with(record, settings or {})
        if record.ended:
            raise ApiError(409, f"crawl {crawl_id.hex()[:12]} has ended: {record.ended}")
        state = {"pause": PAUSED, "resume": RUNNING, "stop": STOPPING}[action]
        after = changed(record, state, cause=STOPPED if action == "stop" else "")
        merged = await self._swarm.crawls.publish(after)
        return {"crawl": crawl_id.hex(), "state": _state(merged)}

    async def _resume_with(self, record: CrawlRecord, settings: dict[str, Any]) -> dict[str, Any]:
        after = with_settings(record, dataclasses.replace(record.settings, **settings))
        if record.ended and not is_raised(record.ended, record.settings, after.settings):
            raise ApiError(409, f"crawl {record.crawl_id.hex()[:12]} has ended: {_how_to_go_on(record)}")
        merged = await self._swarm.crawls.publish(changed(after, RUNNING))
        return {"crawl": record.crawl_id.hex(), "state": _state(merged)}

    async def given_up(self, crawl_id: bytes) -> dict[str, Any]:
        listed = await self._swarm.given_up.listed(self._record(crawl_id).crawl_id)
        rows = [{"url": r.url, "depth": r.depth, "attempts": r.attempts, "detail": r.detail} for r in listed.tasks]
        return {"tasks": rows, "silent": [node.hex() for node in listed.silent], "cut": listed.cut}

    async def decide(self, crawl_id: bytes, decision: Decision, urls: list[str] | None) -> dict[str, Any]:
        record = self._record(crawl_id)
        if decision == RELEASE and record.ended and record.ended not in FINAL:
            raise ApiError(409, f"crawl {crawl_id.hex()[:12]} has ended: {record.ended}; nothing more of it is fetched")
        decided = await self._swarm.given_up.decide(crawl_id, decision, urls)
        return {"count": decided.tasks, "silent": [node.hex() for node in decided.silent]}

    # Where things are

    async def locate(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        view, replicas = self._swarm.gossip.view, self._swarm.node.config.swarm.replicas
        found = []
        for record in self._asked(crawl_id):
            key = record.spec.key_of(url)
            holders = [_place(member) for member in view.closest(placement(key), replicas + 1)]
            owner = holders[0] if holders else None
            found.append({"crawl": record.crawl_id.hex(), "key": key.hex(), "owner": owner, "backups": holders[1:]})
        return found

    async def why(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        answers = []
        for record in self._asked(crawl_id):
            owner = self._swarm.gossip.view.owner(placement(record.spec.key_of(url)))
            node = self._swarm.id if owner is None else owner.id
            value = await self._swarm.peers.call(node, ExplainUrl(record.crawl_id, url))
            if isinstance(value, Failure):
                raise ApiError(503, f"the owner of {url}, {node.hex()[:12]}, does not answer: {value.detail}")
            answer = await self._with_page(record.crawl_id, url, dict(value.extra))
            answers.append(await self._told_of(record, answer))
        return answers

    async def _with_page(self, crawl: bytes, url: str, answer: dict[str, Any]) -> dict[str, Any]:
        """What the owner of a URL says, with what its page is, from the node that has it."""
        members = {member.id.hex(): member.id for member in self._swarm.gossip.view.members}
        node = members.get(str(answer.get("page_at")))
        value = None if node is None else await self._swarm.peers.call(node, ExplainUrl(crawl, url))
        if value is None or isinstance(value, Failure):
            return answer
        return answer | {name: value.extra[name] for name in _OF_PAGES if name in value.extra}

    async def _told_of(self, record: CrawlRecord, answer: dict[str, Any]) -> dict[str, Any]:
        """What the owner of a URL says, with how the crawl stands, and when the page was fetched that led to it."""
        standing = (await self._figures.of(record, nodes=False))["standing"]
        referrer = answer.get("referrer")
        if isinstance(referrer, str) and typed_url(referrer) == referrer:
            owner = self._swarm.gossip.view.owner(placement(record.spec.key_of(referrer)))
            node = self._swarm.id if owner is None else owner.id
            value = await self._swarm.peers.call(node, ExplainUrl(record.crawl_id, referrer))
            if not isinstance(value, Failure):
                answer["found_at"] = value.extra.get("fetched_at")
        told: dict[str, Any] = _plain(answer | {"crawl_standing": standing})
        return told

    async def explain_host(self, host: str) -> dict[str, Any]:
        gatekeeper = self._swarm.gossip.view.owner(host_key(host))
        node = self._swarm.id if gatekeeper is None else gatekeeper.id
        value = await self._swarm.peers.call(node, ExplainHost(host))
        if isinstance(value, Failure):
            raise ApiError(503, f"the gatekeeper of {host}, {node.hex()[:12]}, does not answer: {value.detail}")
        told = {node: value.extra}
        told |= await self._told_by_askers(host, node, value.extra.get("as_gatekeeper"))
        here = {by.hex(): extra.get("here") for by, extra in told.items() if extra.get("here")}
        states = [row for row in here.values() if isinstance(row, Mapping)]
        plain = _plain(value.extra)
        plain.pop("here", None)
        return {"host": host, **_first_state(states), "gatekeeper": node.hex(), **plain, "nodes": _plain(here)}

    async def _told_by_askers(self, host: str, gatekeeper: bytes, line: object) -> dict[bytes, Mapping[str, Any]]:
        """What some nodes say: first those that have the host or wait for it, as far as the gatekeeper names them."""
        named: list[Any] = []
        if isinstance(line, Mapping):
            waiting = line.get("waiting")
            named = [line.get("holder"), *(waiting if isinstance(waiting, list | tuple) else ())]
        members = {member.id.hex(): member.id for member in self._swarm.gossip.view.members}
        first = [members[name] for name in named if name in members]
        nodes = [node for node in dict.fromkeys([*first, self._swarm.id, *members.values()]) if node != gatekeeper]
        answers = await answers_of(self._swarm.peers, nodes[:ASKERS_MAX], ExplainHost(host))
        return {node: answer.extra for node, answer in answers.items()}

    # What is gathered

    async def export_record(self, crawl_id: bytes) -> bytes:
        return to_wire(self._record(crawl_id))

    async def export_nodes(self, crawl_id: bytes) -> list[dict[str, Any]]:
        record = self._record(crawl_id)
        members = {member.id.hex(): member for member in self._swarm.gossip.view.members}
        # A participant that left gave its pages to an heir, which is named too.
        named = dict.fromkeys([*(node for node in record.participants if node not in record.adopted), *members])
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

    # Inside

    def _record(self, crawl_id: bytes) -> CrawlRecord:
        record = self._swarm.crawls.get(crawl_id)
        if record is None:
            raise ApiError(404, f"no crawl {crawl_id.hex()[:12]} here; see 'dhtcrawl crawls'")
        return record

    def _asked(self, crawl_id: bytes | None) -> list[CrawlRecord]:
        return list(self._swarm.crawls) if crawl_id is None else [self._record(crawl_id)]

    async def _rows(self, records: list[CrawlRecord]) -> list[dict[str, Any]]:
        async def row(record: CrawlRecord) -> dict[str, Any]:
            return {
                "crawl": record.crawl_id.hex(),
                "state": _state(record),
                "seeds": list(record.spec.seeds[:SEEDS_SHOWN]),
                "seeds_total": len(record.spec.seeds),
                "ended": record.ended,
                **await self._figures.of(record, nodes=False),
            }

        return await ask_all(records, row)

    async def _facts(self, crawl_id: bytes, node: str, member: bool) -> dict[str, Any] | None:
        asked = ExportFacts(crawl_id)
        value = await self._swarm.peers.call(bytes.fromhex(node), asked) if member else None
        reachable = isinstance(value, NodeFigures)
        facts = value if isinstance(value, NodeFigures) else NodeFigures({})
        counters = dict(facts.counters)
        if reachable and not counters and node not in self._record(crawl_id).participants:
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

    # What other nodes ask

    async def _on_why(self, _asker: bytes, args: ExplainUrl) -> Explanation | Refused:
        record = self._swarm.crawls.get(args.crawl)
        if record is None:
            return Refused(UNKNOWN_CRAWL)
        found = await self._swarm.node.committer.submit(partial(explain, crawl=record, url=args.url))
        run = self._swarm.runs.of(args.crawl)
        if run is not None and found["state"] in ("pending", "dead"):
            clock = self._swarm.node.ports.clock
            found |= live_facts(run.parts, record.spec, self._swarm.gate.book, clock, args.url)
        return Explanation.parse(found)

    def _on_explain_host(self, _asker: bytes, args: ExplainHost) -> Explanation:
        gate, clock = self._swarm.gate, self._swarm.node.ports.clock
        here = [host_here(run.parts, gate.book, clock, args.host) for _, run in self._swarm.runs]
        found = [standing for standing in here if standing is not None]
        return Explanation.parse(gate.explain(args.host) | ({"here": found[0]} if found else {}))


async def _answered(node: bytes, answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (Unreachable, BadRow) as error:
        raise ApiError(502, f"{node.hex()[:12]} {error}") from error


_WORST_FIRST = (HostCondition.DEAD, HostCondition.SNOOZED, HostCondition.ASLEEP, HostCondition.WAITING)


def _first_state(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of a host at the node where most keeps it back, and that in words."""
    for state in _WORST_FIRST:
        for row in rows:
            if row.get("state") == state:
                return {name: row[name] for name in ("state", "text", "left_s") if name in row}
    return {"state": HostCondition.READY.value} if rows else {"state": "no crawl here has a task for it"}


def _how_to_go_on(record: CrawlRecord) -> str:
    name = LIMIT_OF.get(record.ended)
    if name is None:
        return record.ended
    return f"{record.ended} of {getattr(record.settings, name):g}; raise it to go on"


def _state(record: CrawlRecord) -> str:
    return "ended" if record.ended else record.state


def _place(member: Member) -> dict[str, Any]:
    return {"node": member.id.hex(), "address": format_address(member.address), "state": member.state.value}


def _plain(value: object) -> Any:
    """A value from the wire in JSON's types."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
