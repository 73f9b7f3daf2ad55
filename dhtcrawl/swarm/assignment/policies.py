"""The policies of a node's crawls, and the thread that they run on.

A policy may be third-party code. It is made and runs on a thread of its own, one call after the other, so that a call
that never returns stops only that policy; what it raises or returns is checked by `dhtcrawl.policy.guard`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import Any

from dhtcrawl.config import pairs
from dhtcrawl.errors import ConfigError
from dhtcrawl.policy.choice import Choice
from dhtcrawl.policy.guard import DECIDES_WITHIN_S, Guard, said
from dhtcrawl.policy.node_types import Types
from dhtcrawl.policy.registry import OURS, load
from dhtcrawl.policy.seam import Planner, Settings
from dhtcrawl.policy.xor import Xor
from dhtcrawl.storage.store.crawl_record import CrawlRecord

log = logging.getLogger(__name__)

MADE_WITHIN_S = 30.0  # an import takes long where it brings a large library


class Policies:
    """Makes the policies of one node's crawls, and runs their choices."""

    def __init__(
        self, own: bytes, aside: Callable[[Callable[[], Any]], Awaitable[Any]], allowed: Container[str] = ()
    ) -> None:
        """`aside(function)` runs it on a thread that is not waited for at the end; `allowed` may be imported."""
        self._own = own
        self._allowed = allowed
        self._making = asyncio.Lock()  # who imports a module that another thread is importing finds half of it
        self.aside = aside

    async def of(self, record: CrawlRecord) -> Guard | None:
        """The policy of a crawl; None where it cannot be made: then every owner fetches its own tasks."""
        crawl = record.spec.settings
        settings = Settings(self._own, pairs(crawl.policy_options), record.spec.types, crawl.delay_s)
        make = partial(self._made, crawl.policy, settings)
        if crawl.policy in OURS:
            guard, why = make()
        else:
            async with self._making:
                making = asyncio.ensure_future(self.aside(make))
                try:
                    done, _ = await asyncio.wait({making}, timeout=MADE_WITHIN_S)
                finally:
                    making.cancel()  # the thread goes on; nobody waits for it
            guard, why = making.result() if done else (None, f"it was not made within {MADE_WITHIN_S:g} s")
        if guard is not None:
            return guard
        text = "policy %s cannot be made here (%s); what this node owns it fetches itself"
        log.warning(text, crawl.policy, why)
        return Guard(Xor(settings)) if settings.types else None

    def planner_of(self, policy: Guard) -> Planner | None:
        """The planner of a policy, and of types where they count; None where it has none, or it cannot be made."""
        return Types(beside=policy.made_planner) if policy.settings.types else policy.made_planner

    def _made(self, name: str, settings: Settings) -> tuple[Guard | None, str]:
        """A policy with its planner, or why it cannot be made. Of other packages on a thread, as it may take long."""
        try:
            guard = Guard(load(name, self._allowed)(settings))
        except BaseException as error:  # third-party code may raise anything
            return None, str(error) if isinstance(error, ConfigError) else said(error)
        guard.made_planner = _planner_of(guard)
        return guard, ""

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


def _planner_of(policy: Guard) -> Planner | None:
    try:
        planner = policy.planner(policy.settings.options) if policy.planner is not None else None
        if planner is None or all(isinstance(name, str) for name in planner.wants):
            return planner
        why = f"it wants {planner.wants!r}"
    except BaseException as error:  # third-party code may raise anything
        why = said(error)
    log.warning("policy %s has no plans here: its planner cannot be made (%s)", policy.inner.name, why[:200])
    return None
