"""What goes wrong in a policy."""

from __future__ import annotations


class Speechless(Exception):
    """An error that raises another one where its words are asked for."""

    def __str__(self) -> str:
        raise ValueError("no words")
