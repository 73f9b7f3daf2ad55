"""Where a URL or a host belongs, and why it was fetched or not: what the nodes say that have to do with it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from dhtcrawl.crawl.explain import explain
from dhtcrawl.keyspace import host_key, placement
from dhtcrawl.node.answers.common import Answers, plain
from dhtcrawl.node.explain_live import host_here, live_facts
from dhtcrawl.rpc.membership.view import Member
from dhtcrawl.rpc.peers.ask_all import answers_of
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.spec import typed_url
from dhtcrawl.standing import HostCondition
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.calls.explain import ExplainHost, ExplainUrl, Explanation
from dhtcrawl.units import format_address
from dhtcrawl.web.api import ApiError

ASKERS_MAX: Final = 32  # nodes that are asked how a host stands with them, or whether they left a link out
_OF_PAGES: Final = ("status", "final_url", "fetched_at", "error", "archive", "links")  # in the answer to `why`


class PlaceAnswers(Answers):
    """The part of `NodeApi` that is about URLs and hosts."""

    def serve(self, registry: CallRegistry) -> None:
        """Register the handlers of what other nodes ask for their own answers."""
        registry.serve(ExplainUrl, self._on_why)
        registry.serve(ExplainHost, self._on_explain_host)

    async def locate(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        view, replicas = self._swarm.gossip.view, self._swarm.node.config.swarm.replicas
        found = []
        for record in self.asked(crawl_id):
            key = record.spec.key_of(url)
            holders = [_place(member) for member in view.closest(placement(key), replicas + 1)]
            owner = holders[0] if holders else None
            found.append({"crawl": record.crawl_id.hex(), "key": key.hex(), "owner": owner, "backups": holders[1:]})
        return found

    async def why(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        answers = []
        for record in self.asked(crawl_id):
            owner = self._swarm.gossip.view.owner(placement(record.spec.key_of(url)))
            node = self._swarm.id if owner is None else owner.id
            value = await self._swarm.peers.call(node, ExplainUrl(record.crawl_id, url))
            if isinstance(value, Failure):
                raise ApiError(503, f"the owner of {url}, {node.hex()[:12]}, does not answer: {value.detail}")
            answer = await self._or_skipped(record.crawl_id, url, node, dict(value.extra))
            answer = await self._with_page(record, url, answer)
            answers.append(await self._told_of(record, answer))
        return answers

    async def _or_skipped(self, crawl: bytes, url: str, owner: bytes, answer: dict[str, Any]) -> dict[str, Any]:
        """What the owner of a URL says, or a node that left out a link to it, of which no owner is told."""
        if answer.get("state") != "unknown":
            return answer
        nodes = [node for node in self._swarm.gossip.view.ids if node != owner]
        others = await answers_of(self._swarm.peers, nodes[:ASKERS_MAX], ExplainUrl(crawl, url))
        skipped = (dict(other.extra) for other in others.values() if other.extra.get("state") == "skipped")
        return next(skipped, answer)

    async def _with_page(self, record: CrawlRecord, url: str, answer: dict[str, Any]) -> dict[str, Any]:
        """What the owner of a URL says, with what its page is, from the node that has it."""
        members = {member.id.hex(): member.id for member in self._swarm.gossip.view.members}
        place = answer.get("page_at")
        node = members.get(place) if isinstance(place, str) else None
        if isinstance(place, str) and node is None and place not in record.heirs:
            return answer | {"page_gone": True}
        value = None if node is None else await self._swarm.peers.call(node, ExplainUrl(record.crawl_id, url))
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
        told: dict[str, Any] = plain(answer | {"crawl_standing": standing})
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
        told_by_gatekeeper = {name: plain(each) for name, each in value.extra.items() if name != "here"}
        first = _first_state(states)
        return {"host": host, **first, "gatekeeper": node.hex(), **told_by_gatekeeper, "nodes": plain(here)}

    async def _told_by_askers(self, host: str, gatekeeper: bytes, line: object) -> dict[bytes, Mapping[str, Any]]:
        """What some nodes say: first those that have the host or wait for it, as far as the gatekeeper names them."""
        named: list[Any] = []
        if isinstance(line, Mapping):
            waiting = line.get("waiting")
            named = [line.get("holder"), *(waiting if isinstance(waiting, list | tuple) else ())]
        members = {member.id.hex(): member.id for member in self._swarm.gossip.view.members}
        first = [members[name] for name in named if isinstance(name, str) and name in members]
        nodes = [node for node in dict.fromkeys([*first, self._swarm.id, *members.values()]) if node != gatekeeper]
        answers = await answers_of(self._swarm.peers, nodes[:ASKERS_MAX], ExplainHost(host))
        return {node: answer.extra for node, answer in answers.items()}

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


_WORST_FIRST = (HostCondition.DEAD, HostCondition.SNOOZED, HostCondition.ASLEEP, HostCondition.WAITING)


def _first_state(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of a host at the node where most keeps it back, and that in words."""
    for state in _WORST_FIRST:
        for row in rows:
            if row.get("state") == state:
                return {name: row[name] for name in ("state", "text", "left_s") if name in row}
    return {"state": HostCondition.READY.value} if rows else {"state": "no crawl here has a task for it"}


def _place(member: Member) -> dict[str, Any]:
    return {"node": member.id.hex(), "address": format_address(member.address), "state": member.state.value}
