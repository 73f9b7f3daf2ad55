"""How a node makes the policy of a crawl: what other packages do then may take long, and stops nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.policies import Install

from dhtcrawl.policy.guard import Guard
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.assignment.policies import MADE_WITHIN_S, Policies
from swarm.fake_peers import node

SOURCE = """
from dhtcrawl.policy.balanced import Rates
from dhtcrawl.policy.xor import Xor

class Mine(Xor):
    name, planner = "mine", Rates

class Own(Xor):
    name = "own"

    def __init__(self, settings):
        super().__init__(settings)
        self.settings = {"batch": 10}
"""


@pytest.fixture(autouse=True)
def _mine(installed: Install) -> None:
    installed("policy_to_make", SOURCE, mine="policy_to_make:Mine", own="policy_to_make:Own")


def record(policy: str, types: Mapping[str, str] = {}) -> CrawlRecord:
    settings = SimpleNamespace(policy=policy, policy_options=(), delay_s=0.0)
    return cast(CrawlRecord, SimpleNamespace(spec=SimpleNamespace(settings=settings, types=types)))


class Aside:
    """Runs what it is given, or never."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.asked = self.at_once = 0

    async def __call__(self, function: Callable[[], Any]) -> Any:
        self.asked += 1
        self.at_once += 1
        assert self.at_once == 1
        await (asyncio.Event().wait() if self.hangs else asyncio.sleep(1))
        self.at_once -= 1
        return function()


def made(guard: Guard | None, policies: Policies) -> tuple[str, str] | None:
    return None if guard is None else (guard.inner.name, type(policies.planner_of(guard)).__name__)


async def test_a_policy_of_another_package_and_its_planner_are_made_aside_and_ours_are_not() -> None:
    for name, planner, asked in (("mine", "Rates", 1), ("balanced", "Rates", 0), ("xor", "NoneType", 0)):
        aside = Aside(hangs=False)
        policies = Policies(node(0), aside)
        assert made(await policies.of(record(name)), policies) == (name, planner)
        assert aside.asked == asked


async def test_they_are_made_one_by_one() -> None:
    policies = Policies(node(0), Aside(hangs=False))
    found = await asyncio.gather(*(policies.of(record("mine")) for _ in range(3)))
    assert all(found)


async def test_one_that_is_never_made_is_gone_on_without(caplog: pytest.LogCaptureFixture) -> None:
    policies, loop = Policies(node(0), Aside(hangs=True)), asyncio.get_running_loop()
    began_at = loop.time()
    assert await policies.of(record("mine")) is None
    assert loop.time() - began_at == pytest.approx(MADE_WITHIN_S)
    said = "policy mine cannot be made here (it was not made within 30 s); what this node owns it fetches itself"
    assert caplog.messages == [said]
    policies = Policies(node(0), Aside(hangs=True))
    typed = await policies.of(record("mine", {"a.example": "meta"}))
    assert made(typed, policies) == ("xor", "Types"), "hosts are asked by their type of nodes all the same"


async def test_one_that_took_the_place_of_its_settings_is_gone_on_without(caplog: pytest.LogCaptureFixture) -> None:
    policies = Policies(node(0), Aside(hangs=False))
    assert made(await policies.of(record("own")), policies) is None
    assert "policy own cannot be made here (policy own: settings is of type dict;" in caplog.text
