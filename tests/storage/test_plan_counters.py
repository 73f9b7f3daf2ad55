"""What made the plans of a crawl adds up over nodes, and into what people read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.standing import SKIPPED
from dhtcrawl.storage.store.outcomes import ERROR_KINDS, counter_of, skip_counter_of
from dhtcrawl.storage.store.plan_counters import MODELS_MAX, MadeBy, by_model, count_plan, in_words, made_by
from dhtcrawl.swarm.calls.words import WORDS_MAX


def counted(*plans: MadeBy) -> dict[str, float]:
    counters: dict[str, float] = {}
    for made in plans:
        count_plan(counters, made)
    return counters


def test_the_counters_of_several_nodes_add_up_to_the_mean_error_of_each_model() -> None:
    one = counted(MadeBy("rates", None, 3), MadeBy("net", 0.02, 40), MadeBy("net", 0.04, 50))
    other = counted(MadeBy("net", 0.06, 60), MadeBy("rates", 0.5, 30))
    both = dict(Counter(one) + Counter(other))
    models = by_model(both)
    assert models == {"net": {"plans": 3, "error": 0.04}, "rates": {"plans": 2, "error": 0.5}}
    assert in_words(models) == ["net 3 (4.0 % off)", "rates 2 (50.0 % off)"]
    assert in_words(by_model(counted(MadeBy("rates", None, 3)))) == ["rates 1"]
    assert by_model({"plans_net": 0, "plans_": 1, "pages": 3, "plans_NET": 2}) == {}


def test_they_are_stored_with_the_other_counters() -> None:
    counters = CrawlCounters(pages=3, plans=counted(MadeBy("net", 0.02, 40)))
    assert CrawlCounters.unpack(counters.pack()).plans == counters.plans
    assert counters.figures()["plan_error_net"] == 0.02


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"model": "net", "error": 0.1, "samples": 30}, MadeBy("net", 0.1, 30)),
        ({"model": "rates"}, MadeBy("rates", None, 0)),
        ({"model": "net", "error": "none", "samples": -1}, MadeBy("net", None, 0)),
        ({"model": "net", "error": float("nan"), "samples": True}, MadeBy("net", None, 0)),
        ({"model": "Net!"}, None),
        ({"model": "x" * 17}, None),
        ({"model": 3}, None),
        ({}, None),
        ("net", None),
    ],
)
def test_what_a_table_says_of_itself_is_checked(made: Any, said: MadeBy | None) -> None:
    assert made_by({"made": made}) == said


def test_all_counters_of_a_node_fit_into_one_message() -> None:
    plans = counted(*(MadeBy(f"model-{letter}", 0.1, 9) for letter in "abcdefgh"))
    assert len(by_model(plans)) == MODELS_MAX
    assert max(map(len, plans)) <= 32
    figures = set(CrawlCounters(plans=plans).figures())
    figures |= {counter_of(kind) for kind in ERROR_KINDS} | {skip_counter_of(reason) for reason in SKIPPED}
    assert len(figures | {"queued", "in_flight", "pages_out", "pages_used", "bytes"}) <= WORDS_MAX
