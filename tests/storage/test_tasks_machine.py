"""Any sequence of a task's transactions keeps the store whole; a model in plain Python says what it holds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage.stores import CRAWL, PLACE, Store, page

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import host_key
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import count_lost
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.fsck import check
from dhtcrawl.storage.store.records import SkipReason, State
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.url import host_of

HOSTS = ("a.example", "b.example:8080")
URLS = [f"http://{host}/{page}" for host in HOSTS for page in "123"]
SOME = st.lists(st.sampled_from(URLS), max_size=3, unique=True)


@dataclass
class Known:
    """A task as the model has it."""

    depth: int
    order: int
    state: State = State.PENDING
    links: list[str] = field(default_factory=list)
    marked: bool = False

    @property
    def arrived(self) -> bool:
        return self.state in (State.FETCHED, State.DONE)


class Tasks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.model: dict[str, Known] = {}
        self.orders = itertools.count(1)

    @initialize(key=st.sampled_from(["url", "host"]))
    def begin(self, key: str) -> None:
        self.spec = make_spec([URLS[0]], CrawlSettings(key=key))
        self._accept([URLS[0]], 0, depth_matters=True)

    def _accept(self, urls: list[str], depth: int, *, depth_matters: bool) -> None:
        links = [Link(self.spec.key_of(url), url, depth, "") for url in urls]
        accepted = self.store.run(
            lambda txn: tasks.accept(txn, CRAWL, links, self.store.orders, depth_matters=depth_matters)
        )
        new, queued, resend = 0, list[str](), list[str]()
        for url in urls:
            known = self.model.get(url)
            if known is None:
                self.model[url] = Known(depth, next(self.orders))
                new += 1
                queued.append(url)
            elif depth < known.depth:
                known.depth = depth
                if known.state == State.PENDING:
                    queued.append(url)
                elif known.arrived and depth_matters:
                    known.marked = True
                    resend.append(url)
        assert [task.url for task in accepted.queued] == queued
        assert accepted.resend == list(map(self.spec.key_of, resend))
        assert accepted.new == new

    @rule(urls=SOME, twice=SOME, depth=st.integers(0, 3), depth_matters=st.booleans())
    def accept(self, urls: list[str], twice: list[str], depth: int, depth_matters: bool) -> None:
        self._accept(urls + twice, depth, depth_matters=depth_matters)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), links=SOME, late=st.integers(0, 1), skipped=SOME, settled=st.booleans())
    def fetched(self, data: st.DataObject, links: list[str], late: int, skipped: list[str], settled: bool) -> None:
        url = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model[url]
        brought = page(url, known.depth + late, skipped=[(other, SkipReason.ROBOTS) for other in skipped])
        keyed: dict[str, Any] = {
            "key": self.spec.key_of(url),
            "depth": brought.depth,
            "fields": brought.fields,
            "link_keys": b"".join(map(self.spec.key_of, links)),
            "skipped": brought.skipped,
        }
        if settled:
            self._accept(links, known.depth + 1, depth_matters=False)
        _, again, resend, noted = self.store.run(
            lambda txn: tasks.fetched(txn, CRAWL, tasks.FetchedPage(**keyed), PLACE, 0, settled=settled)
        )
        assert again == known.arrived
        assert set(noted) <= {SkipReason.ROBOTS}
        assert resend == (late > 0 and not again)
        if not again:
            done = settled and not resend
            known.state, known.links, known.marked = State.DONE if done else State.FETCHED, links, not done

    @precondition(lambda self: any(known.arrived for known in self.model.values()))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        url = data.draw(st.sampled_from(sorted(url for url, known in self.model.items() if known.arrived)))
        known = self.model[url]
        # A page is settled once its links were accepted, not before.
        self._accept(known.links, known.depth + 1, depth_matters=False)
        self.store.run(lambda txn: tasks.settle(txn, CRAWL, self.spec.key_of(url)))
        known.state, known.marked = State.DONE, False

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        url = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model[url]
        killed = self.store.run(lambda txn: tasks.kill(txn, CRAWL, self.spec.key_of(url), "failed", "", 0)) is not None
        assert killed == (known.state == State.PENDING)
        if killed:
            known.state = State.DEAD

    @invariant()
    def fsck_finds_nothing(self) -> None:
        if self.model:
            findings = self.store.run(lambda txn: check(txn, CRAWL, self.spec, None))
            assert findings.problems == []
            assert findings.tasks == len(self.model)

    @invariant()
    def records_are_as_in_the_model(self) -> None:
        for url, known in self.model.items():
            task = self.store.run(partial(tasks.get_task, crawl=CRAWL, key=self.spec.key_of(url)))
            assert task is not None
            assert (task.state, task.depth, task.order) == (known.state, known.depth, known.order)

    @invariant()
    def queues_hold_what_is_pending(self) -> None:
        pending = sorted((k.depth, k.order, url) for url, k in self.model.items() if k.state == State.PENDING)
        for host in HOSTS:
            found, complete = self.store.run(partial(tasks.host_queue, crawl=CRAWL, host=host_key(host), limit=99))
            assert complete
            assert [(t.depth, t.order, t.url) for t in found] == [task for task in pending if host_of(task[2]) == host]
        hosts, _ = self.store.run(lambda txn: tasks.hosts_with_work(txn, CRAWL, b"", 99))
        assert {name for _, name in hosts} == {host_of(url) for _, _, url in pending}

    @invariant()
    def marks_are_what_a_restart_goes_on_with(self) -> None:
        marked = self.store.run(lambda txn: tasks.unsettled(txn, CRAWL, 99))
        assert marked == sorted(self.spec.key_of(url) for url, known in self.model.items() if known.marked)

    @invariant()
    def lost_are_links_nobody_accepted(self) -> None:
        if self.model:
            linked = {link for known in self.model.values() if known.arrived for link in known.links}
            width = self.spec.keys.width
            lost = self.store.run(lambda txn: count_lost(txn, CRAWL, width))
            assert lost == len(linked - set(self.model))


TestTasks = Tasks.TestCase
TestTasks.settings = settings(max_examples=60, stateful_step_count=25)
