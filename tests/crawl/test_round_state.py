"""The core of writing rounds, whatever is handed in, fails, or is acknowledged late: no loop, no store."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl import next_round as gathering
from dhtcrawl.crawl import round_state
from dhtcrawl.crawl.copy_barrier import CopyBarrier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.resend_queue import ResendQueue
from dhtcrawl.crawl.round_state import (
    AckOnceKept,
    CopyBodies,
    Expect,
    FollowUp,
    Keep,
    KeepTombstones,
    RoundPhase,
    RoundState,
    Wrote,
)
from dhtcrawl.crawl.rounds import CrawlCounters, Fetched, Kill, Round, RoundResult
from dhtcrawl.storage.store.ownership import EVERYTHING, NOTHING
from dhtcrawl.storage.store.records import Task
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import FetchedPage, Link

BODY_BYTES = 10
LINKS_A_ROUND = 3

# What happens, one after the other; numbers say which page, task, node or link.
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("page"), st.lists(st.integers(0, 9), max_size=5)),
        st.tuples(st.just("kill"), st.just([])),
        st.tuples(st.just("begin"), st.just([])),
        st.tuples(st.just("commit"), st.just([])),
        st.tuples(st.just("backups"), st.integers(1, 3)),
        st.tuples(st.just("owners"), st.integers(1, 3)),
    ),
    max_size=60,
)


def link_of(number: int) -> Link:
    return Link(b"link %d" % number, f"http://a/{number}", 1, "http://a/")


class Model:
    """One crawl's rounds, over a store, backups and other owners that answer when they are told to."""

    def __init__(self, *, alone: bool, copies: int = 1) -> None:
        own: Any = SimpleNamespace(
            alone=alone,
            owns=lambda key: alone or key[-1] % 2 == 0,
            owned=lambda keys: [key for key in keys if alone or key[-1] % 2 == 0],
            mine=lambda key: True,
            awaited=lambda key: False,
            snapshot=lambda keys: NOTHING,
        )
        self.own = own
        self.next = NextRound(Outbox(depth_matters=False), CopyBarrier(copies - 1), [], ResendQueue())
        self.state = RoundState(self.next, own, CrawlCounters())
        self.handed_in: list[Any] = []
        self.in_rounds: list[Any] = []
        self.told_of: list[Any] = []  # as written
        self.durable: set[bytes] = set()  # pages and kills of rounds that were written
        self.stored: set[bytes] = set()  # links, as tasks
        self.acked: set[bytes] = set()
        self.done: list[bytes] = []
        self.round: Round | None = None
        self.at_backups: deque[Callable[[], object]] = deque()
        self.at_owners: deque[Link] = deque()

    def page(self, links: list[int]) -> None:
        key = b"page %d" % len(self.handed_in)
        body: Any = SimpleNamespace(spooled=False, size=BODY_BYTES)
        item: Any = None
        fetched = Fetched("a", item, body, FetchedPage(key, 1, {}, b"", []))
        self.handed_in.append(fetched)
        self.next.page(fetched, [link_of(number) for number in links], None)

    def kill(self) -> None:
        kill = Kill("a", b"kill %d" % len(self.handed_in), "failed", "", 0)
        self.handed_in.append(kill)
        self.next.kill(kill)

    def begin(self) -> None:
        if self.state.phase is RoundPhase.GATHERING:
            theirs = self.state.take_links()
            self.at_owners += theirs[1:]
            self.round = self.state.begin(theirs[:1] if len(theirs) > 1 else theirs)  # there is not room for all
            if len(theirs) == 1:
                self.at_owners += self.next.outbox.take(1)
            if self.round is not None:
                self.in_rounds += [*self.round.fetched, *self.round.kills]
                assert len(self.round.links) <= LINKS_A_ROUND
                assert not self.state.idle, "it is not on disk"

    def commit(self) -> None:
        if self.state.phase is not RoundPhase.WRITING or self.round is None:
            return
        new = [link for link in self.round.links if link.key not in self.stored]
        self.stored |= {link.key for link in new}
        self.durable |= {fetched.page.key for fetched in self.round.fetched if fetched.page is not None}
        self.durable |= {kill.key for kill in self.round.kills}
        over = [*self.round.done, *self.round.settled]
        self.done += over
        task = Task("http://a/", 1, 1, "")
        result = RoundResult(
            changed=[TaskReplica(link.key, task) for link in new],
            over=[TaskReplica(key, task) for key in over],
        )
        for step in self.state.written(self.round, result):
            self._follow_up(step)

    def _follow_up(self, step: FollowUp) -> None:
        match step:
            case Wrote(fetched, kills):
                assert self.durable.issuperset(pages_in(fetched))
                assert self.durable.issuperset(kill.key for kill in kills)
                self.told_of += [*fetched, *kills]
            case AckOnceKept(links):
                assert self.stored.issuperset(link.key for link in links)
                self._ack(links)
            case Expect():
                pass
            case Keep(records, links, _):
                assert self.stored.issuperset(record.key for record in records)
                self.at_backups.append(lambda: self._ack(links))
            case KeepTombstones(records):
                self.at_backups.append(lambda: self.next.safe(record.key for record in records))
            case CopyBodies(pages, _):
                self.at_backups += [lambda page=page: self.next.copied(page, ()) for page in pages]  # type: ignore[misc]

    def _ack(self, links: list[Link]) -> None:
        self.acked |= {link.key for link in links}
        self.next.acked(links)

    def answer(self, backups: int, owners: int) -> None:
        for _ in range(min(backups, len(self.at_backups))):
            self.at_backups.popleft()()
        for _ in range(min(owners, len(self.at_owners))):
            self._ack([self.at_owners.popleft()])

    def play(self, what: list[tuple[str, Any]]) -> None:
        for kind, argument in what:
            match kind:
                case "page":
                    self.page(argument)
                case "kill":
                    self.kill()
                case "begin":
                    self.begin()
                case "commit":
                    self.commit()
                case "backups":
                    self.answer(argument, 0)
                case "owners":
                    self.answer(0, argument)

    def finish(self) -> None:
        """Everything that is under way comes to an end, and the writer is closed."""
        for _ in range(1_000):
            self.begin()
            self.commit()
            self.answer(9, 9)
            if self.state.idle and not (self.at_backups or self.at_owners or self.next.open_pages):
                break
        self.state.close()
        self.begin()
        assert self.state.phase is RoundPhase.CLOSED


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_state, "LINKS_A_ROUND_MAX", LINKS_A_ROUND)


