"""What becomes of a text that a selector found: transforms and types, each in linear time. No I/O.

All are from a fixed list, and none is a pattern: rules travel to the nodes of others, who run them on hostile pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final
from unicodedata import category

from dhtcrawl.fetch.plain_links import PlainLinks
from dhtcrawl.possessive import compile_pattern
from dhtcrawl.query_charset import encode_query
from dhtcrawl.url import canonicalize

VALUE_CHARS_MAX: Final = 64 * 1024
VALUES_MAX: Final = 1_000  # of a list
NUMBER_CHARS_MAX: Final = 40
DATE_CHARS_MAX: Final = 100
INTEGER_MAX: Final = 2**63 - 1
_KEPT_CHARS_MAX: Final = 256  # of a link of which it is remembered where it leads

Value = str | int | float


class RejectReason(StrEnum):
    """Why there is no value, no record, or none of a page's records."""

    MISSING = "missing"  # a required field
    NOT_A_NUMBER = "not-a-number"
    NOT_A_DATE = "not-a-date"
    NOT_A_URL = "not-a-url"
    TOO_LONG = "too-long"  # a value
    TOO_MANY_VALUES = "too-many-values"
    TOO_MANY_RECORDS = "too-many-records"  # on a page
    TOO_MUCH_TEXT = "too-much-text"  # on a page
    TOO_MUCH_WORK = "too-much-work"  # on a page, for what the rules ask
    TOO_MANY_REJECTS = "too-many-rejects"  # on a page
    TOO_LARGE = "too-large"  # all of a page's records together, for its page record
    NO_TREE = "no-tree"  # the page is too deep or too large for one
    NOT_JSON = "not-json"  # what a page says of itself
    TOO_DEEP = "too-deep"  # what is nested in that


