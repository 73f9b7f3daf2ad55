"""The story of a URL in one crawl, in order: where it stands, how it was found, each attempt, what comes next. Pure.

It is told from an answer of `dhtcrawl.crawl.explain`, and what a running node adds to it; commands and the API tell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dhtcrawl.standing import SKIPPED

_ID_CHARS: Final = 12
_STATES: Final = {
    "pending": "is queued, and will be fetched when its host's turn comes",
    "fetched": "was fetched; some of its links are not acknowledged yet",
    "done": "was fetched, and all its links are known",
    "dead": "was given up",
    "skipped": "was found, but not followed",
    "unknown": "was never found: no page fetched so far links to it",
}


def url_story(answer: Mapping[str, Any]) -> list[str]:
    """Lines: the first goes on where the URL stops, the others stand under it."""
    lines = [_stands(answer), *_facts(answer), *_found(answer), *_attempts(answer), *_result(answer)]
    following = _next(answer)
    return [*lines, f"next       {following}"] if following else lines


def _stands(answer: Mapping[str, Any]) -> str:
    state, standing = str(answer.get("state")), _map(answer, "crawl_standing")
    if state != "pending":
        return _STATES.get(state, state)
    if answer.get("in_flight"):
        return "is being fetched"
    ended = answer.get("crawl_ended") or (standing.get("state") == "ended" and standing.get("reason"))
    if ended:
        return f"was queued when the crawl ended ({ended}), and was not fetched"
    if answer.get("limit_reached"):
        return f"is queued; the crawl is at its limit of {answer['limit_reached']} pages, so it is not fetched"
    if standing.get("state") in ("paused", "stopping"):
        return f"is queued; the crawl is {standing['state']}"
    if answer.get("running") is False:
        return "is queued; its crawl does not run at the moment"
    if standing.get("reason") == "page-limit":
        return "is queued; the crawl is at its page limit, so it is not fetched"
    host = _map(answer, "host")
    if host.get("state") not in (None, "ready"):
        return f"is queued; its host is {host['state']}"
    if answer.get("node_type"):
        wanted = answer["node_type"]
        return f"is queued, for a node of type {wanted!r} only (one that was started with --label type={wanted})"
    return _STATES[state]


def _facts(answer: Mapping[str, Any]) -> list[str]:
    standing = _map(answer, "crawl_standing")
    waits = answer.get("state") == "pending" and standing.get("state") == "waiting" and standing.get("text")
    crawl = f"{str(answer.get('crawl') or '')[:_ID_CHARS]}" + (f", which waits: {waits}" if waits else "")
    return [f"crawl      {crawl}", f"key        {answer.get('key')}"]


def _found(answer: Mapping[str, Any]) -> list[str]:
    state = answer.get("state")
    if state == "unknown":
        if answer.get("in_scope") is True:
            return ["in scope   yes: it would be followed"]
        return [f"in scope   no: it would be skipped; {_skip(answer.get('reason'))}"]
    if state == "skipped":
        return [f"reason     {_skip(answer.get('reason'))}"]
    if answer.get("seed") and not answer.get("referrer"):
        return ["found      a seed, depth 0", *_searches(answer)]
    referrer = answer.get("referrer")
    on = f"on {referrer}" if referrer else "by another node"
    when = f", which was fetched {answer['found_at']}" if answer.get("found_at") else ""
    redirects = answer.get("redirects") or 0
    by = f"; {redirects} redirects led to it" if redirects > 1 else "; a redirect led to it" if redirects else ""
    return [f"found      {on}{when}; depth {answer.get('depth')}{by}"]


def _searches(answer: Mapping[str, Any]) -> list[str]:
    told = answer.get("searches")
    rows = [each for each in told if isinstance(each, Mapping)] if isinstance(told, list) else []
    return [
        f"search     page {row.get('page')} of {row.get('task')!r} at engine {row.get('engine')}"
        + (f", about {row['site']}" if row.get("site") else "")
        for row in rows
    ]


def _attempts(answer: Mapping[str, Any]) -> list[str]:
    told = answer.get("attempts")
    lines = [str(line) for line in told] if isinstance(told, list | tuple) else []
    found = [f"attempt    {line}" for line in lines]
    made = answer.get("attempts_made")
    if answer.get("state") == "dead":
        detail = answer.get("detail")
        reason = _skip(answer.get("reason"))
        requests = f", after {made} attempts" if isinstance(made, int) and made > 1 and not lines else ""
        found.append(f"reason     {reason}{requests}" + (f": {detail}" if detail else ""))
    return found


def _result(answer: Mapping[str, Any]) -> list[str]:
    if answer.get("page_gone"):
        node = str(answer.get("page_at"))[:_ID_CHARS]
        return [f"page       lies only at {node}, which is gone; it is fetched again unless that comes back"]
    if answer.get("status") is None:
        return []
    lines = [f"fetched    {answer.get('fetched_at')}, status {answer['status']}"]
    if answer.get("final_url") not in (None, answer.get("url")):
        lines.append(f"leads to   {answer['final_url']}")
    if isinstance(links := answer.get("links"), int):
        lines.append(f"links      {links} on it are followed, to URLs that were known or not")
    if answer.get("error"):
        lines.append(f"error      {answer['error']}")
    if answer.get("archive"):
        lines.append(f"archive    {answer['archive']}")
    return lines


def _next(answer: Mapping[str, Any]) -> str:
    """What will happen to it; empty where nothing will."""
    if answer.get("state") != "pending":
        return ""
    standing, host = _map(answer, "crawl_standing"), _map(answer, "host")
    if answer.get("crawl_ended") or standing.get("state") == "ended":
        return "nothing: the crawl has ended"
    if answer.get("limit_reached"):
        return "nothing, until the crawl goes on with a higher limit of pages"
    if answer.get("running") is False:
        return "the command that began the crawl goes on with it"
    if standing.get("state") in ("paused", "stopping") or standing.get("reason") == "page-limit":
        return str(standing.get("text"))
    if host.get("text"):
        return f"it waits: {host['text']}"
    return str(standing.get("text") or "")


def _skip(reason: object) -> str:
    """The word of skipped.jsonl, and what it means."""
    said = SKIPPED.get(str(reason))
    return str(reason) if said is None else f"{reason}: {said}"


def _map(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = answer.get(name)
    return value if isinstance(value, Mapping) else {}