def pages_in(handed_in: list[Any]) -> list[bytes]:
    return [each.page.key for each in handed_in if isinstance(each, Fetched) and each.page is not None]


MODELS = [{"alone": True}, {"alone": False}, {"alone": False, "copies": 2}]


@pytest.mark.parametrize("kind", MODELS)
@given(what=happenings)
def test_each_page_and_kill_is_in_one_round_in_order_and_ends_once(kind: Any, what: list[tuple[str, Any]]) -> None:
    model = Model(**kind)
    model.play(what)
    model.finish()
    for kind_of in (Fetched, Kill):
        came, written = ([e for e in each if isinstance(e, kind_of)] for each in (model.handed_in, model.in_rounds))
        assert [id(each) for each in came] == [id(each) for each in written]
    assert [id(each) for each in model.told_of] == [id(each) for each in model.in_rounds]
    assert Counter(model.done) == Counter(pages_in(model.handed_in))
    assert model.next.unwritten_pages == 0
    assert model.state.idle


@given(what=happenings, more=happenings)
def test_a_write_that_fails_acknowledges_nothing_and_nothing_is_idle_after_it(
    what: list[tuple[str, Any]], more: list[tuple[str, Any]]
) -> None:
    model = Model(alone=True)
    model.play(what)
    model.page([1])
    if model.state.phase is RoundPhase.GATHERING:
        model.begin()
    model.at_backups.clear()
    acked, durable = set(model.acked), set(model.durable)
    model.state.failed()
    model.play(more)
    assert model.state.phase is RoundPhase.FAILED
    assert not model.state.idle
    assert (model.acked, model.durable) == (acked, durable)


@given(what=happenings)
def test_no_link_is_acknowledged_here_before_its_task_is_stored(what: list[tuple[str, Any]]) -> None:
    model = Model(alone=True)
    model.play(what)
    assert model.acked <= model.stored
    assert set(model.done) <= model.durable


