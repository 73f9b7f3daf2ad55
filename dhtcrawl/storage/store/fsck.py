"""Checks the invariants of a store: read only, every record once.

| checked                                                                 | invariant |
|-------------------------------------------------------------------------|-----------|
| a task record reads, and lies under the key of its URL                  |           |
| pending ⇔ in its host's queue, once                                     |           |
| fetched or done ⇒ page record, link keys, and a place within the archive | I3, I11  |
| done ⇒ every in-scope link has a record; fetched ⇒ marked for a restart, | I3       |
| pending or dead ⇒ not marked                                             |           |
| dead ⇒ a reason, and neither queue entry nor page                       | I2        |

A node of a swarm (`catalog.mark_swarm`) also has replicas of others' tasks, and pages
whose task record other nodes keep, or names another node's page. There remains:

| checked                                                                 | invariant |
|-------------------------------------------------------------------------|-----------|
| queued ⇒ pending, and once; page record ⇔ link keys                     |           |
| fetched or done ⇔ a place; at this node ⇒ page record, within the archive | I3, I11 |
| fetched, at this node ⇒ marked; marked ⇒ a task and a page record       | I3        |
| dead ⇒ a reason                                                         | I2        |
| a copied page ⇔ its link keys, within the archive                       | I11       |
| a list of who has copies ⇒ a page record                                | I11       |

Runs as transactions on the committer's thread, one record kind after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dhtcrawl.errors import StorageError
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import State, Task, unpack, unpack_task
from dhtcrawl.storage.store.tasks import link_keys_of, queue_key
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import host_of

PROBLEMS_KEPT_MAX = 1_000


@dataclass(slots=True)
class Findings:
    """Counts what was checked and its problems; at most `PROBLEMS_KEPT_MAX` problems are kept."""

    tasks: int = 0
    pages: int = 0
    links: int = 0
    problems: list[str] = field(default_factory=list)
    problems_total: int = 0

    def add(self, problem: str) -> None:
        self.problems_total += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(problem)


def check(
    txn: Txn, crawl: bytes, spec: CrawlSpec, archive: Directory | None, findings: Findings | None = None
) -> Findings:
    """Check every record of a crawl against the others; `archive` None leaves the files out.

    `findings` that are given grow meanwhile, for those who want to see how far it is.
    """
    findings = Findings() if findings is None else findings
    node = catalog.swarm_node(txn)
    _check_tasks(txn, crawl, spec, node, findings)
    _check_queues(txn, crawl, findings)
    _check_orphans(txn, crawl, node, findings)
    if archive is not None:
        _check_archive(txn, crawl, archive, findings)
    else:
        findings.pages = sum(1 for _ in txn.rows(keys.PAGE, crawl))
    return findings


class _Around(NamedTuple):
    """Which other records stand under a task's key."""

    queued: bool
    page: bool
    links: bytes | None
    marked: bool


def _check_tasks(txn: Txn, crawl: bytes, spec: CrawlSpec, node: str | None, findings: Findings) -> None:
    for key, task in _tasks(txn, crawl, findings):
        findings.tasks += 1
        if spec.key_of(task.url) != key:
            findings.add(f"{task.url}: lies under the key of another URL")
        around = _Around(
            queued=txn.get(queue_key(crawl, key, task)) is not None,
            page=txn.get(keys.PAGE + crawl + key) is not None,
            links=txn.get(keys.LINKS + crawl + key),
            marked=txn.get(keys.FETCHED + crawl + key) is not None,
        )
        if node is None:
            _check_alone(task, around, findings)
            _check_links(txn, crawl, task, around, spec.keys.width, findings)
        else:
            _check_shared(task, around, node, findings)
        if task.state == State.DEAD and not task.reason:
            findings.add(f"{task.url}: is dead without a reason")


def _check_alone(task: Task, around: _Around, findings: Findings) -> None:
    """Check a task of a node that has all tasks of the crawl."""
    state, marked = task.state.name.lower(), around.marked
    if around.queued != (task.state == State.PENDING):
        findings.add(f"{task.url}: is {state}, but {'still' if around.queued else 'not'} in its host's queue")
    arrived = task.state in (State.FETCHED, State.DONE)
    if around.page != arrived or (around.links is not None) != arrived or (task.place is not None) != arrived:
        findings.add(f"{task.url}: is {state}, but its page record, links or place say otherwise")
    if task.state == State.FETCHED and not marked:
        findings.add(f"{task.url}: is fetched, but a restart would not go on with it")
    if marked and not arrived:
        findings.add(f"{task.url}: is {state}, but a restart would take it for fetched")


