"""Chance comes from outside: what a core may ask of the generator that it is given.

`random.Random` is one. A core that takes a `Chance` can be replayed with a seed, and imports no generator.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Chance(Protocol):
    """A source of random numbers; each method is as `random.Random` documents it."""

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits, not negative."""

    def randrange(self, start: int, /) -> int:
        """A number from 0 to below `start`."""

    def choice(self, seq: Sequence[T]) -> T:
        """One element of `seq`.

        Raises:
            IndexError: `seq` is empty.
        """

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """`k` different elements of `population`, in random order.

        Raises:
            ValueError: `population` has fewer.
        """

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Put `x` into random order, in place."""
