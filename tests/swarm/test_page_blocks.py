"""`--max-pages` in blocks: never more than the limit, whoever dies, comes back or is not heard."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.swarm.calls.lifecycle import BOOK_NODES_MAX, EPOCH_MAX, PAGES_MAX
from dhtcrawl.swarm.calls.words import COUNT_MAX
from dhtcrawl.swarm.lifecycle import page_blocks
from dhtcrawl.swarm.lifecycle.page_blocks import (
    BLOCK_MAX,
    EMPTY_S,
    GIVE_BACK_AFTER_S,
    RETRY_S,
    PageAllowance,
    PageBlocks,
    PageBook,
    PagesAsk,
    next_epoch,
    stepped,
)

A, B, C = (bytes([number]) * 20 for number in (0xA1, 0xB2, 0xC3))


def blocks(limit: int, *nodes: bytes) -> PageBlocks:
    """A coordinator that has claimed these, who have nothing yet."""
    made = PageBlocks(limit, PageBook())
    made.begin(next_epoch(0, A))
    for node in nodes:
        made.claimed(node, 0, 0)
    return made


def ask(of: PageBlocks, node: bytes, serial: int, out: int, want: int, members: int = 1) -> int | None:
    return of.ask(node, PagesAsk(of.epoch, serial, out, want), members)


# The coordinator's side


def test_blocks_shrink_with_what_is_left_until_nothing_is() -> None:
    coordinator, out = blocks(100, A), 0
    given_out: list[int] = []
    while coordinator.left:
        before, out = out, ask(coordinator, A, len(given_out) + 1, out, 1000, members=2) or 0
        given_out.append(out - before)
    assert given_out == [25, 19, 14, 11, 8, 6, 5, 3, 3, 2, 1, 1, 1, 1]
    assert ask(coordinator, A, 99, 100, 10) == 100
    assert ask(blocks(10_000, A), A, 1, 0, 1000) == BLOCK_MAX
    assert ask(blocks(10_000, A), A, 1, 0, 3) == 3


def test_what_a_node_gives_back_is_for_the_others() -> None:
    coordinator = blocks(8, A, B)
    assert ask(coordinator, A, 1, 0, 8) == 4
    assert ask(coordinator, B, 1, 0, 8) == 2
    assert ask(coordinator, A, 2, 1, 0) == 1
    assert coordinator.left == 5
    assert ask(coordinator, B, 2, 2, 8) == 5


def test_an_answer_that_was_lost_costs_nothing() -> None:
    coordinator = blocks(8, A)
    assert ask(coordinator, A, 1, 0, 8) == 4
    assert ask(coordinator, A, 2, 0, 8) == 4
    assert coordinator.left == 4


def test_an_ask_that_was_overtaken_is_not_answered() -> None:
    coordinator = blocks(8, A)
    assert ask(coordinator, A, 2, 3, 0) == 3
    assert ask(coordinator, A, 1, 0, 8) is None
    assert ask(coordinator, A, 2, 0, 8) is None
    assert coordinator.left == 5


def test_nobody_gets_pages_before_it_was_claimed_or_after_it_started_anew() -> None:
    coordinator = blocks(8, A)
    assert ask(coordinator, B, 1, 0, 8) is None
    assert coordinator.unclaimed([A, B]) == [B]
    assert coordinator.ask(A, PagesAsk(0, 1, 0, 8), 1) is None
    assert coordinator.unclaimed([A, B]) == [A, B]


def test_who_began_anew_without_a_restart_is_claimed_again_at_its_first_ask() -> None:
    """It counts its asks from the same number on: the run that was claimed had asked often."""
    coordinator = blocks(8, A)
    coordinator.claimed(A, 1_000, 0)
    assert coordinator.ask(A, PagesAsk(0, 1, 0, 8), 1) is None
    assert coordinator.unclaimed([A]) == [A]


def test_an_ask_from_before_the_claim_is_not_answered() -> None:
    coordinator = blocks(30, A)
    coordinator.claimed(A, 7, 12)
    assert ask(coordinator, A, 7, 10, 0) is None
    assert coordinator.left == 18


def test_a_coordinator_that_is_deposed_has_claimed_nobody() -> None:
    coordinator = blocks(8, A)
    coordinator.depose()
    assert coordinator.unclaimed([A]) == [A]
    assert coordinator.ask(A, PagesAsk(0, 9, 0, 8), 1) is None


def test_what_is_out_at_a_node_that_is_gone_counts_for_the_next_coordinator() -> None:
    first = blocks(100, A, B)
    ask(first, A, 1, 0, 30)
    successor = PageBlocks(100, PageBook())
    successor.book.learn(first.book.rows())
    successor.begin(next_epoch(first.epoch, B))
    successor.claimed(B, 5, 0)
    assert successor.left == 70
    # It was not gone after all, and has used three of them.
    successor.claimed(A, 9, 3)
    assert successor.left == 97


def test_more_out_than_the_limit_leaves_nothing_and_breaks_nothing() -> None:
    coordinator = blocks(10, A, B)
    coordinator.claimed(A, 1, 50)
    assert coordinator.left == 0
    assert ask(coordinator, B, 2, 1, 5) == 1


# The book


def test_a_book_keeps_the_later_word_whatever_comes_first() -> None:
    early, late = PageBook(), PageBook()
    early.put(A, (1, 9, 5))
    late.put(A, (2, 1, 3))
    for one, other in ((early, late), (late, early)):
        book = PageBook()
        book.learn(one.rows())
        book.learn(other.rows())
        assert book.out(A) == 3
        assert book.total == 3
        assert book.epoch == 2
        assert book.leaps == 0


def test_an_epoch_far_ahead_leaves_epochs_for_the_next_coordinators() -> None:
    book = PageBook()
    book.put(A, (next_epoch(0, A), 1, 5))
    liar = PageBook()
    liar.put(A, (EPOCH_MAX, 2, 7))
    book.learn(liar.rows())
    assert book.out(A) == 7
    assert book.leaps == 1
    assert book.epoch == stepped(EPOCH_MAX, next_epoch(0, A)) < 2_000 << 32
    one = holder()
    assert one.claim(EPOCH_MAX) == 0
    assert one.claim(next_epoch(one.epoch, B)) == 0
    assert next_epoch(one.epoch, B) <= EPOCH_MAX


@given(st.integers(1, 9_000))
def test_an_honest_epoch_is_reached_in_a_few_claims(coordinators: int) -> None:
    one, epoch = holder(), coordinators << 32 | 7
    for _ in range(10):
        assert one.claim(epoch) == 0
    assert one.epoch == epoch


def test_only_rows_that_changed_are_sent_again() -> None:
    book = PageBook()
    book.put(A, (1, 1, 5))
    version = book.version
    book.put(B, (1, 2, 7))
    book.put(A, (1, 1, 5))
    other = PageBook()
    other.learn(book.rows(after=version))
    assert (other.out(A), other.out(B)) == (0, 7)
    assert book.rows(after=book.version) == b""


@given(st.integers(0, 4).flatmap(lambda rows: st.binary(min_size=44 * rows, max_size=44 * rows)))
def test_no_rows_make_a_book_raise(rows: bytes) -> None:
    book = PageBook()
    book.learn(rows)
    assert book.total >= 0


@pytest.mark.parametrize("row", [(EPOCH_MAX + 1, 1, 1), (1, COUNT_MAX + 1, 1), (1, 1, PAGES_MAX + 1)])
def test_a_row_whose_numbers_no_node_could_send_on_is_left_out(row: tuple[int, int, int]) -> None:
    liar, book = PageBook(), PageBook()
    liar.put(A, row)
    liar.put(B, (1, COUNT_MAX, PAGES_MAX))
    book.learn(liar.rows())
    assert (book.out(A), book.out(B)) == (0, PAGES_MAX)


def test_a_full_book_still_hears_of_the_nodes_that_stand_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_blocks, "BOOK_NODES_MAX", 1)
    coordinator = blocks(100, A)
    assert coordinator.book.has_room_for(A)
    assert ask(coordinator, A, 1, 0, 8) == 8
    assert coordinator.left == 92


def test_a_full_book_takes_no_further_node_and_hands_out_nothing_to_it() -> None:
    coordinator = blocks(10_000, A)
    for number in range(BOOK_NODES_MAX):
        coordinator.book.put(number.to_bytes(20, "big"), (1, 1, 1))
    assert len(coordinator.book) == BOOK_NODES_MAX
    coordinator.claimed(B, 1, 0)
    assert coordinator.unclaimed([A, B]) == [B]


def test_epochs_of_two_coordinators_are_never_the_same() -> None:
    assert next_epoch(0, A) < next_epoch(0, B) < next_epoch(next_epoch(0, A), A)


# The holder's side


def holder(limit: int = 100, used: int = 0) -> PageAllowance:
    made = PageAllowance(limit)
    made.begin(used, 1)
    return made


def granted(of: PageAllowance, pages: int, now: float = 0.0, queued: int = 1000) -> None:
    asked = of.next_ask(of.out, queued, now)
    assert asked is not None
    assert of.answered(asked, asked.out + pages, now)


def test_without_a_limit_nobody_is_asked() -> None:
    free = holder(limit=0)
    assert free.may_start(10**9)
    assert free.next_ask(0, 1000, 0.0) is None


def test_a_raised_limit_is_asked_for_again_and_a_lowered_one_gives_back_what_is_not_used() -> None:
    one = holder(limit=5)
    granted(one, 5)
    nothing = one.next_ask(5, 10, 0.0)
    assert nothing is not None
    one.answered(nothing, 5, 0.0)
    assert one.next_ask(5, 10, 0.1) is None, "there is nothing left"
    one.change(20, used=5)
    asked = one.next_ask(5, 10, 0.1)
    assert asked is not None
    one.change(3, used=5)
    assert not one.answered(asked, 9, 0.2), "what was asked before the change is void"
    assert not one.may_start(5)
    told = one.next_ask(5, 0, 0.2)
    assert told is not None
    assert (told.out, told.want) == (5, 0), "the coordinator hears what is out"


def test_a_limit_may_come_to_a_crawl_that_had_none_and_go_again() -> None:
    one = holder(limit=0)
    one.change(10, used=7)
    assert not one.may_start(7)
    granted(one, 3)
    assert one.may_start(7, 2)
    one.change(0, used=9)
    assert one.may_start(10**9)
    assert one.next_ask(9, 1000, 5.0) is None


def test_pages_in_flight_use_up_an_allowance() -> None:
    one = holder()
    assert not one.may_start(0)
    granted(one, 3)
    assert one.may_start(1, 1)
    assert not one.may_start(1, 2)
    assert not one.may_start(3)


def test_more_is_asked_for_before_the_last_is_used_and_one_ask_at_a_time() -> None:
    one = holder()
    granted(one, 10)
    assert one.next_ask(4, 50, 1.0) is None
    asked = one.next_ask(5, 50, 1.0)
    assert asked is not None
    assert (asked.out, asked.want) == (10, 45)
    assert one.next_ask(6, 50, 1.0) is None
    assert one.answered(asked, 12, 1.0)
    assert one.out == 12


def test_who_is_given_nothing_asks_again_in_a_while() -> None:
    one = holder()
    asked = one.next_ask(0, 5, 0.0)
    assert asked is not None
    assert not one.answered(asked, 0, 0.0)
    assert one.next_ask(0, 5, EMPTY_S / 2) is None
    again = one.next_ask(0, 5, EMPTY_S)
    assert again is not None
    assert not one.answered(again, None, EMPTY_S)
    assert one.next_ask(0, 5, EMPTY_S + RETRY_S / 2) is None
    assert one.next_ask(0, 5, EMPTY_S + RETRY_S) is not None


def test_what_there_is_no_task_for_is_given_back_after_a_while() -> None:
    one = holder()
    granted(one, 10)
    assert one.next_ask(2, 3, 5.0) is None
    assert one.next_ask(2, 9, 5.5) is None  # there is work again: the while begins anew
    assert one.next_ask(2, 3, 6.0) is None
    back = one.next_ask(2, 3, 6.0 + GIVE_BACK_AFTER_S)
    assert back is not None
    assert (back.out, back.want, one.out) == (5, 0, 5)
    # It is gone although nobody heard of it, and is said until somebody does.
    assert not one.answered(back, None, 8.0)
    again = one.next_ask(2, 3, 9.0)
    assert again is not None
    assert (again.out, again.want) == (5, 0)
    assert not one.answered(again, 5, 9.0)
    assert one.next_ask(2, 3, 10.0) is None


def test_what_was_given_in_an_answer_that_was_lost_is_said_to_be_unused_also_without_further_work() -> None:
    """Else the coordinator would count it as out, and wait for ever for its use."""
    coordinator, one = blocks(8, A), PageAllowance(8)
    one.begin(0, 0)
    one.claim(coordinator.epoch)
    asked = one.next_ask(0, 5, 0.0)
    assert asked is not None
    assert coordinator.ask(A, asked, 1) == 4
    assert not one.answered(asked, None, 0.0)
    told = one.next_ask(0, 0, RETRY_S)  # its tasks have died meanwhile, or are another's
    assert told is not None
    assert one.answered(told, coordinator.ask(A, told, 1), RETRY_S) is False
    assert coordinator.left == 8
    assert one.next_ask(0, 0, 10.0) is None


@pytest.mark.parametrize("out", [-1, 9, 21])
def test_an_answer_of_less_than_there_was_or_more_than_was_asked_for_is_none(out: int) -> None:
    one = holder(used=10)
    asked = one.next_ask(10, 10, 0.0)
    assert asked is not None
    assert not one.answered(asked, out, 0.0)
    assert one.out == 10


def test_an_answer_after_the_next_coordinators_claim_is_void() -> None:
    one = holder()
    asked = one.next_ask(0, 10, 0.0)
    assert asked is not None
    assert one.claim(next_epoch(0, B)) == 0
    assert not one.answered(asked, 10, 0.0)
    assert one.out == 0
    assert one.claim(next_epoch(0, A)) is None  # an earlier one
    again = one.next_ask(0, 10, 0.0)
    assert again is not None
    assert again.serial > asked.serial
    assert again.epoch == next_epoch(0, B)


def test_after_a_restart_only_what_is_on_disk_is_out() -> None:
    before = holder()
    granted(before, 10)
    after = PageAllowance(100)
    after.begin(4, 2)
    assert after.claim(1) == 4
    asked = after.next_ask(4, 10, 0.0)
    assert asked is not None
    assert asked.serial > before.serial


# A model of all of it


@dataclass(slots=True)
class Holder:
    """A node: what it may use, what it has used, and its side as a coordinator."""

    name: bytes
    allowance: PageAllowance
    blocks: PageBlocks
    disk: int = 0
    in_flight: int = 0
    incarnation: int = 1
    alive: bool = True
    seen: int = 0


@dataclass(slots=True)
class Model:
    """Nodes that fetch, coordinators that come and go, messages that come late, twice or never."""

    rng: random.Random
    limit: int
    losses: int = 2  # of memories: W notes survive as many
    nodes: list[Holder] = field(default_factory=list)
    asks: list[tuple[Holder, Holder, PagesAsk]] = field(default_factory=list)
    answers: list[tuple[Holder, int, PagesAsk, int | None]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        for number in range(5):
            allowance = PageAllowance(self.limit)
            allowance.begin(0, 1)
            self.nodes.append(Holder(bytes([number]) * 20, allowance, PageBlocks(self.limit, PageBook())))

    @property
    def living(self) -> list[Holder]:
        return [node for node in self.nodes if node.alive]

    def check(self) -> None:
        used = sum(node.disk + node.in_flight for node in self.nodes)
        may_still = sum(node.allowance.out - node.disk - node.in_flight for node in self.living)
        assert used + may_still <= self.limit

    def step(self) -> None:
        self.now += 0.1
        node = self.rng.choice(self.living)
        common = [self.use, self.use, self.ask, self.handle_ask, self.handle_answer, self.claim]
        rare = [self.take_over, self.restart, self.die, self.raise_limit, self.hear_of_limit, self.hear_of_limit]
        self.rng.choice(common if self.rng.random() < 0.9 else rare)(node)
        self.check()

    def use(self, node: Holder) -> None:
        if node.in_flight and self.rng.random() < 0.5:
            node.in_flight -= 1
            node.disk += self.rng.random() < 0.8  # else it was no page
        elif node.allowance.may_start(node.disk, node.in_flight):
            node.in_flight += 1

    def ask(self, node: Holder) -> None:
        queued = self.rng.choice([0, 2, 50])
        asked = node.allowance.next_ask(node.disk + node.in_flight, queued, self.now)
        if asked is not None:
            coordinator = self.rng.choice([n for n in self.living if n.blocks.epoch] or [node])
            self.asks.append((coordinator, node, asked))

    def handle_ask(self, _: Holder) -> None:
        if not self.asks:
            return
        index = self.rng.randrange(len(self.asks))
        coordinator, node, asked = self.asks[index]
        if self.rng.random() < 0.9:
            self.asks.pop(index)
        living = self.living
        out = None
        if coordinator.alive and not coordinator.blocks.unclaimed(n.name for n in living) and self.rng.random() < 0.9:
            out = coordinator.blocks.ask(node.name, asked, len(living))
        if out is not None and out > asked.out:
            others = [n for n in living if n is not coordinator]
            for successor in self.rng.sample(others, min(2, len(others))):
                successor.blocks.book.learn(coordinator.blocks.book.rows())
        self.answers.append((node, node.incarnation, asked, out))

    def handle_answer(self, _: Holder) -> None:
        if self.answers:
            node, incarnation, asked, out = self.answers.pop(self.rng.randrange(len(self.answers)))
            if node.alive and node.incarnation == incarnation:
                node.allowance.answered(asked, out if self.rng.random() < 0.9 else None, self.now)

    def take_over(self, node: Holder) -> None:
        node.seen = max(node.seen, node.blocks.book.epoch, node.allowance.epoch)
        node.blocks.begin(next_epoch(node.seen, node.name))

    def claim(self, _: Holder) -> None:
        """One of those who coordinate, or think so, claims one member."""
        coordinators = [node for node in self.living if node.blocks.epoch]
        if not coordinators:
            self.take_over(self.rng.choice(self.living))
            return
        coordinator = self.rng.choice(coordinators)
        for node in self.living:
            if node.name in coordinator.blocks.unclaimed([node.name]):
                break
        else:
            return
        epoch = coordinator.blocks.epoch
        if node is not coordinator:
            node.blocks.depose()
        out = node.allowance.claim(epoch)
        if self.rng.random() < 0.1:
            return
        if out is None:
            coordinator.seen = max(coordinator.seen, node.allowance.epoch)
            coordinator.blocks.depose()
            return
        coordinator.blocks.book.learn(node.blocks.book.rows())
        coordinator.blocks.claimed(node.name, node.allowance.serial, out)
        if coordinator.blocks.book.epoch > epoch:
            coordinator.blocks.depose()

    def raise_limit(self, node: Holder) -> None:
        self.limit += 5
        self.hear_of_limit(node)

    def hear_of_limit(self, node: Holder) -> None:
        node.blocks.limit = self.limit
        node.allowance.change(self.limit, node.disk + node.in_flight)

    def restart(self, node: Holder) -> None:
        if self.losses:
            self.losses -= 1
            node.incarnation += 1
            node.in_flight = 0
            node.allowance = PageAllowance(self.limit)
            node.allowance.begin(node.disk, node.incarnation)
            node.blocks = PageBlocks(self.limit, PageBook())

    def die(self, node: Holder) -> None:
        if self.losses:
            self.losses -= 1
            node.in_flight = 0
            node.alive = False


@settings(max_examples=60)
@given(rng=st.randoms(use_true_random=False), limit=st.sampled_from([1, 3, 10, 60, 400]), steps=st.integers(50, 400))
def test_no_more_pages_than_the_limit_are_ever_used_or_usable(rng: random.Random, limit: int, steps: int) -> None:
    model = Model(rng, limit)
    for _ in range(steps):
        model.step()


def test_the_same_over_many_longer_runs() -> None:
    spent = 0
    for seed in range(60):
        model = Model(random.Random(seed), 80)
        for _ in range(1500):
            model.step()
        spent += sum(node.disk for node in model.nodes)
    assert spent > 60 * 40  # the model is no desert
