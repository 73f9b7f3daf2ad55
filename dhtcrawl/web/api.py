"""What a node tells and lets be done to it: the port behind the admin HTTP and the commands.

`dhtcrawl.web.admin` serves any `NodeApi`; the node's own stands in the swarm's
room, a fake in the tests. Values are JSON's types with these keys at least;
a client passes over keys it does not know. Ids are hex, addresses
`HOST:PORT`, and what a peer said was checked before it gets here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol

from dhtcrawl.config import all_settings, load
from dhtcrawl.errors import ConfigError, UsageError
from dhtcrawl.policy.registry import check as check_policy
from dhtcrawl.policy.registry import check_needs, is_own
from dhtcrawl.searches import read_searches
from dhtcrawl.spec import CHANGEABLE, RULES_CHARS_MAX, CrawlSpec, make_spec, typed_url

Action = Literal["pause", "resume", "stop"]
Decision = Literal["release", "drop"]
Row = tuple[bytes, bytes]  # what stands behind kind and crawl id in a key of the store, and the value


class ApiError(Exception):
    """What was asked cannot be: an HTTP status from 400 on, and one line for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class NodeApi(Protocol):
    """One running node, and through it the swarm.

    Raises:
        ApiError: by every method, where what is asked cannot be.
    """

    async def status(self) -> dict[str, Any]:
        """The node itself.

        node, state (joining, active, leaving), version, address, uptime_s,
        members (a map: state → how many), secret (the name of the one that is used, None in an open swarm), secrets (a
        map: name → how many members use it, for all that are accepted, and "unknown" where there are such: of how many
        no datagram has come yet), contact (None; or that no other node of its swarm answers, and for how long),
        crawls (how many are not ended), storage_sync, waiting (rows: crawl, text: why nothing of it moves).
        """

    async def peers(self) -> list[dict[str, Any]]:
        """All members, this node included, and those that left or are gone, for a day.

        node, address, state (also left, gone), self (bool), rtt_s or None, gone_s (since when) or None,
        secret (the name of the one by which it speaks) or None, breaches (how often nodes at its address
        broke the protocol lately), paused_s (for how long they are not let in for it).
        """

    async def crawls(self, ended_max: int | None = None) -> list[dict[str, Any]]:
        """The crawls this node knows; of those that have ended at most `ended_max`, the ones it heard of last.

        crawl, state, seeds (the first few), seeds_total, ended, counters (of all nodes together), counters_of
        ("swarm"; "this node" where the coordinator does not answer), as_of_s (how old they may be), standing: a map
        of state (running, waiting, paused, stopping, ended), reason (a word of `dhtcrawl.standing`), text, says (the
        text without its times), about, for_s, left_s.
        """

    async def submit(self, spec: CrawlSpec) -> dict[str, Any]:
        """Begin a crawl: crawl (its id). Seeds are canonical; `settings` are those of `CrawlSettings`, all of them."""

    async def crawl(self, crawl_id: bytes) -> dict[str, Any]:
        """One crawl, over the whole swarm.

        crawl, spec (seeds, settings), state (running, paused, stopping,
        ended), ended ("" or why: complete, failed, stopped, or the word of a
        limit, such as "page limit"), counters (those of `CrawlCounters`; of
        errors by kind those that occurred, as errors_404, errors_dns; and
        queued, in_flight), counters_of, as_of_s and standing as of `crawls`,
        per_node (node, state: active, silent or gone, heard_s, counters, text:
        what keeps it back, or what is only there), coordinator (a node id or
        None), waiting_for (lines: what it still takes to end), plan (of this
        node, while the crawl runs here and its policy says what made it:
        epoch, model, error or None, samples, shares: a map of nodes to what
        part of the pages each is to fetch; otherwise None). `counters` have
        how many plans each model made, as `plans_net`, and the sum of their
        errors: see `dhtcrawl.storage.store.plan_counters`.
        """

    async def hosts(self, crawl_id: bytes) -> dict[str, Any]:
        """The hosts of a crawl at this node, 200 at most: those that are kept back first.

        node, running (bool: the crawl runs here), hosts (rows: host, state, and where there are some reason, text,
        says, left_s, queued, in_flight), states (a map: state → how many), total (hosts with tasks in memory),
        looked_at (how many of them were).
        """

    async def control(self, crawl_id: bytes, action: Action, settings: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pause, resume or stop a crawl: crawl, state.

        To resume it with other limits, or another delay, `settings` has some of
        `dhtcrawl.spec.CHANGEABLE`; the others stay. A crawl that a limit ended
        goes on if that limit is higher now.
        """

    async def given_up(self, crawl_id: bytes) -> dict[str, Any]:
        """Tasks that came to nothing, over the whole swarm.

        tasks (url, depth, attempts, detail), silent (nodes that did not
        answer, whose tasks are missing), cut (bool: there are more).
        """

    async def decide(self, crawl_id: bytes, decision: Decision, urls: list[str] | None) -> dict[str, Any]:
        """Have tasks that came to nothing tried again, or drop them; None: all of them.

        count (of those that it was done to), silent (nodes that did not answer).
        """

    async def leave(self) -> dict[str, Any]:
        """Hand everything over, then stop the node.

        handed_over (records), left (records that only this node has and
        others should), alone (bool: the last node, which keeps its store).
        Returns when the rest of the swarm has what it needs.
        """

    async def drain(self) -> dict[str, Any]:
        """Start nothing more; returns once all that was begun is over, and the backups know: drained (bool)."""

    async def shutdown(self) -> dict[str, Any]:
        """Stop the node in order, without handing over; returns at once."""

    async def locate(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        """For each crawl, or the one named: crawl, key, owner and backups (each: node, address, state)."""

    async def why(self, url: str, crawl_id: bytes | None) -> list[dict[str, Any]]:
        """For each crawl, or the one named, where a URL stands: as `dhtcrawl.crawl.explain` says it, of the owner.

        Besides, while the crawl runs: attempts (lines), in_flight (bool), host (state, text, left_s);
        crawl_standing as `standing` of `crawls`; page_gone (True) where the node that has the page is gone.
        """

    async def explain_host(self, host: str) -> dict[str, Any]:
        """A host: state (ready, waiting, snoozed, asleep, dead), text, left_s, gatekeeper, robots, lease and line.

        nodes: how it stands at those that have it or wait for it. Values are scalars, or maps and lists of them.
        """

    async def export_record(self, crawl_id: bytes) -> bytes:
        """A crawl's record as nodes send it to each other, `dhtcrawl.storage.store.crawl_record.to_wire`."""

    async def export_nodes(self, crawl_id: bytes) -> list[dict[str, Any]]:
        """The nodes that have a part of a crawl.

        node, counters, cpu_seconds, rss_bytes_max, seconds, archive_dir (a
        path where it is on this machine, or None), reachable (bool).
        """

    async def export_rows(
        self, crawl_id: bytes, node: bytes, kind: bytes, cursor: bytes
    ) -> tuple[list[Row], bytes | None]:
        """Some rows of a kind in a node's store, from `cursor` on (b"" is the beginning), and the next cursor."""

    async def export_files(self, crawl_id: bytes, node: bytes) -> list[tuple[str, int]]:
        """A node's archive files of a crawl, and how many bytes of each are committed."""

    async def export_chunk(self, crawl_id: bytes, node: bytes, name: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of an archive file from `offset` on; fewer than asked only at the committed end."""

    def metrics(self) -> dict[str, float]:
        """Figures for Prometheus, read without waiting.

        The name without `dhtcrawl_`, and labels where there are some:
        `pages_total`, `members{state="active"}`. What only grows ends in
        `_total`. Base units: seconds, bytes.
        """


def submission(body: object) -> CrawlSpec:
    """What a client asks to crawl, from the JSON it sent.

    That is `{"seeds": […], "settings": {…}, "searches": {…}, "rules": "…"}`. All but the seeds may be
    missing; `dhtcrawl.searches` says what the third is, and the fourth is the text of a file of rules.

    Raises:
        ApiError: 400, it is no such thing, or a seed, a setting or a search is not good; 422, this node lacks what its
            policy needs.
    """
    if not isinstance(body, Mapping):
        raise ApiError(400, 'the body is no JSON object; send {"seeds": [...], "settings": {...}}')
    _no_others(body, "seeds", "settings", "searches", "rules")
    seeds, settings = body.get("seeds"), body.get("settings", {})
    if not isinstance(seeds, list) or not all(isinstance(seed, str) for seed in seeds):
        raise ApiError(400, "seeds is no list of strings; send at least one URL")
    if not isinstance(settings, Mapping):
        raise ApiError(400, "settings is no JSON object; send crawl settings by their names, or leave it out")
    for name in settings:
        if f"crawl.{name}" not in all_settings():
            raise ApiError(400, f"{name} is no setting of a crawl; is the node of another version?")
    try:
        searches = read_searches(body.get("searches", {}))
        typed = load(flags={f"crawl.{name}": value for name, value in settings.items()}).crawl
        spec = make_spec(seeds, typed, searches)
        check_policy(spec.settings.policy, spec.settings.policy_options)
        rules = _rules(body.get("rules", ""))
    except (ConfigError, UsageError, ValueError) as error:
        raise ApiError(400, str(error)) from error
    try:
        if not is_own(spec.settings.policy):  # which the node alone knows whether it may import
            check_needs(spec.settings.policy, spec.settings.policy_options)
    except ConfigError as error:
        raise ApiError(422, str(error)) from error
    return replace(spec, rules=rules)


def _rules(rules: object) -> str:
    """The text of a file of rules.

    Raises:
        ConfigError: what they say makes no sense.
        ValueError: they are no text, or too long.
    """
    if not isinstance(rules, str) or len(rules) > RULES_CHARS_MAX:
        raise ValueError(f"rules is no string of up to {RULES_CHARS_MAX} characters; send the text of a file of rules")
    if rules:
        from dhtcrawl.extract.rules_file import read as read_rules  # few crawls have rules

        read_rules("rules", rules)
    return rules


def _no_others(body: Mapping[str, object], *known: str) -> None:
    """Refuse a body with a field that says nothing: what it was meant to say would be left out, a limit for instance.

    Raises:
        ApiError: 400, there is one.
    """
    other = next((name for name in body if name not in known), None)
    if other is not None:
        raise ApiError(400, f"{other[:40]!r} is no field of this; there are {', '.join(known)}")


def changes_in(body: object) -> dict[str, Any]:
    """What a client wants changed of a crawl that it resumes, from the JSON it sent: `{"settings": {…}}`.

    Raises:
        ApiError: 400, it is no such thing, or a setting may not change, or is not good.
    """
    if not isinstance(body, Mapping) or not isinstance(settings := body.get("settings"), Mapping):
        raise ApiError(400, 'the body is no JSON object; send {"settings": {...}}, or no body to change nothing')
    _no_others(body, "settings")
    for name in settings:
        if name not in CHANGEABLE:
            may = ", ".join(CHANGEABLE)
            raise ApiError(400, f"{str(name)[:40]} cannot change in a crawl that has begun; what can: {may}")
    try:
        typed = load(flags={f"crawl.{name}": value for name, value in settings.items()}).crawl
    except ConfigError as error:
        raise ApiError(400, str(error)) from error
    return {name: getattr(typed, name) for name in settings}


def decision_in(body: object) -> tuple[Decision, list[str] | None]:
    """What a client wants done to tasks that came to nothing, from the JSON it sent.

    Raises:
        ApiError: 400, it is no such thing, or a URL is no web address.
    """
    if not isinstance(body, Mapping) or body.get("decision") not in ("release", "drop"):
        raise ApiError(400, 'the body is no decision; send {"decision": "release" or "drop", "urls": [...] or null}')
    _no_others(body, "decision", "urls")
    urls = body.get("urls")
    if urls is None:
        return body["decision"], None
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise ApiError(400, "urls is no list of strings; send URLs as the list has them, or null for all")
    found = {url: typed_url(url) for url in urls}
    wrong = next((url for url, canonical in found.items() if canonical is None), None)
    if wrong is not None:
        raise ApiError(400, f"{wrong[:200]!r} is no web address; use one of the list")
    return body["decision"], [canonical for canonical in found.values() if canonical is not None]
