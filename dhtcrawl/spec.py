"""What a crawl is: the immutable spec that every node works from, and its id.

crawl id = first 16 bytes of SHA-256(canonical spec ‖ nonce). The canonical
spec is the msgpack map of the fields below, sorted by name, so that two nodes
that agree on the id agree on every word of the crawl. A setting that came with
a later version is left out where it changes nothing, so that crawls begun
before keep their ids.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, cast, overload

import msgpack

from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import UsageError
from dhtcrawl.keyspace import CRAWL_ID_BYTES, KeyMode, TaskKeys, url_key
from dhtcrawl.searches import Searches, read_searches
from dhtcrawl.url import CANON_VERSION, URL_CHARS_MAX, canonicalize, host_of

NONCE_BYTES = 16
RULES_CHARS_MAX: Final = 256 << 10

_TOLD_CHARS_MAX: Final = 500  # of what is refused, lest the remedy be where a long line is cut
# With a scheme or without; of slashes a URL parser takes any number, and backslashes for them.
_CREDENTIALS = re.compile(r"(?:[A-Za-z]+:[/\\]*)?[^/\\?#]*@")
# Settings of later versions stand in the spec only where they are not this: what a crawl was before, it still is.
_SINCE: Final[dict[str, Any]] = {"copies": 1, "policy_options": [], "searches": {}, "rules": ""}
# How far and how fast a crawl goes. It may be changed once the crawl has begun, since it does not say what a crawl is.
CHANGEABLE: Final = ("delay_s", "max_pages", "size_limit_bytes", "time_limit_s", "depth")
# `localhost:8000` has a port, `mailto:me@example.org` a scheme.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?![0-9])")


@dataclass(frozen=True, slots=True)
class CrawlSpec:
    """One crawl. Seeds are canonical, in the order given, without repeats; pages of results are seeds beside them."""

    seeds: tuple[str, ...]
    settings: CrawlSettings
    canon_version: int = CANON_VERSION
    searches: Searches = field(default_factory=Searches)
    rules: str = ""  # of extraction, the text of their file; empty: nothing is extracted
    keys: TaskKeys = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mode = cast(KeyMode, self.settings.key)
        object.__setattr__(self, "keys", TaskKeys(mode, self.searches.place_of if mode == "search" else None))

    @property
    def all_seeds(self) -> AllSeeds:
        """The seeds and the pages of results."""
        return AllSeeds(self.seeds, self.searches)

    @property
    def user_agent(self) -> str:
        contact = self.settings.contact
        return f"{self.settings.user_agent} (+{contact})" if contact else self.settings.user_agent

    @property
    def private_hosts(self) -> frozenset[str]:
        """The hosts that may live on private addresses."""
        hosts = (*map(host_of, self.seeds), *(engine.host for engine in self.searches.engines))
        return frozenset(hosts) if self.settings.allow_private else frozenset()

    def key_of(self, url: str) -> bytes:
        if self.settings.key == "url":  # asked for each link; the host is not in such keys
            return url_key(url)
        return self.keys.of(url, host_of(url))

    @property
    def types(self) -> dict[str, str]:
        """By host, the type of nodes that alone may ask it; other hosts may be asked by all."""
        return self.searches.types

    def canonical(self) -> bytes:
        """The bytes that the crawl id is a digest of."""
        fields = {
            "seeds": list(self.seeds),
            "canon_version": self.canon_version,
            "searches": self.searches.plain(),
            "rules": self.rules,
            **{name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(self.settings).items()},
        }
        said = {name: value for name, value in fields.items() if name not in _SINCE or value != _SINCE[name]}
        return cast(bytes, msgpack.packb(dict(sorted(said.items()))))

    def is_like(self, other: CrawlSpec) -> bool:
        """Whether both are the same crawl, but for what may change, and the order of the seeds."""
        mine = {name: getattr(self.settings, name) for name in CHANGEABLE}
        seeds = self.seeds if sorted(self.seeds) == sorted(other.seeds) else other.seeds
        return replace(other, seeds=seeds, settings=replace(other.settings, **mine)).canonical() == self.canonical()

    def crawl_id(self, nonce: bytes) -> bytes:
        return hashlib.sha256(self.canonical() + nonce).digest()[:CRAWL_ID_BYTES]

    @classmethod
    def from_canonical(cls, data: bytes) -> CrawlSpec:
        """The spec that `canonical` wrote; fields of later versions are ignored."""
        fields: dict[str, Any] = msgpack.unpackb(data)
        names = {f.name for f in dataclasses.fields(CrawlSettings)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k in names}
        seeds = tuple(fields["seeds"])
        searches = read_searches(fields.get("searches", {}))
        rules = fields.get("rules", "")
        return cls(seeds, CrawlSettings(**values), fields["canon_version"], searches, rules)


class AllSeeds(Sequence[str]):
    """The seeds of a crawl, then its pages of results, which are made at need; one may stand there twice."""

    def __init__(self, seeds: tuple[str, ...], searches: Searches) -> None:
        self._seeds = seeds
        self._searches = searches

    def __len__(self) -> int:
        return len(self._seeds) + len(self._searches)

    def __iter__(self) -> Iterator[str]:
        yield from self._seeds
        for page in self._searches.pages():
            if page.url is not None:
                yield page.url

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        """One of them, counted from 0 on, or those of a slice; it takes as long as making all before it."""
        if isinstance(place, slice):
            return list(islice(self, place.start, place.stop, place.step))
        for url in islice(self, place, None):
            return url
        raise IndexError(place)


def typed_url(text: str) -> str | None:
    """The canonical URL of what a user typed, or None where it is none.

    People type `example.org/page`, and mean the web.
    """
    stripped = text.strip()
    return canonicalize(stripped if _SCHEME.match(stripped) else f"http://{stripped}")


def web_address(text: str, hint: str = "something like https://example.org/") -> str:
    """The canonical URL of what a user typed.

    Raises:
        UsageError: it is no http(s) URL; `hint` is what to use.
    """
    url = typed_url(text)
    if url is None:
        if len(text) <= _TOLD_CHARS_MAX:
            raise UsageError(f"{text!r} is no web address; use {hint}")
        raise UsageError(
            f"{text[:_TOLD_CHARS_MAX]!r}... is no web address of at most {URL_CHARS_MAX} characters, escapes counted; "
            f"use {hint}"
        )
    return url


def make_spec(seeds: Iterable[str], settings: CrawlSettings, searches: Searches | None = None) -> CrawlSpec:
    """A spec from what a user typed; without `searches` it needs a seed.

    Raises:
        UsageError: a seed is no http(s) URL, or there is none.
    """
    canonical: dict[str, None] = {}
    for seed in seeds:
        url = web_address(seed)
        if _CREDENTIALS.match(seed.strip()):
            raise UsageError(
                f"{url!r} was named with a user or a password before its host, which is never sent; leave that out"
            )
        canonical[url] = None
    if not canonical and not searches:
        raise UsageError("no seed given; name at least one URL to start from")
    return CrawlSpec(tuple(canonical), settings, searches=searches or Searches())
