"""What goes wrong in a policy, and how one is installed."""

from __future__ import annotations

from collections.abc import Callable

Install = Callable[..., None]  # of the fixture `installed`: a module, its source, and policies of it by their names


class Speechless(Exception):
    """An error that raises another one where its words are asked for."""

    def __str__(self) -> str:
        raise ValueError("no words")
