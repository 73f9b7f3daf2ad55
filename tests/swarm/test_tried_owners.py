"""Owners that did not take a link are named to the next one."""

from __future__ import annotations

import pytest

from dhtcrawl.swarm.records import tried_owners
from dhtcrawl.swarm.records.tried_owners import TRIED_MAX, TriedOwners


def test_whoever_did_not_take_one_of_the_links_is_named_once_but_not_to_itself() -> None:
    tried = TriedOwners()
    tried.failed(b"a", [b"1", b"2"])
    tried.failed(b"b", [b"2"])
    tried.failed(b"b", [b"2"])
    assert tried.besides(b"c", [b"1", b"2", b"3"]) == (b"a", b"b")
    assert tried.besides(b"a", [b"2"]) == (b"b",)
    assert tried.besides(b"c", [b"3"]) == ()


def test_a_link_that_arrived_is_forgotten() -> None:
    tried = TriedOwners()
    tried.failed(b"a", [b"1"])
    tried.taken([b"1", b"2"])
    assert tried.besides(b"c", [b"1"]) == ()


def test_no_more_owners_are_named_than_a_message_holds() -> None:
    tried = TriedOwners()
    for number in range(9):
        tried.failed(bytes([number]), [b"1"])
        tried.failed(bytes([number + 100]), [b"2"])
    assert len(tried.besides(b"", [b"1", b"2"])) == TRIED_MAX


def test_with_too_many_links_all_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_owners, "LINKS_MAX", 3)
    tried = TriedOwners()
    tried.failed(b"a", [b"1", b"2", b"3", b"4"])
    assert tried.besides(b"", [b"1", b"2", b"3", b"4"]) == ()
