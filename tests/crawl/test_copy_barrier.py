"""A page is done when it is copied as often as it is being copied, and not before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl.copy_barrier import CopyBarrier

A, B, C = b"a", b"b", b"c"


def test_who_wants_one_copy_waits_for_none() -> None:
    gate = CopyBarrier(0)
    gate.hold([A, B])
    assert len(gate) == 0
    assert gate.pass_through([A, B]) == ([A, B], {})
    assert gate.take([A, B]) == {}


def test_a_page_waits_for_its_copies() -> None:
    gate = CopyBarrier(1)
    gate.hold([A, B])
    assert gate.pass_through([A, B, C]) == ([C], {A: None, B: None})
    gate.copied(A, (b"x",))
    assert gate.pass_through([A, B]) == ([A], {B: None})
    assert gate.take([A]) == {A: (b"x",)}
    assert gate.take([A]) == {}, "noted once"


def test_a_page_that_is_copied_anew_meanwhile_waits_for_that_too() -> None:
    gate = CopyBarrier(1)
    gate.hold([A])
    gate.hold([A])
    gate.copied(A, (b"x",))
    assert gate.pass_through([A]) == ([], {A: None})
    gate.copied(A, ())
    assert gate.pass_through([A]) == ([A], {})
    assert gate.take([A]) == {A: ()}, "as it is known last"


@given(st.lists(st.sampled_from([A, B, C]), max_size=12), st.randoms(use_true_random=False))
def test_whatever_the_order_everything_comes_through_once(held: list[bytes], random: object) -> None:
    gate = CopyBarrier(2)
    later = dict.fromkeys([A, B, C])
    done: list[bytes] = []
    for page in held:
        gate.hold([page])
    for page in sorted(held, key=lambda _: random.random()):  # type: ignore[attr-defined]
        some, later = gate.pass_through(later)
        done += some
        gate.copied(page, ())
    some, later = gate.pass_through(later)
    assert (sorted(done + some), later, len(gate)) == ([A, B, C], {}, 0)
