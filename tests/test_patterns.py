"""Patterns of people and peers: what they mean, what is refused, and that none takes long."""

from __future__ import annotations

import re
import string
from itertools import chain, cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.patterns import CHARS_MAX, PATTERNS_MAX, PatternRefused, Patterns
from dhtcrawl.url import URL_CHARS_MAX

BACKTRACKS = r"/(([a-z])+.)+[A-Z]([a-z])+$"


def found(pattern: str, url: str) -> bool | None:
    return Patterns((pattern,)).matches(url)


def refusal(*patterns: str) -> str:
    with pytest.raises(PatternRefused) as caught:
        Patterns(patterns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_pattern_that_backtracks_is_read_once() -> None:
    # With `re`, 41 letters take longer than anybody waits; this suite would not come to an end.
    assert found(BACKTRACKS, "http://a/" + "a" * 41) is False
    assert found(BACKTRACKS, "http://a/" + "a" * 8000) is False
    assert found(BACKTRACKS, "http://a/aa/bb/Cc") is True


@pytest.mark.parametrize(
    ("pattern", "construct", "remedy"),
    [
        ("(?=a)b", "a look-ahead (?=…)", "write out what follows"),
        ("a(?!b)", "a look-ahead (?!…)", "--exclude"),
        ("(?<=a)b", "a look-behind (?<=…)", "write out what precedes"),
        ("(?<!a)b", "a look-behind (?<!…)", "--exclude"),
        (r"(a)\1", r"a backreference \1", "write out what is repeated"),
        (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10", r"a backreference \1", "write out what is repeated"),
        ("(?P<n>a)(?P=n)", "a backreference (?P=…)", "write out what is repeated"),
        ("(a)?(?(1)b|c)", "a conditional group (?(…)…)", "alternatives"),
        ("(?>a)b", "an atomic group (?>…)", "use (?:…)"),
        ("a(?#why)b", "a comment (?#…)", "leave it out"),
        ("a++b", "a possessive repetition ++", "leave out the second +"),
        ("a{2,3}+b", "a possessive repetition {2,3}+", "leave out the second +"),
        (r"\pL+", r"a class of Unicode \p", "[a-z]"),
        ("(?x) a", "the flag (?x)", "leave it out"),
        ("(?ia)b", "the flag (?a)", "leave it out"),
    ],
)
def test_what_no_linear_engine_has_is_named_with_a_remedy(pattern: str, construct: str, remedy: str) -> None:
    said = refusal("fine", pattern)
    assert said.startswith(f"{pattern!r} has {construct}, ")
    assert said.endswith(remedy) or remedy in said.rpartition(";")[2]


@pytest.mark.parametrize("pattern", ["(", ")", "[", "*", "a**", "\\", "[b-a]", "a)|(b", r"\u0041", "a{1001}", "[a-"])
def test_what_is_no_pattern_is_refused_and_shown(pattern: str) -> None:
    assert refusal(pattern).startswith(f"{pattern!r} is no regular expression: ")


def test_what_both_engines_write_differently_means_what_python_means() -> None:
    assert found(r"\.pdf\Z", "http://a/x.pdf") is True
    assert found(r"\.pdf\Z", "http://a/x.pdf?") is False
    assert found("^http://a/b{,2}c", "http://a/bbc") is True
    assert found("^http://a/b{,2}c", "http://a/bbbc") is False
    assert found("^http://a/b{,}c", "http://a/bbbc") is True
    assert found("^http://a/b{02}c{,03}$", "http://a/bbccc") is True
    assert found("[{,2}]$", "http://a/{") is True  # nothing of it is a repetition there
    assert found(r"\{,2}$", "http://a/{,2}") is True
    assert found(r"\123$", "http://a/S") is True  # octal


def test_a_letter_beyond_ascii_is_in_no_canonical_url() -> None:
    assert found("é", "http://a/%C3%A9") is False
    assert found("aé?b", "http://a/ab") is True
    assert found("[^é]$", "http://a/b") is True
    assert found("[a-é]$", "http://a/z") is True
    assert found("日本|b$", "http://a/b") is True


def test_patterns_of_a_list_do_not_run_into_one_another() -> None:
    patterns = Patterns(("(?i)PDF$", "a|b/c", r"\Qx.y", "(?P<n>z1)", "(?P<n>z2)"))
    assert [patterns.matches(f"http://h/{path}") for path in ("x.pdf", "z2", "x.y", "b/c")] == [True] * 4
    assert [patterns.matches(f"http://h/{path}") for path in ("B/C", "xxy", "PDF2", "Z1")] == [False] * 4


def test_too_many_and_too_large_patterns_are_refused() -> None:
    assert str(PATTERNS_MAX) in refusal(*["a"] * (PATTERNS_MAX + 1))
    assert str(CHARS_MAX) in refusal("a" * CHARS_MAX, "b")
    assert "too large" in refusal("a" * 3000, "b" * 3000)
    assert "too large" in refusal("a{10000}")
    assert "too large" in refusal("a{," + "9" * 9000 + "}")
    assert "too large" in refusal(r"(?:a?b?c?d?e?){1000}")
    assert Patterns([f"/section-{number}/" for number in range(PATTERNS_MAX)]).matches("http://a/section-7/") is True


def test_a_url_that_would_cost_too_much_is_not_decided() -> None:
    large = Patterns(("(?:a?b?){600}c",))
    assert large.matches("http://a/c") is True
    assert large.matches("http://a/" + "ab" * (URL_CHARS_MAX // 2 - 5)) is None
    # Patterns of the usual size decide about the longest URL.
    assert (
        Patterns([f"/calendar-{number}/" for number in range(20)]).matches("http://a/".ljust(URL_CHARS_MAX, "b"))
        is False
    )


def test_patterns_that_an_earlier_version_took_decide_nothing() -> None:
    earlier = Patterns.of_record(("(?!x)",), float)
    assert earlier.matches("http://a/") is None
    assert Patterns.of_record(("x",), float).matches("http://a/x") is True


class Watch:
    """A clock by which matches take so long, one after the other, again and again."""

    def __init__(self, *took_s: float) -> None:
        self._steps = chain.from_iterable((0.0, each) for each in cycle(took_s))
        self._now = 0.0

    def __call__(self) -> float:
        self._now += next(self._steps)
        return self._now


def test_patterns_that_take_long_decide_nothing_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    slow = Patterns(("x",), Watch(0.04, 0.05, 0.000002))  # twice the pattern, then what any pattern takes
    answers = [slow.matches("http://a/x") for _ in range(100)]
    assert answers == [True] * 25 + [None] * 75
    assert [record.getMessage()[:40] for record in caplog.records] == ["'x' and the patterns beside it take too "]


def test_what_a_busy_machine_took_is_not_held_against_patterns() -> None:
    # Asleep: a second look is quick. Busy: whatever is asked takes long.
    waited = Patterns(("x",), Watch(5.0, 0.00002, 0.000002))
    assert [waited.matches("http://a/x") for _ in range(200)] == [True] * 200
    busy = Patterns(("x",), Watch(0.01, 0.01, 0.001))
    assert [busy.matches("http://a/x") for _ in range(200)] == [True] * 200
    usual = Patterns(("x",), Watch(0.00004))
    assert [usual.matches("http://a/x") for _ in range(50_000)] == [True] * 50_000


# -- what `re` and RE2 have in common --

LITERALS = st.sampled_from(
    [*string.ascii_letters, *string.digits, *"/-_=&%~:", r"\.", r"\?", r"\+", r"\/", r"\-", r"\_", "é"]
)
CLASSES = st.sampled_from(
    [
        ".",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        "[a-z]",
        "[^/]",
        "[]/]",
        "[^]?]",
        r"[\w.-]",
        r"[\d_]",
        "[{,2}]",
        r"[\]b]",
    ]
)
PLACES = st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B"])
COUNTS = st.sampled_from(
    ["*", "+", "?", "*?", "+?", "??", "{2}", "{,2}", "{1,}", "{1,3}", "{0,2}?", "{,}", "{01}", "{,02}"]
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.tuples(st.sampled_from(["(", "(?:", "(?i:"]), inner).map(lambda parts: f"{parts[0]}{parts[1]})")
    return st.one_of(
        st.tuples(st.one_of(LITERALS, CLASSES, groups), COUNTS).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")"),
        groups,
    )


PATTERNS = st.recursive(st.one_of(LITERALS, CLASSES, PLACES), larger, max_leaves=8)
URLS = st.text(string.ascii_letters[:6] + string.ascii_uppercase[:3] + string.digits[:3] + "/?=&.-_%{,}]", max_size=12)


@given(PATTERNS, st.lists(URLS, min_size=1, max_size=5))
def test_re_and_re2_agree_on_what_both_know(pattern: str, tails: list[str]) -> None:
    expression = re.compile(pattern)
    for url in (f"http://a/{tail}" for tail in tails):
        assert found(pattern, url) is (expression.search(url) is not None)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@given(st.text("()[]{}|*+?\\^$.:,<>=!#-iQEZPdw19aé", max_size=12), URLS)
def test_of_any_text_what_both_take_means_the_same_or_is_refused(pattern: str, tail: str) -> None:
    try:
        expression, patterns = re.compile(pattern), Patterns((pattern,))
    except (re.error, PatternRefused, OverflowError):
        return
    if "[:" not in pattern:  # a class of POSIX, which Python reads letter by letter, and warns
        assert patterns.matches(f"http://a/{tail}") is (expression.search(f"http://a/{tail}") is not None)
