"""What a robots.txt allows (RFC 9309), without I/O.

Rules and the path of a URL, its query with it, are compared octet by octet in
one form (2.2.2): an escape of an unreserved character is that character, one
of a reserved one stays, so that `/*?` says nothing of `/a%3F`; what cannot
stand in a URL is escaped in both. `*` stands for anything, `$` at the end for
the end, and both elsewhere for themselves, as `%2A` and `%24` do (2.2.3). Of
the rules that match the one with the most octets as sent counts, and of two
with as many the one that allows.

`allows` may be asked for every page. Its work is bounded by
`MATCH_WORK_MAX`, whatever the file and the URL; `Robots` keeps the rules of
500 KiB at most, and a matcher for each of the last few tokens asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from dhtcrawl.possessive import compile_pattern

# RFC 9309, 2.5: "at least 500 kibibytes"; what follows is ignored.
PARSED_BYTES_MAX = 500 * 1024

# Characters of wildcard rules times characters of the URL: the most that
# matching can compare (each rule is matched left to right, without going
# back). 2**27 takes some 0.1 s; 100 KB of wildcards leave 1,300 characters for
# the URL. What is longer on such a site is not fetched.
MATCH_WORK_MAX = 2**27

_SCHEME_CHARS_MAX = len("https://")
MATCHERS_MAX = 8  # a node crawls under one or two product tokens

_LINES = re.compile(rb"\r\n|\r|\n")
_FIELD = compile_pattern(
    rb"[ \t]*+(?:(user[ -]?agent)|(allow|diss?all?ow|diasllow|disallaw)|(crawl[ -]delay)|(site-?maps?))"
    rb"(?:[ \t]*+:|[ \t]++)[ \t]*+(.*+)",
    re.IGNORECASE | re.DOTALL,
)
_PRODUCT_TOKEN = re.compile(r"[A-Za-z_-]*")
_FOREIGN = re.compile(rb"[^\t\x20-\x7e]")
# What is not yet in the form that is compared: escapes, `*` and `$`, and what is neither reserved nor unreserved by
# RFC 3986, 2.2 and 2.3. A canonical URL has an apostrophe in its query escaped (WHATWG URL), so it is, too.
_NOT_COMPARED = re.compile(r"%([0-9A-Fa-f]{2})?|[^A-Za-z0-9\-._~:/?\[\]@!&()+,;=]")
_UNRESERVED = re.compile(r"[A-Za-z0-9\-._~]")
_INDEX = "index.html"
# Escapes that count as one octet: those of unreserved characters, and of `$`, which could stand there as well.
_ONE_OCTET = re.compile(r"%(?:2[4DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)", re.IGNORECASE)
_SENT_ESCAPED = re.compile(r"[\t \"<>]")


class RobotsVerdict(Enum):
    """What the status of a robots.txt means (RFC 9309, 2.3.1)."""

    PARSE = "parse"
    ALLOW_ALL = "unavailable"
    DISALLOW_ALL = "unreachable"


def verdict_for_status(status: int) -> RobotsVerdict:
    """What to do after a response to /robots.txt, redirects followed as far as one wants to.

    A redirect still here leads nowhere: unavailable (2.3.1.2). 429 asks for
    less, not for everything: unreachable, as Google reads it too.
    """
    if 200 <= status < 300:
        return RobotsVerdict.PARSE
    if 300 <= status < 500 and status != 429:
        return RobotsVerdict.ALLOW_ALL
    return RobotsVerdict.DISALLOW_ALL


def product_token(user_agent: str) -> str:
    """The token that robots.txt files know a User-Agent by: what precedes its first foreign character."""
    match = _PRODUCT_TOKEN.match(user_agent)
    return match[0] if match else ""


def whole_lines(data: bytes) -> bytes:
    """What was cut, without the line that was: half a rule forbids or allows more than the whole one."""
    return data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]


class _RuleLine(NamedTuple):
    allows: bool | None  # None: it says how long to wait between two requests
    value: str


class _Group:
    """Agents in lower case, '*' among them, and the lines that concern them."""

    __slots__ = ("agents", "closed", "lines")

    def __init__(self) -> None:
        self.agents: set[str] = set()
        self.lines: list[_RuleLine] = []
        self.closed = False  # a rule has come: the next user-agent line begins another


class _Rule(NamedTuple):
    """A path matches that begins with the first part and has the others after it, in their order."""

    octets: int
    allows: bool
    parts: tuple[str, ...]
    at_end: bool  # the last part is how the path ends

    @property
    def is_prefix(self) -> bool:
        return len(self.parts) == 1 and not self.at_end

    def matches(self, path: str) -> bool:
        first, *others = self.parts
        if not others:
            return path == first if self.at_end else path.startswith(first)
        if not path.startswith(first):
            return False
        at = len(first)
        # The earliest place of each part leaves most to the others: no need to go back.
        for part in others[:-1] if self.at_end else others:
            at = path.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return not self.at_end or (len(path) - len(others[-1]) >= at and path.endswith(others[-1]))


def _rules(lines: list[_RuleLine]) -> Iterator[_Rule]:
    for line in lines:
        if line.allows is None or not line.value:
            continue
        at_end = line.value.endswith("$")
        parts = tuple(map(_compared, line.value.removesuffix("$").split("*")))
        yield _Rule(_octets(line.value), line.allows, parts, at_end)
        if line.allows and not at_end and line.value.endswith(f"/{_INDEX}"):
            # Not in the RFC; Google's reading: whose index is allowed, that directory is, too.
            directory = line.value.removesuffix(_INDEX)
            parts = tuple(map(_compared, directory.split("*")))
            yield _Rule(_octets(directory) + 1, True, parts, at_end=True)


class _Matcher:
    """The rules of one product token."""

    def __init__(self, lines: list[_RuleLine]) -> None:
        self._rules = sorted(_rules(lines), key=lambda rule: (rule.octets, rule.allows), reverse=True)
        # One call finds that none of thousands of prefixes fits.
        self._prefixes = tuple(rule.parts[0] for rule in self._rules if rule.is_prefix)
        self._others = [rule for rule in self._rules if not rule.is_prefix]
        self._wildcard_chars = sum(len(line.value) for line in lines if "*" in line.value)
        delays = [delay_s for line in lines if line.allows is None and (delay_s := _seconds(line.value)) is not None]
        self.crawl_delay_s = delays[-1] if delays else None

    def allows(self, url: str) -> bool:
        at = url.find("/", _SCHEME_CHARS_MAX)
        path = _compared(url[at:]) if at > 0 else "/"
        if path == "/robots.txt":
            return True
        if self._wildcard_chars * len(path) > MATCH_WORK_MAX:
            return False
        rules = self._rules if path.startswith(self._prefixes) else self._others
        return next((rule.allows for rule in rules if rule.matches(path)), True)


class Robots:
    """A parsed robots.txt."""

    __slots__ = ("_groups", "_matchers", "sitemaps", "size")

    def __init__(self, groups: list[_Group], sitemaps: tuple[str, ...], size: int = 0) -> None:
        self.size = size  # bytes that were parsed
        self._groups = groups
        self._matchers: dict[str, _Matcher] = {}
        self.sitemaps = sitemaps

    @classmethod
    def parse(cls, data: bytes) -> Robots:
        """Any bytes are a robots.txt; what makes no sense is ignored."""
        groups: list[_Group] = []
        sitemaps: list[str] = []
        read = data if len(data) <= PARSED_BYTES_MAX else whole_lines(data[:PARSED_BYTES_MAX])
        for raw in _LINES.split(read.removeprefix(b"\xef\xbb\xbf")):
            match = _FIELD.match(raw.partition(b"#")[0].rstrip(b" \t"))
            if match is None:
                continue
            agent, rule, _, sitemap, content = match.groups()
            value = _FOREIGN.sub(_escaped, content).decode("ascii")
            if agent is not None:
                if not groups or groups[-1].closed:
                    groups.append(_Group())
                groups[-1].agents.add(_agent(value))
            elif sitemap is not None:
                sitemaps.append(value)
            elif groups:
                # Rules before any group concern no agent. Only rules end a list
                # of agents: other records must not interfere (2.2.4).
                groups[-1].closed |= rule is not None
                groups[-1].lines.append(_RuleLine(None if rule is None else rule.lower() == b"allow", value))
        return cls(groups, tuple(sitemaps), len(read))

    def allows(self, url: str, token: str) -> bool:
        """Whether `token`, a product token, may fetch a canonical URL; /robots.txt itself always."""
        return self._matcher(token).allows(url)

    def crawl_delay_s(self, token: str) -> float | None:
        """Seconds between requests, where the file asks for it.

        Not in RFC 9309; many files say it all the same. Finite and not
        negative, but as large as they please.
        """
        return self._matcher(token).crawl_delay_s

    def _matcher(self, token: str) -> _Matcher:
        matcher = self._matchers.get(token)
        if matcher is None:
            if len(self._matchers) >= MATCHERS_MAX:
                self._matchers.clear()
            matcher = self._matchers[token] = _Matcher(self._lines_for(token.lower()))
        return matcher

    def _lines_for(self, token: str) -> list[_RuleLine]:
        # 2.2.1: all groups of the token together; only where there is none, those of '*'.
        own = [group for group in self._groups if token and token in group.agents]
        groups = own or [group for group in self._groups if "*" in group.agents]
        return [line for group in groups for line in group.lines]


def _agent(value: str) -> str:
    # As Google reads it, "*" may have a remark after it, a product token ends
    # at the first character that cannot be in one; '' matches no agent.
    return "*" if value == "*" or value[:2] in ("* ", "*\t") else product_token(value).lower()


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _compared(text: str) -> str:
    """The form of a part of a rule, or of a path and its query, in which they are compared."""
    return _NOT_COMPARED.sub(_in_form, text)


def _in_form(match: re.Match[str]) -> str:
    if match[1] is not None:
        char = chr(int(match[1], 16))
        return char if _UNRESERVED.match(char) else match[0].upper()
    return "".join(map("%{:02X}".format, match[0].encode("utf-8", "surrogatepass")))


def _octets(value: str) -> int:
    return len(value) - 2 * len(_ONE_OCTET.findall(value)) + 2 * len(_SENT_ESCAPED.findall(value))


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match.group()[0]


ALLOW_ALL = Robots.parse(b"")
DISALLOW_ALL = Robots.parse(b"user-agent: *\ndisallow: /")