def _check_links(txn: Txn, crawl: bytes, task: Task, around: _Around, width: int, findings: Findings) -> None:
    if task.state == State.DONE and around.links is not None and not around.marked:
        for link in link_keys_of(around.links, width):
            findings.links += 1
            if txn.get(keys.TASK + crawl + link) is None:
                findings.add(f"{task.url}: is done, but its link {link.hex()} has no record")


def _check_shared(task: Task, around: _Around, node: str, findings: Findings) -> None:
    """Check a task of a swarm's node: it may be a replica, or fetched by another node, or by both."""
    state = task.state.name.lower()
    if around.queued and task.state != State.PENDING:
        findings.add(f"{task.url}: is {state}, but still in its host's queue")
    arrived = task.state in (State.FETCHED, State.DONE)
    here = task.place is not None and task.place.node == node
    if (task.place is not None) != arrived or (here and not around.page):
        findings.add(f"{task.url}: is {state}, but its page record, links or place say otherwise")
    if task.state == State.FETCHED and here and not around.marked:
        findings.add(f"{task.url}: is fetched, but a restart would not go on with it")
    if around.marked and not around.page:
        findings.add(f"{task.url}: is {state}, but a restart would take it for fetched")


def _tasks(txn: Txn, crawl: bytes, findings: Findings) -> Iterator[tuple[bytes, Task]]:
    for key, value in txn.rows(keys.TASK, crawl):
        task = _readable(value)
        if task is None:
            findings.add(f"task {key.hex()}: unreadable record")
        else:
            yield key, task


def _readable(value: bytes) -> Task | None:
    try:
        task = unpack_task(value)
        host_of(task.url)  # raises if it is not a URL
        return task
    except (StorageError, ValueError, AttributeError):
        return None


def _check_queues(txn: Txn, crawl: bytes, findings: Findings) -> None:
    for full, _ in txn.scan(*keys.bounds(keys.QUEUE, crawl)):
        key = keys.queue_task(full)
        value = txn.get(keys.TASK + crawl + key)
        if value is None:
            findings.add(f"queue entry of {key.hex()}: there is no such task")
            continue
        task = _readable(value)
        if task is not None and queue_key(crawl, key, task) != full:
            findings.add(f"{task.url}: has a stray entry in its host's queue")


def _check_orphans(txn: Txn, crawl: bytes, node: str | None, findings: Findings) -> None:
    # In a swarm other nodes may keep the task of a page; then its page record and link keys need each other.
    needs = {keys.PAGE: keys.TASK, keys.LINKS: keys.TASK, keys.FETCHED: keys.TASK}
    if node is not None:
        needs |= {keys.PAGE: keys.LINKS, keys.LINKS: keys.PAGE}
        needs |= {keys.COPY: keys.COPY_LINKS, keys.COPY_LINKS: keys.COPY, keys.HOLDERS: keys.PAGE}
    names = {keys.PAGE: "page record", keys.LINKS: "link keys", keys.FETCHED: "mark", keys.TASK: "task"}
    names |= {keys.COPY: "copied page", keys.COPY_LINKS: "link keys of a copy", keys.HOLDERS: "list of copies"}
    for kind, needed in needs.items():
        for key, _ in txn.rows(kind, crawl):
            if txn.get(needed + crawl + key) is None:
                verb = "are" if needed in (keys.LINKS, keys.COPY_LINKS) else "is"
                findings.add(f"{names[kind]} of {key.hex()}: there {verb} no such {names[needed]}")


def _check_archive(txn: Txn, crawl: bytes, archive: Directory, findings: Findings) -> None:
    lengths: dict[str, int] = {}
    present = set(archive.names())
    for suffix, value in txn.rows(keys.ARCHIVE, crawl):
        name = suffix.decode(errors="replace")
        length = _decoded(value)
        if not isinstance(length, int):
            findings.add(f"{name}: unreadable record of how much is committed")
            continue
        lengths[name] = length
        if name not in present:
            findings.add(f"{name}: {length} bytes are committed, but the file is gone")
        elif length and len(archive.read(name, length - 1, 1)) != 1:
            findings.add(f"{name}: is shorter than the {length} bytes that are committed")
    for kind, what in ((keys.PAGE, "page record"), (keys.EXTRA, "index entry"), (keys.COPY, "copied page")):
        for key, value in txn.rows(kind, crawl):
            findings.pages += kind == keys.PAGE
            match _decoded(value):
                case {"url": str(url), "place": [str(), str(file), int(offset), int(length)]}:
                    if offset + length > lengths.get(file, 0):
                        findings.add(f"{url}: its body would lie behind the end of {file}")
                case _:
                    findings.add(f"{what} of {key.hex()}: unreadable")


def _decoded(value: bytes) -> object:
    try:
        return unpack(value)
    except StorageError:
        return None
