"""Words of a text that is written without spaces: the longest that a dictionary has, from left to right. No I/O.

That is forward maximum matching. What the dictionary lacks stays together up to the next word or space, or is taken
apart by another segmenter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Dictionary:
    """Words, and where a text has them."""

    def __init__(self, words: Iterable[str], rest: Callable[[str], Iterable[str]] | None = None) -> None:
        """`rest` gives the words of what has none of `words` in it; None: it is one."""
        self._rest = rest
        self._words = frozenset(" ".join(word.split()) for word in words) - {""}
        # By their first letter, the lengths that words have, the longest first.
        lengths: dict[str, set[int]] = {}
        for word in self._words:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def words_of(self, text: str) -> list[str]:
        """The words of `text` in their order; each time that one stands there, again."""
        found: list[str] = []

        def lacks(between: str) -> None:
            for part in between.split():
                found.extend([part] if self._rest is None else filter(str.strip, self._rest(part)))

        text = " ".join(text.split())
        at = unknown = 0  # what is before `at`, from `unknown` on, is in no word
        while at < len(text):
            word = self._word_at(text, at)
            if word:
                lacks(text[unknown:at])
                found.append(word)
                unknown = at + len(word)
            at += len(word) or 1
        lacks(text[unknown:])
        return found

    def _word_at(self, text: str, at: int) -> str:
        for length in self._lengths.get(text[at], ()):
            word = text[at : at + length]
            if word in self._words:
                return word
        return ""
