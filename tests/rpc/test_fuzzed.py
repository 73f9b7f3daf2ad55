"""What is made from valid frames and datagrams by chance raises nothing and changes nothing (scripts/bench_fuzz.py)."""

from __future__ import annotations

import functools
from random import Random

import pytest
from bench_fuzz import REPLY, All, Fuzzed, fuzz
from mutants import mutant, mutant_map

from dhtcrawl.rpc.tasks.frame import Malformed, pack
from dhtcrawl.swarm.calls import BY_NAME

FRAMES, DATAGRAMS = 3_000, 5_000


@functools.cache
def found() -> All:
    return fuzz(FRAMES, DATAGRAMS, seed=25)


@pytest.mark.parametrize("plane", ["frames", "open", "sealed"])
def test_mutants_of_what_nodes_say_raise_nothing_and_change_nothing(plane: str) -> None:
    what: Fuzzed = getattr(found(), plane)
    assert what.errors == []
    assert what.changes == []
    assert what.sent == (FRAMES if plane == "frames" else DATAGRAMS)
    assert what.bad > what.sent / 4


def test_they_are_made_from_everything_that_nodes_say_while_they_crawl() -> None:
    assert {"StoreTask", "StoreBackup", "RefreshTask", "Ack", "Records", "Result", "Refused", "signals"} <= set(
        found().frames.kinds
    )
    assert len(set(found().frames.kinds) & set(BY_NAME)) >= 10
    for what in (found().open, found().sealed):
        assert {"ping", "find_node", "hello", REPLY} <= set(what.kinds)
    assert found().sealed.bad == DATAGRAMS, "nothing that was changed opens"


def test_a_mutant_is_never_what_it_was_made_from() -> None:
    rng, data = Random(1), bytes(range(60))
    made = {mutant(data, (data, bytes(80)), rng) for _ in range(500)}
    assert data not in made
    assert len(made) > 400
    assert {len(each) for each in made} > {0, 59, 60, 61}


def test_messages_have_one_place_changed_wherever_it_is() -> None:
    rows = ((b"k" * 20, "http://a.example/", 3), (b"l" * 20, "http://b.example/", 4))
    rng = Random(1)
    made = [mutant_map({"id": 1, "links": rows, "tried": ()}, rng) for _ in range(400)]
    lists = [each["links"] for each in made if isinstance(each.get("links"), tuple)]
    assert rows[:1] in lists, "one is left out"
    assert max(map(len, lists)) > 500, "there are too many"
    swapped = [(url, key, depth) for key, url, depth in rows] + [(key, depth, url) for key, url, depth in rows]
    assert any(row in swapped for links in lists for row in links), "two columns have changed places"
    sent = 0
    for each in made:
        try:
            pack(0x10, each)
        except Malformed:
            continue
        sent += 1
    assert sent > 350
