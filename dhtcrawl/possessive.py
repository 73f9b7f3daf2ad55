"""Compiles regular expressions with possessive repetitions, also where Python reads these wrongly.

CPython 3.11.0 to 3.11.4 (Debian 12 has 3.11.2) match a possessive repetition of a group that can match in several ways
wrongly (python/cpython issue 106052): they may end it too early, so that a page loses links and a match goes back that
never should. There such a repetition is compiled as what it stands for by the documentation of `re`: a greedy one in an
atomic group. Later versions get the pattern as it is.

All patterns with possessive repetitions are compiled here; a test looks for others.
"""

from __future__ import annotations

import re
import sys
from typing import Any, AnyStr, Final

READS_WRONGLY: Final = sys.version_info < (3, 11, 5)
# A greedy repetition keeps a state for each time until its atomic group ends, which would be gigabytes of a page that
# is made for it. So there are groups of so many times, which keep one each.
_TIMES: Final = 256


def compile_pattern(pattern: AnyStr, flags: re.RegexFlag | int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`.

    Raises:
        re.error: it is no pattern.
    """
    return with_atomic_groups(pattern, flags) if READS_WRONGLY else re.compile(pattern, flags)


def with_atomic_groups(pattern: AnyStr, flags: re.RegexFlag | int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, with an atomic group for each possessive repetition that is not of a single character.

    Raises:
        re.error: it is no pattern.
    """
    # Private, and of versions that do not change any more.
    from re import _compiler, _parser  # type: ignore[attr-defined]

    parsed = _parser.parse(pattern, int(flags))
    _replace_in(parsed, _parser)
    compiled: re.Pattern[AnyStr] = _compiler.compile(parsed, int(flags))
    return compiled


def _replace_in(part: Any, parser: Any) -> None:
    """Replace all repetitions in what `re` has parsed: tuples and lists, in which sub-patterns stand."""
    if not isinstance(part, parser.SubPattern):
        for each in part if isinstance(part, tuple | list) else ():
            _replace_in(each, parser)
        return
    for place, (operation, argument) in enumerate(part.data):
        _replace_in(argument, parser)
        if str(operation) == "POSSESSIVE_REPEAT" and not _is_character(argument[2]):
            part.data[place] = _atomic(part.state, argument, parser)


def _is_character(item: Any) -> bool:
    return len(item.data) == 1 and str(item.data[0][0]) in ("LITERAL", "NOT_LITERAL", "IN", "ANY")


def _atomic(state: Any, repetition: tuple[int, int, Any], parser: Any) -> Any:
    from re import _constants  # type: ignore[attr-defined]

    def group(least: int, most: int, item: Any) -> Any:
        repeated = parser.SubPattern(state, [(_constants.MAX_REPEAT, (least, most, item))])
        return _constants.ATOMIC_GROUP, repeated

    least, most, item = repetition
    if least <= 1 and most == _constants.MAXREPEAT:
        return group(least, most, parser.SubPattern(state, [group(1, _TIMES, item)]))
    return group(least, most, item)
