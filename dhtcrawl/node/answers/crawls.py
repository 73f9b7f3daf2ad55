"""What a node says of crawls, and what it does to them for people."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

from dhtcrawl.crawl.budget import LIMIT_OF, is_raised
from dhtcrawl.errors import ConfigError
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.node.answers.common import SEEDS_SHOWN, Answers, state_of
from dhtcrawl.node.explain_live import hosts_here
from dhtcrawl.policy.registry import check as check_policy
from dhtcrawl.policy.registry import check_needs, is_own
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.spec import NONCE_BYTES, CrawlSpec
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    FINAL,
    OWN_BYTES,
    PAUSED,
    RUNNING,
    STOPPED,
    STOPPING,
    CrawlRecord,
    changed,
    has_room,
    new_record,
    said_again,
    with_settings,
)
from dhtcrawl.swarm.calls.lifecycle import RELEASE, WISH_ERROR_CHARS_MAX, PassWish, WishDone
from dhtcrawl.swarm.lifecycle.crawl_records import CRAWLS_MAX
from dhtcrawl.units import format_address
from dhtcrawl.web.api import Action, ApiError, Decision, changes_in


class CrawlAnswers(Answers):
    """The part of `NodeApi` that is about crawls."""

    def serve_wishes(self, registry: CallRegistry) -> None:
        """Register the handler of what people told other nodes."""
        registry.serve(PassWish, self._on_wish)

    async def crawls(self, ended_max: int | None = None) -> list[dict[str, Any]]:
        records = list(self._swarm.crawls)
        if ended_max is not None:
            ended = [record for record in records if record.ended]
            records = [record for record in records if not record.ended] + ended[max(0, len(ended) - ended_max) :]
        return await self.rows_of(records)

    async def submit(self, spec: CrawlSpec) -> dict[str, Any]:
        if not self._swarm.ready.is_set():
            raise ApiError(503, "the node has not joined yet; try again in a moment")
        if len(self._swarm.crawls.ids()) >= CRAWLS_MAX:
            raise ApiError(
                409,
                f"{CRAWLS_MAX:,} crawls are known here, and no node of the swarm would take a further one; have each"
                " node forget some that have ended, while it does not run: dhtcrawl forget CRAWL",
            )
        self._check_own_policy(spec)
        ports = self._swarm.node.ports
        record = new_record(spec, ports.rng.randbytes(NONCE_BYTES), ports.key)
        if not has_room(record, OWN_BYTES):
            raise ApiError(400, f"{_too_many(spec)} are too many for one crawl of a swarm; split them into several")
        await self._swarm.crawls.publish(record)
        return {"crawl": record.crawl_id.hex()}

    def _check_own_policy(self, spec: CrawlSpec) -> None:
        name, allowed = spec.settings.policy, self._swarm.node.config.node.allowed_policies
        if is_own(name):
            try:
                check_policy(name, spec.settings.policy_options, allowed)
                check_needs(name, spec.settings.policy_options, allowed)
            except ConfigError as error:
                raise ApiError(422, f"node {self._swarm.id.hex()[:12]}: {error}") from error

    async def crawl(self, crawl_id: bytes) -> dict[str, Any]:
        record = self.record_of(crawl_id)
        coordinator = self._swarm.gossip.view.owner(crawl_key(crawl_id))
        return {
            "crawl": crawl_id.hex(),
            "spec": {
                "seeds": list(record.spec.seeds),
                "settings": dataclasses.asdict(record.settings),
                "searches": record.spec.searches.plain(),
                "rules": record.spec.rules,
            },
            "seeds": record.spec.all_seeds[:SEEDS_SHOWN],
            "seeds_total": len(record.spec.all_seeds),
            "state": state_of(record),
            "ended": record.ended,
            "coordinator": None if coordinator is None else coordinator.id.hex(),
            "plan": self._plan_of(crawl_id),
            **await self._figures.of(record, nodes=True),
        }

    def _plan_of(self, crawl_id: bytes) -> dict[str, Any] | None:
        run = self._swarm.runs.of(crawl_id)
        plans = None if run is None else run.assignments.plans
        current = None if plans is None else plans.current
        if plans is None or current is None:
            return None
        epoch, made = current
        shares = {node.hex(): round(share, 4) for node, share in plans.shares.items()}
        return {"epoch": epoch, **made._asdict(), "shares": shares}

    async def hosts(self, crawl_id: bytes) -> dict[str, Any]:
        run = self._swarm.runs.of(self.record_of(crawl_id).crawl_id)
        told = {"node": self._swarm.id.hex(), "running": run is not None}
        if run is None:
            return told | {"hosts": [], "states": {}, "total": 0, "looked_at": 0}
        return told | hosts_here(run.parts, self._swarm.gate.book, self._swarm.node.ports.clock)

    async def control(self, crawl_id: bytes, action: Action, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        record = self.record_of(crawl_id)
        node = self._swarm.crawls.authority.in_charge(record)
        if node is None or node == self._swarm.id:
            return await self._change(record, action, settings)
        if not self._swarm.crawls.authority.passed_on:
            raise self._elsewhere(record, node)
        done = await self._swarm.peers.call(
            node, PassWish(crawl_id, action, "" if settings is None else json.dumps(settings))
        )
        if isinstance(done, Failure):
            raise ApiError(503, f"{self._elsewhere(record, node)}; it does not answer: {done.detail}")
        if done.error:
            raise ApiError(409, done.error)
        return {"crawl": crawl_id.hex(), "state": done.state}

    async def _on_wish(self, _asker: bytes, wish: PassWish) -> WishDone:
        """Do what a person told another node of this machine, and could as well have told this one."""
        try:
            record = self.record_of(wish.crawl)
            node = self._swarm.crawls.authority.in_charge(record)
            if not self._swarm.crawls.authority.passed_on or node not in (None, self._swarm.id):
                raise self._elsewhere(record, self._swarm.id if node is None else node)
            settings = changes_in({"settings": json.loads(wish.settings)}) if wish.settings else None
            done = await self._change(record, cast(Action, wish.action), settings)
        except (ApiError, ValueError) as error:
            return WishDone(error=str(error)[:WISH_ERROR_CHARS_MAX])
        return WishDone(done["state"])

    async def _change(self, record: CrawlRecord, action: Action, settings: dict[str, Any] | None) -> dict[str, Any]:
        if settings or (action == "resume" and record.ended):
            return await self._resume_with(record, settings or {})
        if record.ended:
            raise ApiError(409, f"crawl {record.crawl_id.hex()[:12]} has ended: {record.ended}")
        state = {"pause": PAUSED, "resume": RUNNING, "stop": STOPPING}[action]
        after = changed(record, state, cause=STOPPED if action == "stop" else "")
        merged = await self._swarm.crawls.publish(after)
        return {"crawl": record.crawl_id.hex(), "state": state_of(merged)}

    def _elsewhere(self, record: CrawlRecord, node: bytes) -> ApiError:
        there = next((member for member in self._swarm.gossip.view.members if member.id == node), None)
        crawl, name = record.crawl_id.hex()[:12], node.hex()[:12]
        at = "" if there is None else f" at {format_address(there.address)}"
        why = "was submitted at" if record.author is not None and record.author.node_id == node else "is coordinated by"
        return ApiError(409, f"crawl {crawl} {why} node {name}{at}, which alone may change it; run this command there")

    async def _resume_with(self, record: CrawlRecord, settings: dict[str, Any]) -> dict[str, Any]:
        after = with_settings(record, dataclasses.replace(record.settings, **settings))
        if record.ended and not is_raised(record.ended, record.settings, after.settings):
            raise ApiError(409, f"crawl {record.crawl_id.hex()[:12]} has ended: {_how_to_go_on(record)}")
        goes_on = changed(after, RUNNING)
        for ended in _raised(record, after):
            # The end may be on its way already, by a coordinator that has not heard of this.
            stopping = changed(record, STOPPING, cause=ended)
            goes_on = said_again(goes_on, changed(stopping, STOPPING, cause=ended, ended=ended))
        merged = await self._swarm.crawls.publish(goes_on)
        return {"crawl": record.crawl_id.hex(), "state": state_of(merged)}

    async def given_up(self, crawl_id: bytes) -> dict[str, Any]:
        listed = await self._swarm.given_up.listed(self.record_of(crawl_id).crawl_id)
        rows = [{"url": r.url, "depth": r.depth, "attempts": r.attempts, "detail": r.detail} for r in listed.tasks]
        return {"tasks": rows, "silent": [node.hex() for node in listed.silent], "cut": listed.cut}

    async def decide(self, crawl_id: bytes, decision: Decision, urls: list[str] | None) -> dict[str, Any]:
        record = self.record_of(crawl_id)
        if decision == RELEASE and record.ended and record.ended not in FINAL:
            raise ApiError(409, f"crawl {crawl_id.hex()[:12]} has ended: {record.ended}; nothing more of it is fetched")
        decided = await self._swarm.given_up.decide(crawl_id, decision, urls)
        return {"count": decided.tasks, "silent": [node.hex() for node in decided.silent]}


def _too_many(spec: CrawlSpec) -> str:
    """What a crawl has too many of; with it travel the tasks of templates, not their pages of results."""
    tasks = len(spec.searches.tasks)
    return f"{tasks} tasks of templates" if tasks > len(spec.seeds) else f"{len(spec.seeds)} seeds"


def _raised(before: CrawlRecord, after: CrawlRecord) -> list[str]:
    """The words of the ends that limits of a crawl which goes on would have brought, and are higher now."""
    if before.ended:
        return []
    return [
        ended
        for ended, name in LIMIT_OF.items()
        if getattr(before.settings, name) and is_raised(ended, before.settings, after.settings)
    ]


def _how_to_go_on(record: CrawlRecord) -> str:
    if record.ended == COMPLETE and record.settings.depth >= 0:
        return f"{COMPLETE} within --depth {record.settings.depth}; raise it to go on"
    name = LIMIT_OF.get(record.ended)
    if name is None:
        return record.ended
    return f"{record.ended} of {getattr(record.settings, name):g}; raise it to go on"
