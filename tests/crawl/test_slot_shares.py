"""One site does not take all places while others want one; alone it has them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from harness.memory import entries
from hypothesis import example, given
from hypothesis import strategies as st

from dhtcrawl.crawl.frontier import Job
from dhtcrawl.crawl.slot_shares import ADDRESSES_MAX, SHARE, NodeShares, SlotShares
from dhtcrawl.fetch.politeness import HostBook

from .by_hand import NOW, ByHand, make, over
from .stored import task

SLOTS = 32
GOOD = "good.example"
DRIPS = [f"n{number}.drip.example" for number in range(40)]


def frontier_of(hosts: Iterable[str], pages: int = 1, *, delay_s: float = 1.0, slots: int = SLOTS) -> ByHand:
    """Each host has so many pages, found in the order of the hosts."""
    made = make(delay_s=delay_s, parallel=slots, shares=SlotShares(slots), hosts_max=1_000)
    made.add([task(f"http://{host}/{page}", page) for host in hosts for page in range(pages)], NOW)
    return made


def started(frontier: ByHand, slots: int = SLOTS, now: float = NOW) -> list[Job]:
    """What starts now, as long as there are places."""
    jobs: list[Job] = []
    while frontier.in_flight < slots and (job := frontier.next(now)) is not None:
        jobs.append(job)
    return jobs


def by_site(jobs: Iterable[Job]) -> Counter[str]:
    return Counter(".".join(job.host.split(".")[-2:]) for job in jobs)


def test_a_site_alone_has_all_places() -> None:
    assert len(started(frontier_of(DRIPS))) == SLOTS
    assert len(started(frontier_of([GOOD], pages=100, delay_s=0.0))) == SLOTS


def test_beside_many_names_of_a_site_that_never_end_another_site_always_finds_a_place() -> None:
    frontier = frontier_of([*DRIPS, GOOD], pages=5)
    now, fetched = NOW, 0
    while fetched < 5:
        jobs = started(frontier, now=now)
        assert by_site(jobs)[GOOD] == 1, f"after {fetched} pages"
        for job in jobs:
            if job.host == GOOD:  # the others drip, and end never
                over(frontier, job, now)
                fetched += 1
        now += 1.0  # the delay
    assert frontier.in_flight == SLOTS - 1


def test_many_sites_beside_one_of_many_names_have_all_but_its_quarter() -> None:
    others = [f"site{number}.example" for number in range(40)]
    jobs = started(frontier_of([*DRIPS, *others]))
    assert by_site(jobs)["drip.example"] == SLOTS // SHARE
    assert len(jobs) == SLOTS


def test_two_sites_that_can_use_all_places_share_them() -> None:
    frontier = frontier_of(["a.example", "b.example"], pages=200, delay_s=0.0)
    jobs = started(frontier)
    for _ in range(200):
        over(frontier, jobs.pop(0))
        jobs += started(frontier)
        assert len(jobs) == SLOTS
        assert min(by_site(jobs).values()) >= SLOTS // SHARE


@pytest.mark.parametrize("known", [True, False])
def test_domains_at_one_address_are_one_site_once_that_is_known(known: bool) -> None:
    domains = [f"drip{number}.example" for number in range(40)]
    shares = SlotShares(SLOTS)
    for domain in domains if known else ():
        shares.located(domain, "192.0.2.1")
    frontier = make(delay_s=1.0, shares=shares, hosts_max=1_000)
    frontier.add([task(f"http://{host}/", 1) for host in [*domains, GOOD]], NOW)
    jobs = started(frontier)
    assert (GOOD in [job.host for job in jobs]) is known
    if not known:
        # Pages came from there meanwhile, so it is: the next place is for the other.
        for domain in domains:
            shares.located(domain, "192.0.2.1")
        over(frontier, jobs[0])
        assert [job.host for job in started(frontier)] == [GOOD]


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7])
def test_with_few_places_each_site_still_has_one(slots: int) -> None:
    frontier = frontier_of([*DRIPS, GOOD], slots=slots)
    jobs = started(frontier, slots)
    assert len(jobs) == slots
    assert by_site(jobs)["drip.example"] >= 1
    if slots > 1:
        assert by_site(jobs)[GOOD] == 1


def test_a_host_that_may_not_be_asked_for_long_keeps_no_place_free() -> None:
    book = HostBook(started_at=0.0, fresh=True)
    frontier = make(delay_s=60.0, shares=SlotShares(SLOTS), hosts_max=1_000, book=book)
    book.clock(GOOD).end(NOW)
    frontier.add([task(f"http://{host}/", 1) for host in [*DRIPS, GOOD]], NOW)
    assert len(started(frontier)) == SLOTS


def two_crawls() -> tuple[SlotShares, SlotShares]:
    node = NodeShares()
    both = SlotShares(SLOTS, crawls=node), SlotShares(SLOTS, crawls=node)
    for shares in both:
        shares.run()
    return both


def fill(shares: SlotShares, host: str, at_most: int = SLOTS) -> int:
    """How many requests of a host begin."""
    for begun in range(at_most):
        shares.wants(host, True)
        if shares.puts_aside(host) and shares.again() is None:
            return begun
        shares.begins(host)
    return at_most


def test_a_site_that_is_alone_in_its_crawl_leaves_what_another_crawl_could_use() -> None:
    drips, good = two_crawls()
    good.wants(GOOD, True)
    assert fill(drips, "drip.example") == SLOTS - 1
    assert fill(good, GOOD, 1) == 1
    assert drips.needed == 0


@pytest.mark.parametrize("why", ["paused", "ended", "nothing to do"])
def test_a_crawl_that_begins_no_requests_keeps_no_place_from_another(why: str) -> None:
    drips, good = two_crawls()
    good.wants(GOOD, True)
    if why == "paused":
        good.may_start = False
    elif why == "ended":
        good.close()
    else:
        good.wants(GOOD, False)
    assert fill(drips, "drip.example") == SLOTS


def test_two_crawls_of_one_site_each_share_the_places_and_each_has_a_quarter() -> None:
    one, other = two_crawls()
    other.wants("b.example", True)
    assert fill(one, "a.example") == SLOTS - 1
    assert fill(other, "b.example") == SLOTS // SHARE
    for _ in range(SLOTS):
        one.ends("a.example")
        fill(one, "a.example")
        fill(other, "b.example")
    assert one.in_flight + other.in_flight <= SLOTS + SLOTS // SHARE
    assert min(one.in_flight, other.in_flight) >= SLOTS // SHARE


def test_the_list_of_suffixes_is_not_read_where_no_site_could_take_too_much() -> None:
    def read(host: str) -> str:
        raise AssertionError(host)

    shares = SlotShares(SLOTS, read)
    for host in ("a.example", *["b.example"] * 6):
        shares.wants(host, True)
        assert not shares.puts_aside(host)
        shares.begins(host)
    alone = SlotShares(SLOTS, read)
    for _ in range(SLOTS):
        alone.wants(GOOD, True)
        assert not alone.puts_aside(GOOD)
        alone.begins(GOOD)


def test_addresses_are_bounded() -> None:
    shares = SlotShares(SLOTS)
    for number in range(ADDRESSES_MAX + 10):
        shares.located(f"h{number}", f"{number}")
    assert entries(shares) == ADDRESSES_MAX


HOSTS = [f"{name}.{site}.example" for site in "abc" for name in ("x", "y", "z")]
STEPS = st.lists(st.tuples(st.sampled_from(["end", "locate", "pause", "add"]), st.integers(0, 99)), max_size=60)


@given(st.integers(1, 9), st.sampled_from([0.0, 1.0]), STEPS)
# The first in a line waited for something else by then, and those behind it for nothing.
@example(4, 0.0, [("locate", 0), ("add", 14), ("end", 1), ("end", 1), ("locate", 14), ("locate", 57)])
def test_no_place_stays_empty_for_nothing_and_every_task_is_started_once(
    slots: int, delay_s: float, steps: list[tuple[str, int]]
) -> None:
    shares = SlotShares(slots)
    frontier = make(delay_s=delay_s, parallel=slots, shares=shares)
    frontier.add([task(f"http://{host}/{page}", page) for host in HOSTS for page in range(3)], NOW)
    now, jobs, done, added, at = NOW, list[Job](), list[str](), 3, dict[str, str]()

    def start() -> None:
        jobs.extend(started(frontier, slots, now))
        quarter, free = max(1, slots // SHARE), slots - len(jobs)
        waiting = [host.name for host in frontier.hosts() if host.front and free]
        for name in waiting:
            if frontier.book.clock(name).ready_at(delay_s, 1 if delay_s else slots) <= now:
                busy = sum(job.host.split(".")[1] == name.split(".")[1] for job in jobs)
                there = sum(at.get(job.host, "") == at.get(name, "elsewhere") for job in jobs)
                assert max(busy, there) >= quarter, f"{name} could have had a place"
                assert free <= slots // 2

    def end(which: int) -> None:
        job = jobs.pop(which % len(jobs))
        assert job.task is not None
        done.append(job.task.url)
        over(frontier, job, now)
        frontier.written(job.host, job.task.key, now)

    for what, which in steps:
        start()
        if what == "end" and jobs:
            end(which)
        elif what == "locate":
            at[HOSTS[which % len(HOSTS)]] = f"192.0.2.{which % 2}"
            shares.located(HOSTS[which % len(HOSTS)], f"192.0.2.{which % 2}")
        elif what == "pause":
            now += 1.0
        elif what == "add":
            host = HOSTS[which % len(HOSTS)]
            frontier.add([task(f"http://{host}/{added}", added)], now)
            added += 1
    for _ in range(1_000):
        now += 1.0
        start()
        while jobs:
            end(0)
    assert frontier.empty
    assert len(done) == len(set(done)) == 3 * len(HOSTS) + added - 3