class NoValue(Exception):
    """There is no value, for this reason; `shown` is what there was instead."""

    def __init__(self, reason: RejectReason, shown: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown


Transform = Callable[[str], list[str]]

# Of no argument.
SIMPLE: Final[dict[str, Callable[[str], str]]] = {
    "strip": str.strip,
    "collapse": lambda text: " ".join(text.split()),
    "lower": str.lower,
    "upper": str.upper,
}
# Of a literal.
WITH_LITERAL: Final[dict[str, Callable[[str, str], list[str]]]] = {
    "before": lambda text, literal: [text.partition(literal)[0]],
    "after": lambda text, literal: [text.partition(literal)[2]],
    "remove_prefix": lambda text, literal: [text.removeprefix(literal)],
    "remove_suffix": lambda text, literal: [text.removesuffix(literal)],
    "split": lambda text, literal: text.split(literal, VALUES_MAX),
}


def replaced(text: str, old: str, new: str) -> str:
    """The text with each `old` replaced.

    Raises:
        NoValue: it would become longer than `VALUE_CHARS_MAX`.
    """
    if len(text) + text.count(old) * (len(new) - len(old)) > VALUE_CHARS_MAX:
        raise NoValue(RejectReason.TOO_LONG)
    return text.replace(old, new)


@dataclass(frozen=True, slots=True)
class PageAddress:
    """What a URL of a page is relative to, the charset of its query, and what leads on without a URL parser."""

    base: str
    charset: str
    plain: PlainLinks


@dataclass(frozen=True, slots=True)
class TextType:
    """A text stays as it is."""

    name: str = "text"

    def value_of(self, text: str, page: PageAddress) -> Value:
        return text


@dataclass(frozen=True, slots=True)
class JsonType(TextType):
    """Anything that JSON has, as pages say it of themselves; no field of a rule asks for it."""

    name: str = "json"


@dataclass(frozen=True, slots=True)
class NumberType:
    """The one number of a text; what stands around it, such as a currency, is left out."""

    decimal: str = "."
    group: str = ""
    name: str = "number"

    def value_of(self, text: str, page: PageAddress) -> Value:
        """An int without decimals, else a float.

        Raises:
            NoValue: there is no number in it, or two, or one beyond 64 bits.
        """
        # The transforms may have made a space of a no-break space, which stands between thousands as well.
        decimal, group = (" " if mark.isspace() else mark for mark in (self.decimal, self.group))
        runs = _runs(text, decimal + group)
        if len(runs) != 1:
            raise NoValue(RejectReason.NOT_A_NUMBER, text)
        sign, run = runs[0]
        whole, mark, fraction = run.partition(decimal)
        if group and group in whole:
            first, *groups = whole.split(group)
            if not 1 <= len(first) <= 3 or any(len(each) != 3 for each in groups):
                raise NoValue(RejectReason.NOT_A_NUMBER, text)
            whole = first + "".join(groups)
        if len(run) > NUMBER_CHARS_MAX or not whole.isdigit() or (mark and not fraction.isdigit()):
            raise NoValue(RejectReason.NOT_A_NUMBER, text)
        if mark:
            return float(f"{sign}{whole}.{fraction}")
        number = int(sign + whole)
        if abs(number) > INTEGER_MAX:
            raise NoValue(RejectReason.NOT_A_NUMBER, text)
        return number


_SPACE: Final = re.compile(r"\s")


def _runs(text: str, marks: str) -> list[tuple[str, str]]:
    """The runs of digits and marks, each from its first digit to its last, with "-" where one is in front of it.

    A space among the marks stands for each that is one, and is what they become.
    """
    found = []
    if " " in marks:
        text = _SPACE.sub(" ", text)
    for run in _run_of(marks).finditer(text):
        before = text[max(0, run.start() - 2) : run.start()]
        negative = _is_negative(text[: run.start()])
        odd = before[-1:].strip() != "" and before[-1] in marks and not before[:-1].isalnum()  # as that of ".50"
        found.append(("-" if negative else "", before[-1:] + run[0] if odd else run[0]))
        if len(found) > 1:
            break
    return found


@lru_cache(maxsize=64)  # the marks are few, and stand in rules
def _run_of(marks: str) -> re.Pattern[str]:
    return compile_pattern(rf"[0-9](?:[0-9]|[{re.escape(marks)}](?=[0-9]))*+")


_MINUS: Final = ("-", "\u2212")


def _is_negative(before: str) -> bool:
    """Whether the text before the digits of a number ends with its minus, and perhaps a currency sign behind that.

    A dash that belongs to a word before it, as in "EUR-5", or stands between words and a number, as in "Price - 5", is
    no minus.
    """
    if before[-1:] not in _MINUS:
        bare = before.rstrip()
        if bare and category(bare[-1]) == "Sc":
            before = bare[:-1]
        if before.strip() in _MINUS:
            return True
    return before[-1:] in _MINUS and not before[-2:-1].isalnum()


_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
DIRECTIVES: Final = "YymdbBaAjHIMSfpz"
_OF_THE_TIME: Final = frozenset("HIMSfpz")


# Python's own reader passes over what follows a date of eight digits, so that a time in Unix seconds may be one. Some
# versions of it take 24:00, and 10:00.5 is half a second for it instead of half a minute.
_ISO: Final = compile_pattern(
    r"""(?: [0-9]{4}-[0-9]{2}-[0-9]{2} | [0-9]{8} | [0-9]{4}-W[0-9]{2}(?:-[1-7])? | [0-9]{4}W[0-9]{2}[1-7]? )
    (?P<time> [Tt\ ] (?:[01][0-9]|2[0-3])
        (?: :[0-9]{2}(?: :[0-9]{2} (?:[.,][0-9]+)? )? | [0-9]{2}(?: [0-9]{2} (?:[.,][0-9]+)? )? )?
        (?: Z | [+-][0-9]{2}(?: :?[0-9]{2} )? )?
    )?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class DateType:
    """A date, or an instant where the format has a time; as ISO 8601 has it. Without formats the text is that."""

    formats: tuple[str, ...] = ()
    name: str = "date"

    def value_of(self, text: str, page: PageAddress) -> Value:
        """The same as `date_of`."""
        return self.date_of(text)

    def date_of(self, text: str) -> str:
        """The date or instant.

        Raises:
            NoValue: it is none of this form.
        """
        text = text.strip()
        if len(text) <= DATE_CHARS_MAX:
            for each in self.formats or ("",):
                try:
                    return _date_of(text, each)
                except (ValueError, OverflowError):
                    continue
        raise NoValue(RejectReason.NOT_A_DATE, text)


def _date_of(text: str, form: str) -> str:
    if not form:
        parts = _ISO.fullmatch(text)
        if parts is None:
            raise ValueError(text)
        return date.fromisoformat(text).isoformat() if parts["time"] is None else _iso(datetime.fromisoformat(text))
    found = datetime.strptime(text, form)
    if "%j" in form and (found.month, found.day) == (1, 1):
        _refuse_day_366(text, form, found)
    return found.date().isoformat() if _OF_THE_TIME.isdisjoint(_DIRECTIVE.findall(form)) else _iso(found)


def _refuse_day_366(text: str, form: str, found: datetime) -> None:
    """Refuse day 366 of a common year, of which `strptime` makes the first day of the next one.

    Raises:
        ValueError: it is that.
    """
    at = text.find("366")
    while at >= 0:
        try:
            first_day = datetime.strptime(f"{text[:at]}001{text[at + 3 :]}", form)
        except ValueError:
            pass  # that was part of something else
        else:
            if first_day.year == found.year - 1:
                raise ValueError(text)
        at = text.find("366", at + 1)


def _iso(instant: datetime) -> str:
    text = instant.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") and text.count("+") == 1 else text


def check_date_format(form: str) -> None:
    """Refuse what is no format of a date.

    Raises:
        ValueError: with what would be right.
    """
    found = [each for each in _DIRECTIVE.findall(form) if each != "%"]
    for each in found:
        if each not in DIRECTIVES or not each:
            raise ValueError(f"%{each} stands for nothing; there are {' '.join('%' + one for one in DIRECTIVES)}")
        if found.count(each) > 1:
            raise ValueError(f"%{each} stands there twice; say it once")
    if "p" in found and "I" not in found:
        raise ValueError("%p needs the hour of twelve; use %I")
    day = {"d"} <= set(found) and not {"m", "b", "B"}.isdisjoint(found)
    if {"Y", "y"}.isdisjoint(found) or not (day or "j" in found):
        raise ValueError('use a format with year, month and day, such as "%d.%m.%Y", or leave it out for ISO 8601')


@lru_cache(maxsize=4_096)
def _plain_url(plain: PlainLinks, text: str) -> str | None:
    """Where a link leads if it is plain: many pages of a directory have the same."""
    target = plain.target_of_href(text)
    return None if target is None else target.decode()


@dataclass(frozen=True, slots=True)
class UrlType:
    """An http(s) URL in canonical form, relative to the page or its base."""

    name: str = "url"

    def value_of(self, text: str, page: PageAddress) -> Value:
        """The URL.

        Raises:
            NoValue: it is none.
        """
        text = text.strip()
        plain = _plain_url(page.plain, text) if len(text) <= _KEPT_CHARS_MAX else None
        if plain is not None:
            return plain
        url = canonicalize(encode_query(text, page.charset), page.base)
        if url is None:
            raise NoValue(RejectReason.NOT_A_URL, text)
        return url


ValueType = TextType | NumberType | DateType | UrlType
