"""The policies of a node's crawls, and the thread that they run on.

A policy may be third-party code. It runs on a thread of its own, one call after the other, so that a call that never
returns stops only that policy; what it raises or returns is checked by `dhtcrawl.policy.guard`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from typing import Any

from dhtcrawl.config import pairs
from dhtcrawl.errors import ConfigError
from dhtcrawl.policy.choice import Choice
from dhtcrawl.policy.guard import DECIDES_WITHIN_S, Guard, said
from dhtcrawl.policy.node_types import Types
from dhtcrawl.policy.registry import load
from dhtcrawl.policy.seam import Planner, Settings
from dhtcrawl.policy.xor import Xor
from dhtcrawl.storage.store.crawl_record import CrawlRecord

log = logging.getLogger(__name__)


class Policies:
    """Makes the policies of one node's crawls, and runs their choices."""

    def __init__(
        self, own: bytes, aside: Callable[[Callable[[], Any]], Awaitable[Any]], allowed: Container[str] = ()
    ) -> None:
        """`aside(function)` runs it on a thread that is not waited for at the end; `allowed` may be imported."""
        self._own = own
        self._allowed = allowed
        self.aside = aside

    def of(self, record: CrawlRecord) -> Guard | None:
        """The policy of a crawl; None where it cannot be made: then every owner fetches its own tasks."""
        name = record.spec.settings.policy
        crawl = record.spec.settings
        settings = Settings(self._own, pairs(crawl.policy_options), record.spec.types, crawl.delay_s)
        try:
            return Guard(load(name, self._allowed)(settings))
        except BaseException as error:  # third-party code may raise anything
            why = str(error) if isinstance(error, ConfigError) else said(error)
            log.warning("policy %s cannot be made here (%s); what this node owns it fetches itself", name, why)
        return Guard(Xor(settings)) if settings.types else None

    def planner_of(self, policy: Guard) -> Planner | None:
        """The planner of a policy, and of types where they count; None where it has none, or it cannot be made."""
        planner = self._own_planner_of(policy)
        return Types(beside=planner) if policy.settings.types else planner

    def _own_planner_of(self, policy: Guard) -> Planner | None:
        try:
            planner = policy.planner(policy.settings.options) if policy.planner is not None else None
            if planner is None or all(isinstance(name, str) for name in planner.wants):
                return planner
            why = f"it wants {planner.wants!r}"
        except BaseException as error:  # third-party code may raise anything
            why = said(error)
        log.warning("policy %s has no plans here: its planner cannot be made (%s)", policy.inner.name, why[:200])
        return None

    async def decide(self, work: Callable[[], Choice]) -> Choice | None:
        """Run a choice; None where it takes longer than `DECIDES_WITHIN_S`."""
        thinking = asyncio.ensure_future(self.aside(work))
        # In two halves: a process that was suspended finds one of them gone, and its policy where it was.
        for _ in range(2):
            done, _ = await asyncio.wait({thinking}, timeout=DECIDES_WITHIN_S / 2)
            if done:
                choice: Choice = thinking.result()
                return choice
        thinking.cancel()
        return None
