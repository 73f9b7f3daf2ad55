"""The debug mode that finds transactions which use what the event loop changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.loop_state import LoopStateUsed, check_loop_state, faults, loop_state, run_transaction

check_loop_state()


@loop_state
class Book:
    """Something that the loop changes."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count > 3

    def add(self) -> None:
        self.count += 1

    def added(self, _: object) -> None:
        self.add()

    def __len__(self) -> int:
        return self.count


BOOK = Book()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    faults.clear()


def within(use: Callable[[Book], Any]) -> None:
    """Use the book in a transaction whose function does not refer to it."""
    run_transaction(lambda _: use(BOOK), None)


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda book: book.add(), "Book.add"),
        (lambda book: book.full, "Book.full"),
        (len, "Book.__len__"),
        (lambda book: setattr(book, "count", 2), "Book.count"),
    ],
)
def test_a_use_within_a_transaction_is_refused_and_named(use: Callable[[Book], Any], named: str) -> None:
    with pytest.raises(LoopStateUsed, match=named):
        within(use)
    assert named in faults[0]


def test_a_transaction_that_refers_to_it_is_refused_before_it_runs() -> None:
    book, ran = Book(), []

    def reads(_: object) -> int:
        ran.append(1)
        return book.count

    for function in (reads, book.added, partial(reads), partial(lambda _, given: given, given=book)):
        with pytest.raises(LoopStateUsed, match="Book is referred to"):
            run_transaction(function, None)
    assert ran == []


def test_the_counters_of_a_crawl_are_refused_and_what_was_taken_of_them_is_not() -> None:
    counters = CrawlCounters(pages=3)
    figures = counters.figures()
    assert run_transaction(lambda _: figures["pages"] + 1, None) == 4
    uses: tuple[Callable[[Book], Any], ...] = (
        lambda _: counters.pages,
        lambda _: setattr(counters, "pages", 4),
        lambda _: CrawlCounters(),
    )
    for use in uses:
        with pytest.raises(LoopStateUsed, match="CrawlCounters"):
            within(use)


def test_outside_of_a_transaction_it_is_as_it_was() -> None:
    book = Book()
    run_transaction(lambda _: None, None)
    book.add()
    assert (len(book), book.full, faults) == (1, False, [])
