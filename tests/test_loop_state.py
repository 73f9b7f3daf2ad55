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

    def told(self, first: int, second: int = 2) -> tuple[int, int]:
        return first, second

    def told_by_name(self, *rest: int, first: int, second: int = 2, **more: int) -> tuple[Any, ...]:
        return rest, first, second, more

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


def test_what_a_method_is_given_reaches_it_by_position_and_by_name_or_is_refused_as_its_own() -> None:
    book = Book()
    assert [book.told(1), book.told(1, 3), book.told(second=3, first=1)] == [(1, 2), (1, 3), (1, 3)]
    assert book.told_by_name(4, 5, first=1, third=6) == ((4, 5), 1, 2, {"third": 6})
    with pytest.raises(TypeError, match=r"Book\.told\(\) missing 1 required positional argument: 'first'"):
        book.told()  # type: ignore[call-arg]


def test_a_method_with_parameters_is_refused_within_a_transaction_too() -> None:
    uses: tuple[Callable[[Book], Any], ...] = (lambda book: book.told(1), lambda book: book.told_by_name(first=1))
    for use in uses:
        with pytest.raises(LoopStateUsed, match=r"Book\.told"):
            within(use)
