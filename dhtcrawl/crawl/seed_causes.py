"""Why a seed brought nothing, in one line with a remedy: the same in every command, and on the dashboard.

`ask` gives where a URL stands, as `dhtcrawl.crawl.explain` says it, from a store or from the swarm. The redirects of a
seed are followed to what they end at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from dhtcrawl.crawl.analysis import CHOICES, REDIRECTS
from dhtcrawl.fetch.guard import NODE_REFUSES
from dhtcrawl.storage.store.outcomes import is_content
from dhtcrawl.storage.store.records import SkipReason

Answer = Mapping[str, Any]
Ask = Callable[[str], Awaitable[Answer]]

HOPS_MAX: Final = 20  # redirects that are followed to tell of them
UNTOLD: Final = "untold"  # the state of a URL of which the node that could say it does not answer
_REASONS: Final = {
    SkipReason.OUT_OF_SCOPE: "it is outside of the crawl's scope; see --scope",
    SkipReason.EXCLUDED: "--include or --exclude keeps the crawl from it",
    SkipReason.DEPTH: "it is deeper than --depth",
    SkipReason.NOFOLLOW: "the page that leads there says nofollow",
    SkipReason.RULES: "--rules follow other links of the page that leads there",
    SkipReason.REDIRECT_LIMIT: "it comes after too many redirects in a row; see fetch.redirects_max",
    SkipReason.NOT_A_URL: "it is no web address",
}
_REMEDIES: Final = {
    SkipReason.PRIVATE_ADDRESS: "if it is yours, use --allow-private",
    SkipReason.ROBOTS: "ask the site's owner, or use --ignore-robots on your own site",
    SkipReason.FAILED: "check the address, and whether the site is up",
    SkipReason.RECALLED: "see what ails the nodes that took it, and release it: 'dhtcrawl crawls --manual'",
}
# The option allows the hosts that seeds name, and no other.
_TARGET_REMEDY: Final = "if it is yours, name it as a seed, too, with --allow-private"
_NODE_REMEDY: Final = "if it is yours, start that node, and others that may get it, with join --allow-network"
_BUSY: Final = "try again later, or with a longer --delay"
_TROUBLE: Final = "the site has trouble: try again later"
_NOT_THERE: Final = "check the address"
_STATUS_REMEDIES: Final = {
    401: "the site wants a login, which dhtcrawl does not have: ask its owner",
    403: "the site refuses this crawler, or this address: ask its owner, and name yourself with --contact",
    404: _NOT_THERE,
    410: _NOT_THERE,
    429: _BUSY,
    503: _BUSY,
}
_CIRCLE: Final = "sites that want a cookie do that, and dhtcrawl keeps none: try a page behind the redirect"


async def seed_cause(seed: str, ask: Ask) -> str:
    """Why a seed brought no content; "" if it did, or may yet, or that is not known here."""
    steps = [await ask(seed)]
    while (target := _target(steps[-1])) is not None and len(steps) <= HOPS_MAX:
        if any(target == step.get("url") for step in steps):
            return _circle(steps, target)
        steps.append(await ask(target))
    cause = _end(steps[-1], of_seed=len(steps) == 1)
    led = f"redirects to {steps[-1].get('url')}: " if cause and len(steps) > 1 else ""
    return led + cause


def _target(step: Answer) -> str | None:
    """Where a redirect leads."""
    status, target = step.get("status"), step.get("final_url")
    if not isinstance(status, int) or not isinstance(target, str) or not 300 <= status < 400:
        return None
    # What lists choices leads to none of them by itself.
    leads = status in REDIRECTS and status != CHOICES
    if target != step.get("url"):
        return target
    return target if leads and not step.get("error") else None


def _circle(steps: Sequence[Answer], target: str) -> str:
    if len(steps) == 1:
        return f"{_answers(steps[0])} and leads back to itself; {_CIRCLE}"
    way = " > ".join([*(str(step.get("url")) for step in steps[1:]), target])
    return f"redirects in a circle: {way}; {_CIRCLE}"


def _end(step: Answer, *, of_seed: bool) -> str:
    state, status, reason = step.get("state"), step.get("status"), step.get("reason")
    if state == UNTOLD:
        return f"cannot be told now: {step.get('detail')}"
    if state == "dead":
        remedy = _REMEDIES.get(str(reason), "")
        if NODE_REFUSES in str(step.get("detail")):
            remedy = _NODE_REMEDY
        elif reason == SkipReason.PRIVATE_ADDRESS and not of_seed:
            remedy = _TARGET_REMEDY
        return f"{step.get('detail') or reason}" + (f"; {remedy}" if remedy else "")
    if state in ("skipped", "unknown"):
        return _REASONS.get(str(reason), str(reason)) if reason else "it was never queued"
    if not isinstance(status, int):
        return ""
    if is_content(status):
        return str(step.get("error") or "")
    remedy = _STATUS_REMEDIES.get(status, _TROUBLE if status >= 500 else "")
    return _answers(step) + (f", {step['error']}" if step.get("error") else "") + (f"; {remedy}" if remedy else "")


def _answers(step: Answer) -> str:
    status = step.get("status")
    try:
        return f"answers {status} ({HTTPStatus(int(str(status))).phrase})"
    except ValueError:
        return f"answers {status}"
