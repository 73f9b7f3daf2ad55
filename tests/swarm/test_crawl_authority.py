"""Who may change a crawl: its author, its coordinator where each node sees it, and what any member may."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from storage.stores import SPEC

from dhtcrawl.identity import NodeIdentity
from dhtcrawl.keyspace import crawl_key, distance, placement
from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    PAUSED,
    RUNNING,
    STEP_MAX,
    STOPPED,
    STOPPING,
    CrawlRecord,
    changed,
    from_wire,
    lowered,
    merge_crawls,
    new_record,
    read_fields,
    said_again,
    signed,
    to_wire,
    with_settings,
    write_fields,
)
from dhtcrawl.storage.store.crawl_signatures import author, nonce_of
from dhtcrawl.swarm.lifecycle import crawl_authority
from dhtcrawl.swarm.lifecycle.crawl_authority import CrawlAuthority
from swarm.fake_peers import node, view_of

SALT = b"s" * 16
MEMBERS = range(1, 9)
AUTHOR = SimKey(node(1))
CRAWL = new_record(SPEC, SALT, AUTHOR)
# From the coordinator to the one that would be it last.
RANKED = sorted(MEMBERS, key=lambda n: distance(node(n), crawl_key(CRAWL.crawl_id)))
COORDINATOR, NEXT, *_ = (SimKey(node(n)) for n in RANKED)
MEMBER = next(SimKey(node(n)) for n in RANKED[2:] if n != 1)
ANOTHER = next(SimKey(node(n)) for n in RANKED[3:] if n != 1 and node(n) != MEMBER.node_id)

Change = Callable[[CrawlRecord], CrawlRecord]
CHANGES: dict[str, Change] = {
    "pause": lambda record: changed(record, PAUSED),
    "stop": lambda record: changed(record, STOPPING, cause=STOPPED),
    "end": lambda record: changed(record, RUNNING, ended=COMPLETE),
    "limit": lambda record: with_settings(record, replace(record.settings, max_pages=1)),
    "delay": lambda record: with_settings(record, replace(record.settings, delay_s=3600.0)),
}


def judge(view: View | None = None, *, was_member: bool = True) -> CrawlAuthority:
    seen = view_of(MEMBERS) if view is None else view
    return CrawlAuthority(SimKey(node(0)), lambda: seen, lambda _: was_member)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_counts_if_author_or_coordinator_have_signed_it_whoever_tells_it(change: Change) -> None:
    for maker in (AUTHOR, COORDINATOR):
        told = from_wire(to_wire(signed(change(CRAWL), CRAWL, maker)))
        assert judge().believed(told, CRAWL, ANOTHER.node_id) is told


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_members_own_change_of_anothers_crawl_changes_nothing(change: Change) -> None:
    authority = judge()
    forged = change(CRAWL)
    for told in (forged, signed(forged, CRAWL, MEMBER)):
        counts = authority.believed(from_wire(to_wire(told)), CRAWL, MEMBER.node_id)
        assert merge_crawls(CRAWL, counts) == merge_crawls(CRAWL, CRAWL)
    assert authority.refused == 2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_signature_does_not_count_for_another_change_another_crawl_or_another_maker(change: Change) -> None:
    true = signed(change(CRAWL), CRAWL, AUTHOR)
    other = new_record(SPEC, b"t" * 16, AUTHOR)
    elsewhere = signed(change(other), other, AUTHOR)
    forged = [
        replace(change(CRAWL), maker=elsewhere.maker, changes=elsewhere.changes),
        replace(true, version=true.version + 1, changes=true.changes and true.changes._replace(version=9)),
    ]
    for told in forged:
        counts = judge().believed(told, CRAWL, MEMBER.node_id)
        assert (counts.state_said[1:], counts.changes) == (CRAWL.state_said[1:], CRAWL.changes)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_the_author_or_the_coordinator_tells_itself_counts_whoever_made_it(change: Change) -> None:
    told = signed(change(CRAWL), CRAWL, MEMBER)
    for teller in (AUTHOR, COORDINATOR):
        assert judge().believed(told, CRAWL, teller.node_id) is told


def test_what_a_former_coordinator_has_made_counts_where_it_was_a_member_or_was_seen_as_one() -> None:
    ended = signed(changed(CRAWL, RUNNING, ended=COMPLETE), CRAWL, COORDINATOR)
    left = view_of(n for n in MEMBERS if node(n) != COORDINATOR.node_id)
    assert judge(left).believed(ended, CRAWL, MEMBER.node_id).ended == COMPLETE
    assert judge(left, was_member=False).believed(ended, CRAWL, MEMBER.node_id).ended == ""
    views = [view_of(MEMBERS), left]
    seen = CrawlAuthority(SimKey(node(0)), lambda: views[0], lambda _: False)
    assert not seen.coordinates(CRAWL.crawl_id)
    del views[0]
    assert seen.believed(ended, CRAWL, MEMBER.node_id).ended == COMPLETE


def test_any_member_may_open_a_crawl_that_is_said_to_be_complete_and_no_other() -> None:
    for ended, may in ((COMPLETE, True), ("failed", True), ("stopped", False), ("page limit", False)):
        known = signed(changed(CRAWL, RUNNING, ended=ended), CRAWL, COORDINATOR)
        opened = signed(changed(known, RUNNING), known, MEMBER)
        assert (judge().believed(opened, known, MEMBER.node_id).ended == "") is may


def test_any_member_may_stop_a_crawl_for_its_full_disk_and_for_nothing_else() -> None:
    for cause, may in (("disk limit", True), ("page limit", False), ("", False)):
        told = signed(changed(CRAWL, STOPPING, cause=cause), CRAWL, MEMBER)
        assert (judge().believed(told, CRAWL, MEMBER.node_id).state == STOPPING) is may


@pytest.mark.parametrize("ended", [COMPLETE, "failed"])
def test_a_crawl_that_is_over_may_be_opened_by_any_member_and_not_paused_or_stopped(ended: str) -> None:
    known = signed(changed(CRAWL, RUNNING, ended=ended), CRAWL, COORDINATOR)
    for change in (CHANGES["pause"], CHANGES["stop"], lambda record: changed(record, STOPPING, cause="disk limit")):
        told = signed(replace(change(known), ended=""), known, MEMBER)
        assert judge().believed(told, known, MEMBER.node_id).state_said[1:] == known.state_said[1:]


def test_a_state_that_is_told_again_in_a_later_version_is_no_change() -> None:
    authority = judge()
    told = replace(CRAWL, version=CRAWL.version + 1)
    assert authority.believed(told, CRAWL, MEMBER.node_id) is told
    assert authority.refused == 0


def test_the_author_of_a_crawl_that_is_known_without_one_is_who_has_signed_it() -> None:
    known = replace(CRAWL, author=None)
    assert CRAWL.author is not None
    forged = replace(CRAWL, author=CRAWL.author._replace(signature=bytes(64)))
    assert judge().believed(forged, known, MEMBER.node_id).author is None
    assert judge().believed(CRAWL, known, MEMBER.node_id).author == CRAWL.author


def test_a_node_without_any_active_member_in_sight_has_no_coordinator_and_believes_no_members_change() -> None:
    nobody = judge(view_of([], joining=[0]))
    assert not nobody.coordinates(CRAWL.crawl_id)
    told = signed(CHANGES["pause"](CRAWL), CRAWL, MEMBER)
    assert nobody.believed(told, CRAWL, MEMBER.node_id).state == RUNNING


def test_it_is_remembered_of_so_many_crawls_only_who_coordinated_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawl_authority, "CRAWLS_KEPT_MAX", 2)
    ended = signed(changed(CRAWL, RUNNING, ended=COMPLETE), CRAWL, COORDINATOR)
    left = view_of(n for n in MEMBERS if node(n) != COORDINATOR.node_id)
    for others, counts in ((1, True), (2, False)):
        views = [view_of(MEMBERS)]
        authority = CrawlAuthority(SimKey(node(0)), partial(operator.itemgetter(-1), views), lambda _: False)
        authority.coordinates(CRAWL.crawl_id)
        for number in range(others):
            authority.coordinates(bytes([number]) * 16)
        views.append(left)
        assert (authority.believed(ended, CRAWL, MEMBER.node_id).ended == COMPLETE) is counts


def test_the_node_where_a_crawl_was_submitted_takes_peoples_wishes_before_it_is_a_member() -> None:
    author = CrawlAuthority(AUTHOR, lambda: view_of(set(MEMBERS) - {1}), lambda _: True)
    assert author.in_charge(CRAWL) == AUTHOR.node_id


def test_whose_word_on_a_seeds_redirect_counts_at_once() -> None:
    key = SPEC.key_of(SPEC.seeds[0])
    others = sorted(set(MEMBERS) - {1}, key=lambda n: distance(node(n), placement(key)))
    closest, owner, further = (node(n) for n in others[:3])
    view = view_of(others[1:])
    assert judge(view).may_lead(CRAWL, node(0), key), "its own"
    assert judge(view).may_lead(CRAWL, AUTHOR.node_id, key)
    assert judge(view).may_lead(CRAWL, owner, key)
    assert judge(view).may_lead(CRAWL, closest, key), "it owned the seed while it was here"
    assert not judge(view, was_member=False).may_lead(CRAWL, closest, key), "a stranger"
    assert not judge(view).may_lead(CRAWL, further, key)
    nobody = judge(view_of([]))
    assert not nobody.may_lead(replace(CRAWL, author=None), owner, key)


def test_a_bequest_that_is_garbage_or_that_another_has_signed_is_none() -> None:
    heir = CrawlAuthority(SimKey(node(0)), lambda: view_of(MEMBERS), lambda _: True)
    leaver = CrawlAuthority(MEMBER, lambda: view_of(MEMBERS), lambda _: True)
    bequest = leaver.bequest(CRAWL, node(0))
    assert heir.left_here(CRAWL.crawl_id, MEMBER.node_id, bequest.packed()) == bequest
    assert heir.left_here(CRAWL.crawl_id, MEMBER.node_id, b"garbage") is None
    assert heir.left_here(CRAWL.crawl_id, ANOTHER.node_id, bequest.packed()) is None
    assert heir.left_here(bytes(16), MEMBER.node_id, bequest.packed()) is None


def test_a_redirect_is_signed_unless_the_crawl_was_begun_before_there_were_authors() -> None:
    led = judge().led_to(CRAWL, SPEC.seeds[0], "http://b.example/")
    assert (led.aliases, len(led.targets)) == (["http://b.example/"], 1)
    led = judge().led_to(replace(CRAWL, author=None), SPEC.seeds[0], "http://b.example/")
    assert (led.aliases, led.targets) == (["http://b.example/"], {})


def test_the_rest_of_a_record_counts_where_a_change_does_not() -> None:
    told = replace(changed(CRAWL, PAUSED), participants=[node(3).hex()], aliases=["http://b.example/"])
    counts = judge().believed(told, CRAWL, MEMBER.node_id)
    assert (counts.state, counts.participants, counts.aliases) == (RUNNING, told.participants, told.aliases)


def test_a_coordinator_makes_its_own_state_again_above_one_that_does_not_count() -> None:
    paused = signed(changed(CRAWL, PAUSED), CRAWL, AUTHOR)
    forged = replace(changed(paused, STOPPING, cause=STOPPED), version=9)
    limited = with_settings(forged, replace(forged.settings, max_pages=1))
    again = said_again(paused, limited)
    assert (again.state, again.version, again.maker) == (PAUSED, 10, None)
    assert again.settings == paused.settings
    merged = merge_crawls(limited, signed(again, paused, COORDINATOR))
    assert (merged.state, merged.settings) == (PAUSED, paused.settings)
    assert said_again(paused, paused) is paused


def test_who_takes_peoples_wishes_is_the_author_and_once_it_is_gone_the_coordinator() -> None:
    assert judge().in_charge(CRAWL) == AUTHOR.node_id
    assert judge(view_of(set(MEMBERS) - {1}, joining={1})).in_charge(CRAWL) == AUTHOR.node_id
    gone = set(MEMBERS) - {1}
    closest = min(gone, key=lambda n: distance(node(n), crawl_key(CRAWL.crawl_id)))
    assert judge(view_of(gone)).in_charge(CRAWL) == node(closest)


def test_a_crawl_that_was_begun_before_there_were_authors_goes_on_as_before() -> None:
    known = replace(CRAWL, author=None)
    told = changed(known, PAUSED)
    assert judge().believed(told, known, MEMBER.node_id) is told
    assert judge().in_charge(known) is None
    assert not judge().is_authored(known)


def identities() -> tuple[NodeKey, NodeKey]:
    return NodeIdentity.drawn(), NodeIdentity.drawn()


@pytest.mark.parametrize("keys", [(AUTHOR, MEMBER), identities()], ids=["simulated", "Ed25519"])
def test_a_crawls_id_names_its_author_and_nobody_can_be_put_in_its_place(keys: tuple[NodeKey, NodeKey]) -> None:
    mine, other = keys
    authority = CrawlAuthority(other, lambda: view_of(MEMBERS), lambda _: True)
    crawl = new_record(SPEC, SALT, mine)
    assert authority.is_authored(from_wire(to_wire(crawl)))
    assert nonce_of(mine.node_id, SALT) == crawl.nonce
    assert crawl.author is not None
    forged = [
        None,
        author(other, SALT, crawl.crawl_id),  # signed well, by another
        crawl.author._replace(signature=bytes(64)),
        crawl.author._replace(salt=bytes(16)),
        author(other, SALT, crawl.crawl_id)._replace(node_id=mine.node_id),
    ]
    assert [each for each in forged if authority.is_authored(replace(crawl, author=each))] == []
    # Nor does a member begin a crawl in another's name: it cannot sign for it.
    nonce = nonce_of(mine.node_id, bytes(16))
    named = CrawlRecord(SPEC.crawl_id(nonce), SPEC, nonce, author=crawl.author._replace(salt=bytes(16)))
    assert not authority.is_authored(named)
    known = authority.believed(replace(crawl, author=forged[1]), crawl, other.node_id)
    assert known.author == crawl.author


def test_makers_and_author_are_stored_and_sent_and_lost_where_their_word_is_changed() -> None:
    record = signed(CHANGES["limit"](changed(CRAWL, PAUSED)), CRAWL, AUTHOR)
    assert record.maker is not None
    assert record.changes is not None
    assert record.changes.maker is not None
    assert read_fields(record.crawl_id, write_fields(record)) == record == from_wire(to_wire(record))
    since = from_wire(to_wire(record, CRAWL), CRAWL)
    assert since.maker == record.maker
    assert changed(record, RUNNING).maker is None
    leap = lowered(replace(record, version=STEP_MAX + 2), None)
    assert (leap.version, leap.maker) == (STEP_MAX, None)


def test_a_signature_is_verified_once_a_change_and_not_for_what_is_known() -> None:
    checks = 0

    class Counting(SimKey):
        def verify(self, *said: bytes) -> bool:
            nonlocal checks
            checks += 1
            return super().verify(*said)

    authority = CrawlAuthority(Counting(node(0)), lambda: view_of(MEMBERS), lambda _: True)
    told = signed(CHANGES["limit"](changed(CRAWL, PAUSED)), CRAWL, AUTHOR)
    known = merge_crawls(CRAWL, authority.believed(told, CRAWL, MEMBER.node_id))
    assert checks == 2, "state and settings"
    for record in (told, CRAWL, replace(told, participants=[node(3).hex()])):
        authority.believed(record, known, MEMBER.node_id)
    assert checks == 2