@pytest.mark.parametrize("alone", [True, False])
@given(what=happenings)
def test_a_page_is_done_after_all_its_links_were_acknowledged(alone: bool, what: list[tuple[str, Any]]) -> None:
    model = Model(alone=alone)
    links: dict[bytes, set[bytes]] = {}
    for kind, argument in what:
        if kind == "page":
            links[b"page %d" % len(model.handed_in)] = {link_of(number).key for number in argument}
        model.play([(kind, argument)])
        for page in model.done:
            assert links[page] <= model.acked


def test_a_page_whose_links_are_acknowledged_is_done_with_its_round_on_one_node_only() -> None:
    for alone, settled in ((True, {b"page 1"}), (False, set())):
        model = Model(alone=alone)
        model.play([("page", [2]), ("begin", []), ("commit", []), ("backups", 3), ("begin", []), ("commit", [])])
        model.play([("page", [2]), ("page", [4]), ("begin", [])])
        assert model.round is not None
        assert model.round.settled == settled


@given(what=happenings)
def test_what_waits_is_bounded_where_fetchers_wait_for_room(what: list[tuple[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "BACKLOG_BYTES_MAX", 3 * BODY_BYTES)
        patch.setattr(gathering, "BACKLOG_LINKS_MAX", 6)
        model = Model(alone=True)
        for kind, argument in what:
            if kind != "page" or not model.next.overfull:
                model.play([(kind, argument)])
            assert len(model.next.outbox) <= 6 - 1 + 5, "one page may add its own"
        begun = [] if model.state.phase is not RoundPhase.WRITING or model.round is None else model.round.fetched
        assert len(pages_in(model.handed_in)) - len(model.durable & set(pages_in(model.handed_in))) <= 3 + len(begun)


@pytest.mark.parametrize(
    ("fact", "told"),
    [({}, True), ({"owns": True}, False), ({"awaited": True}, False), ({"awaited": True, "again": True}, True)],
    ids=["unasked", "own", "assigned", "assigned, and fetched before"],
)
def test_an_owner_that_does_not_wait_for_a_page_learns_that_it_is_fetched(fact: dict[str, bool], told: bool) -> None:
    model = Model(alone=False)
    model.own.owns = lambda key: fact.get("owns", False)
    model.own.awaited = lambda key: fact.get("awaited", False)
    model.page([])
    round_ = model.state.begin()
    assert round_ is not None
    key = pages_in(round_.fetched)[0]
    record = TaskReplica(key, Task("http://a/", 1, 1, ""))
    result = RoundResult(arrived=[record], refetched={key} if fact.get("again") else set())
    kept = [step for step in model.state.written(round_, result) if isinstance(step, Keep)]
    assert kept == ([Keep([record], [], [])] if told else [])


def test_a_page_that_was_there_before_is_not_copied_once_more_and_is_open_no_longer() -> None:
    model = Model(alone=False, copies=2)
    model.page([])
    model.page([])
    round_ = model.state.begin()
    assert round_ is not None
    first, again = pages_in(round_.fetched)
    steps = list(model.state.written(round_, RoundResult(refetched={again})))
    assert [step for step in steps if isinstance(step, CopyBodies)] == [CopyBodies([first], False)]
    assert list(model.next.open_pages) == [first]
    assert model.next.unwritten_pages == 0


def test_links_whose_records_are_doubted_are_sent_again_and_no_two_links_are_compared_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be thousands of them when a node comes or goes, and the loop stands still meanwhile."""
    compared = 0

    class ComparedLink(Link):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)

        __hash__ = tuple.__hash__

    monkeypatch.setattr(round_state, "LINKS_A_ROUND_MAX", 100)
    model = Model(alone=False)
    links = [ComparedLink(*link_of(number)) for number in range(40)]
    ours = [link for link in links if model.own.owns(link.key)]
    model.next.outbox.add(b"page", links)
    model.own.snapshot = lambda keys: EVERYTHING
    model.state.take_links()
    round_ = model.state.begin()
    assert round_ is not None
    model.own.mine = {link.key for link in ours[::2]}.__contains__  # another node has come
    acked = [step.links for step in model.state.written(round_, RoundResult()) if isinstance(step, AckOnceKept)]
    assert [[link.key for link in each] for each in acked] == [[link.key for link in ours[::2]]]
    assert [link.key for link in model.next.outbox.take(100)] == [link.key for link in ours[1::2]]
    assert compared == 0
