"""What a robots.txt allows (RFC 9309), without I/O.

Reading lines and choosing a group is done here, matching rules by Protego,
which gets one group at a time. That mends what Protego does otherwise: it
takes `User-agent: d` for every token with a d in front, does not cut product
tokens at their first foreign character, lets an unknown line end a list of
user agents, breaks lines at U+2028, and takes quadratic time and memory for a
file of many agents that share many rules. Protego also measures a rule once
its `?` and `&` are escaped; here its length is that of the octets as sent
(2.2.2): one for each character that a URL carries as it is and for an escaped
unreserved one, three for any other escape and each octet that is not ASCII.

`allows` may be asked for every page. Its work is bounded by
`MATCH_WORK_MAX`, whatever the file and the URL; `Robots` keeps the rules of
500 KiB at most, and a matcher for each of the last few tokens asked for.
"""

from __future__ import annotations

import re
from enum import Enum

from protego import Protego

# RFC 9309, 2.5: "at least 500 kibibytes"; what follows is ignored.
PARSED_BYTES_MAX = 500 * 1024

# Characters of wildcard rules times characters of the URL: the most that
# matching can compare (each rule is matched left to right, without going
# back). 2**27 takes some 0.1 s; 100 KB of wildcards leave 1,300 characters for
# the URL. What is longer on such a site is not fetched.
MATCH_WORK_MAX = 2**27

MATCHERS_MAX = 8  # a node crawls under one or two product tokens

_LINES = re.compile(rb"\r\n|\r|\n")
_FIELD = re.compile(
    rb"[ \t]*+(?:(user[ -]?agent)|(allow|diss?all?ow|diasllow|disallaw)|(crawl[ -]delay)|(site-?maps?))"
    rb"(?:[ \t]*+:|[ \t]++)[ \t]*+(.*+)",
    re.IGNORECASE | re.DOTALL,
)
_PRODUCT_TOKEN = re.compile(r"[A-Za-z_-]*")
# Rules compare URLs as they are sent, so what cannot stand in one is escaped
# (RFC 9309, 2.2.2). Protego would take some of it for the end of a line.
_FOREIGN = re.compile(rb"[^\t\x20-\x7e]")
# Escapes that count as one octet: those of unreserved characters, and of `$`,
# by which Protego also writes a `$` that stands for itself.
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


class _Group:
    """Agents in lower case, '*' among them, and the lines that concern them."""

    __slots__ = ("agents", "closed", "lines")

    def __init__(self) -> None:
        self.agents: set[str] = set()
        self.lines: list[str] = []
        self.closed = False  # a rule has come: the next user-agent line begins another


class _Matcher:
    """The groups of one product token, as one Protego group."""

    def __init__(self, lines: list[str]) -> None:
        self._protego = Protego.parse("\n".join(["user-agent: *", *lines])) if lines else None
        if self._protego is not None:
            _measure(self._protego)
        self.crawl_delay_s = self._protego.crawl_delay("*") if self._protego is not None else None
        self._wildcard_chars = sum(len(line) for line in lines if "*" in line)

    def allows(self, url: str) -> bool:
        if self._protego is None:
            return True
        if self._wildcard_chars * len(url) > MATCH_WORK_MAX:
            return False
        try:
            return self._protego.can_fetch(url, "*")
        except ValueError:
            # urllib refuses some authorities; canonical URLs have none of them.
            return False


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
        for raw in _LINES.split(data[:PARSED_BYTES_MAX].removeprefix(b"\xef\xbb\xbf")):
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
                groups[-1].lines.append(_line(rule, value))
        return cls(groups, tuple(sitemaps), min(len(data), PARSED_BYTES_MAX))

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

    def _lines_for(self, token: str) -> list[str]:
        # 2.2.1: all groups of the token together; only where there is none, those of '*'.
        own = [group for group in self._groups if token and token in group.agents]
        groups = own or [group for group in self._groups if "*" in group.agents]
        return [line for group in groups for line in group.lines]


def _agent(value: str) -> str:
    # As Google reads it, "*" may have a remark after it, a product token ends
    # at the first character that cannot be in one; '' matches no agent.
    return "*" if value == "*" or value[:2] in ("* ", "*\t") else product_token(value).lower()


def _line(rule: bytes | None, value: str) -> str:
    if rule is None:
        return f"crawl-delay: {value}"
    return f"allow: {value}" if rule.lower() == b"allow" else f"disallow: {value}"


def _measure(protego: Protego) -> None:
    """Order the rules by their octets as sent; Protego has no public way to set their lengths."""
    for value, pattern in protego._url_patterns.items():  # noqa: SLF001 - no public way; a test watches it
        if pattern is not None:
            pattern.priority = _octets(value)
    for rules in protego._user_agents.values():  # noqa: SLF001 - as above
        rules.finalize_rules()


def _octets(value: str) -> int:
    return len(value) - 2 * len(_ONE_OCTET.findall(value)) + 2 * len(_SENT_ESCAPED.findall(value))


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match.group()[0]


ALLOW_ALL = Robots.parse(b"")
DISALLOW_ALL = Robots.parse(b"user-agent: *\ndisallow: /")
