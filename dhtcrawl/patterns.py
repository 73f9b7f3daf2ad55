r"""Patterns that people and peers write, matched against canonical URLs in linear time. No I/O.

They are regular expressions as Python writes them, without what no linear engine has (look-around, backreferences):
`re` goes back and tries again, so that one pattern of a stranger's crawl can hold a node for hours at one link. RE2
reads each character once; what it costs at the worst is bounded by the program that a pattern is compiled to, times the
URL.

A canonical URL is ASCII without control characters, and so are texts here: each character is one byte, a letter beyond
ASCII in a pattern stands for a byte that no URL has. Then `\d`, `\w`, `\b`, `$` and `.` are the same in `re` and RE2.
What they write in two ways is translated: `\Z` is RE2's `\z`, and `{,3}` or `{03}` would be text to it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from dhtcrawl.possessive import compile_pattern
from dhtcrawl.url import URL_CHARS_MAX

PATTERNS_MAX: Final = 256
CHARS_MAX: Final = 16_384  # of all patterns of a list
COUNT_MAX: Final = 1_000  # RE2's own
# Instructions of all patterns of a list together; a hundred that name an extension or a directory have 2,000.
PROGRAM_MAX: Final = 4_096
# The same, each compiled for itself to say which one is wrong; together they share what they begin with.
COMPILED_MAX: Final = 4 * PROGRAM_MAX
# Instructions times characters of a URL. RE2 keeps its states in a cache, and a URL costs a microsecond or two; a
# pattern made to fill it costs 9 ns for each instruction and character, so 40 ms. What is longer is not decided.
MATCH_WORK_MAX: Final = 2**22
# A page may have 100,000 links, and each could cost that much. So what those cost that take SLOW_S or more is added up,
# if it is SLOW_TIMES what any pattern costs there at that moment: the machine may be slow, or busy. Once the sum is
# SLOW_TOTAL_S the patterns decide nothing any more. Usual patterns cost at most twice as much as any.
SLOW_S: Final = 0.00005
SLOW_TIMES: Final = 20
SLOW_TOTAL_S: Final = 1.0
# Of the program and the cache of states. The package keeps 128 compiled patterns, whoever they are from.
MEMORY_BYTES_MAX: Final = 1 << 20

log = logging.getLogger(__name__)

_ANY_PATTERN: Final = r"[\x01\x02]"  # reads a URL to its end
_NO_SUCH_BYTE: Final = "\xff"
_BEYOND_ASCII: Final = re.compile(r"[^\0-\x7f]")
_REPEAT: Final = r"\{(?:[0-9]+(?:,[0-9]*)?|,[0-9]*)\}"
# What stands in a pattern outside of `[…]`, as far as it matters here; each alternative reads on, none goes back.
_PART: Final = rf"""(?P<quoted>\\Q(?:(?!\\E).)*+(?:\\E)?)
       | (?P<backreference>\\(?!0|[1-3][0-7][0-7])[0-9])
       | (?P<end>\\Z)
       | (?P<unicode>\\[pP])
       | (?P<escape>\\.)
       | (?P<set>\[\^?+\]?+(?:\[:\^?[a-z]*:\]|\\.|[^\]\\])*+\]?)
       | \(\?(?P<group><[=!]|[=!>#(]|P=|[A-Za-z-]+(?=[:)]))
       | (?P<possessive>(?:[*+?]|{_REPEAT})\+)
       | (?P<count>{_REPEAT})
    """
_KNOWN_FLAGS: Final = frozenset("imsU-")
# What RE2 has not, by what follows "(?": its name, and what to write instead.
_GROUPS: Final = {
    "=": ("a look-ahead (?=…)", "write out what follows"),
    "!": ("a look-ahead (?!…)", "give what must not follow as another pattern, by --exclude"),
    "<=": ("a look-behind (?<=…)", "write out what precedes"),
    "<!": ("a look-behind (?<!…)", "give what must not precede as another pattern, by --exclude"),
    ">": ("an atomic group (?>…)", "use (?:…)"),
    "#": ("a comment (?#…)", "leave it out"),
    "(": ("a conditional group (?(…)…)", "write both cases as alternatives, with |"),
    "P=": ("a backreference (?P=…)", "write out what is repeated"),
}
_BACKREFERENCE: Final = "write out what is repeated"
_POSSESSIVE: Final = "leave out the second +"


class PatternRefused(ValueError):
    """A pattern that is none, has what cannot be matched in linear time, or is too large; the message says which."""


class Patterns:
    """A list of patterns, compiled to one program."""

    def __init__(self, texts: Sequence[str], now: Callable[[], float] = float) -> None:
        """Compile them; `now` gives seconds, by which slow patterns are told apart. By default none are.

        Raises:
            PatternRefused: one of them, or all together.
        """
        self._program = _compiled_together(texts) if texts else None
        self._chars_max = URL_CHARS_MAX if self._program is None else MATCH_WORK_MAX // self._program.programsize
        self._now = now
        self._first = texts[0] if texts else ""
        self._slow_s = 0.0

    @classmethod
    def of_record(cls, texts: Sequence[str], now: Callable[[], float]) -> Patterns:
        """The patterns of a crawl that may have begun under an earlier version, which took what is refused now.

        Such patterns decide about no URL.
        """
        try:
            return cls(texts, now)
        except PatternRefused:
            undecided = cls(())
            undecided._chars_max = -1
            return undecided

    def matches(self, url: str) -> bool | None:
        """Whether one of the patterns is found anywhere in a canonical URL; None if that cannot be said.

        It cannot where finding it out could cost too much (`MATCH_WORK_MAX`), or the patterns have already (`SLOW_S`).
        """
        if len(url) > self._chars_max:
            return None
        if self._program is None:
            return False
        found, took_s = self._timed(self._program, url)
        if took_s >= SLOW_S:
            self._look_again(url, took_s)
        return found

    def _look_again(self, url: str, took_s: float) -> None:
        # The process may have had to wait, or RE2 made states that it keeps: then a second time is quicker.
        slow_s = min(took_s, self._timed(self._program, url)[1])
        if slow_s < max(SLOW_S, SLOW_TIMES * self._timed(_compiled("", _ANY_PATTERN), url)[1]):
            return
        self._slow_s += slow_s
        if self._slow_s >= SLOW_TOTAL_S:
            self._chars_max = -1
            log.warning(
                "%r and the patterns beside it take too long: links are excluded from here on", self._first[:80]
            )

    def _timed(self, program: Any, url: str) -> tuple[bool, float]:
        began_at = self._now()
        return program.search(url.encode()) is not None, self._now() - began_at


def _compiled_together(texts: Sequence[str]) -> Any:
    if len(texts) > PATTERNS_MAX:
        raise PatternRefused(f"these are {len(texts)} patterns; use {PATTERNS_MAX} or fewer, joined by |")
    chars = sum(map(len, texts))
    if chars > CHARS_MAX:
        raise PatternRefused(f"these patterns have {chars} characters; use {CHARS_MAX} or fewer")
    size, translated = 0, []
    for text in texts:
        translated.append(_translated(text))
        size += _compiled(text, translated[-1]).programsize
        if size > COMPILED_MAX:
            raise _too_large(text)
    together = _compiled(texts[-1], "|".join(f"(?:{pattern})" for pattern in translated))
    if together.programsize > PROGRAM_MAX:
        raise _too_large(texts[-1])
    return together


def _compiled(text: str, translated: str) -> Any:
    import re2  # a crawl without patterns does not need it

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        return re2.compile(_BEYOND_ASCII.sub(_NO_SUCH_BYTE, translated).encode("latin-1"), options)
    except re2.error as error:
        problem = error.args[0].decode("latin-1")
    if "too large" in problem:
        raise _too_large(text)
    raise PatternRefused(f"{text[:80]!r} is no regular expression: {problem}")


def _too_large(text: str) -> PatternRefused:
    return PatternRefused(f"{text[:80]!r} makes the patterns too large; use fewer, or smaller counts than in {{1,500}}")


def _translated(text: str) -> str:
    return "".join(_translated_parts(text))


@cache
def _parts() -> re.Pattern[str]:
    return compile_pattern(_PART, re.VERBOSE | re.DOTALL)


def _translated_parts(text: str) -> Iterator[str]:
    """`text` as RE2 writes it.

    Raises:
        PatternRefused: RE2 has nothing for what stands there.
    """
    copied = 0
    for part in _parts().finditer(text):
        yield text[copied : part.start()]
        copied = part.end()
        yield _translated_part(text, part)
    yield text[copied:]


def _translated_part(text: str, part: re.Match[str]) -> str:
    said, kind = part.group(), part.lastgroup
    if kind == "backreference":
        raise _foreign(text, f"a backreference {said}", _BACKREFERENCE)
    if kind == "unicode":  # each is large, in every place where it stands
        raise _foreign(text, f"a class of Unicode {said}", "use [a-z] or the like, since URLs are ASCII")
    if kind == "possessive":
        raise _foreign(text, f"a possessive repetition {said}", _POSSESSIVE)
    if kind == "count":
        low, comma, high = said[1:-1].partition(",")
        return f"{{{_count(text, low or '0')}{comma}{_count(text, high)}}}"
    if kind == "group":
        _require_known_group(text, part["group"])
    if kind == "quoted":  # an open quotation would go on in the next pattern
        return said if said.endswith(r"\E") else said + r"\E"
    return r"\z" if kind == "end" else said


def _count(text: str, digits: str) -> str:
    """A count as RE2 writes it; one with a zero in front, or with many digits, would be text to it."""
    if len(digits.lstrip("0")) > len(str(COUNT_MAX)):
        raise _too_large(text)
    return str(int(digits)) if digits else ""


def _require_known_group(text: str, group: str) -> None:
    if group in _GROUPS:
        raise _foreign(text, *_GROUPS[group])
    unknown = [flag for flag in group if flag not in _KNOWN_FLAGS]
    if unknown:
        raise _foreign(text, f"the flag (?{unknown[0]})", "leave it out")


def _foreign(text: str, construct: str, remedy: str) -> PatternRefused:
    return PatternRefused(
        f"{text[:80]!r} has {construct}, which is not among what is matched in linear time here; {remedy}"
    )
