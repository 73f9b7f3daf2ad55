"""What a coordinator decides after a wave: limits, audits and ends, without a network."""

from __future__ import annotations

from dataclasses import replace

from storage.stores import SPEC

from dhtcrawl.config import CrawlSettings
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    FAILED,
    RUNNING,
    STOPPED,
    STOPPING,
    CrawlRecord,
    changed,
    with_settings,
)
from dhtcrawl.swarm.calls.lifecycle import AuditResult, CrawlStanding
from dhtcrawl.swarm.lifecycle.coordination import Coordination
from dhtcrawl.swarm.lifecycle.waves import WaveVerdict
from swarm.fake_peers import node, view_of

RECORD = CrawlRecord(SPEC.crawl_id(bytes(16)), SPEC, bytes(16))
MEMBERS = [node(0), node(1)]
VIEW, DIGEST = b"view", b"record"


def report(*, idle: bool = True, activity: int = 0, **counters: float) -> CrawlStanding:
    return CrawlStanding(1, True, idle, activity, VIEW, DIGEST, 0, {}, counters)


def heard(state: Coordination, *reports: CrawlStanding) -> WaveVerdict:
    """The verdict on the reports of the first members."""
    state.heard(dict(zip(MEMBERS, reports, strict=False)))
    return state.judge(MEMBERS, VIEW, DIGEST, stopping=False).verdict


def audited(state: Coordination, *answers: AuditResult) -> None:
    state.audited(MEMBERS, dict(zip(state.to_audit(MEMBERS), answers, strict=False)))


def test_a_crawl_is_complete_once_every_member_has_audited_the_same_stillness() -> None:
    state, wave = Coordination(), (report(pages=1), report())
    assert [heard(state, *wave), heard(state, *wave)] == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]
    audited(state, AuditResult(0, 0), AuditResult(running=True))
    assert state.to_audit(MEMBERS) == [node(1)], "who has answered is not asked again"
    assert state.reasons == ("1 nodes still look for lost links",)
    assert heard(state, *wave) is WaveVerdict.AUDIT
    audited(state, AuditResult(0, 0))
    assert heard(state, *wave) is WaveVerdict.COMPLETE
    assert state.end_of_complete(RECORD, view_of([0, 1])) == COMPLETE


def test_an_audit_of_another_stillness_does_not_count() -> None:
    state, wave = Coordination(), (report(), report())
    heard(state, *wave)
    heard(state, *wave)
    audited(state, AuditResult(0, 0))
    later = (report(), report(activity=1))
    assert [heard(state, *later), heard(state, *later)] == [WaveVerdict.GO_ON, WaveVerdict.AUDIT]
    assert state.to_audit(MEMBERS) == MEMBERS


def test_a_crawl_without_pages_has_failed_unless_one_that_is_gone_may_have_fetched_some() -> None:
    state = Coordination()
    heard(state, report(), report())
    assert state.end_of_complete(RECORD, view_of([0, 1])) == FAILED
    assert state.end_of_complete(replace(RECORD, participants=[node(9).hex()]), view_of([0, 1])) == COMPLETE


def test_a_crawl_of_redirects_and_errors_alone_has_failed() -> None:
    state = Coordination()
    heard(state, report(pages=2, pages_ok=0), report(pages=1, pages_ok=0))
    assert state.end_of_complete(RECORD, view_of([0, 1])) == FAILED
    heard(state, report(pages=2, pages_ok=0), report(pages=1, pages_ok=1))
    assert state.end_of_complete(RECORD, view_of([0, 1])) == COMPLETE


def test_the_size_counts_nodes_that_are_gone_and_a_crawl_that_is_idle_is_not_stopped() -> None:
    state = Coordination()
    heard(state, report(bytes=60), report(bytes=60))
    record = with_settings(RECORD, CrawlSettings(size_limit_bytes=100))
    assert state.over_limit(record, 0.0) is None
    heard(state, report(idle=False, bytes=60))
    stop = state.over_limit(record, 0.0)
    assert stop is not None
    assert (stop.state, stop.cause) == (STOPPING, "size limit")
    assert state.over_limit(stop, 0.0) is None, "it is stopped once"
    raised = with_settings(changed(stop, RUNNING), CrawlSettings(size_limit_bytes=121))
    assert state.over_limit(raised, 0.0) is None, "what the limit is now counts"


def test_the_size_counts_nodes_in_which_the_crawl_does_not_run_at_the_moment() -> None:
    state = Coordination()
    heard(state, report(idle=False, bytes=60), report(idle=False, bytes=60))
    heard(state, report(idle=False), report(idle=False, bytes=60))  # the first stops, or has just been started
    stop = state.over_limit(with_settings(RECORD, CrawlSettings(size_limit_bytes=100)), 0.0)
    assert stop is not None
    assert stop.cause == "size limit"


def test_a_frozen_crawl_ends_by_its_cause_or_when_its_pages_are_spent() -> None:
    state = Coordination()
    assert state.end_of_frozen(RECORD, spent=False) is None
    assert state.end_of_frozen(RECORD, spent=True) == "page limit"
    assert state.end_of_frozen(replace(RECORD, state=STOPPING), spent=True) == STOPPED
    assert state.end_of_frozen(replace(RECORD, state=STOPPING, cause="time limit"), spent=False) == "time limit"
