"""Decides which links belong to a crawl. Pure.

    page     the seeds alone
    prefix   below the directory of a seed
    host     on the host of a seed (the default)
    domain   on the registrable domain of a seed, by the Public Suffix List
    any      everywhere

Pages of results (`dhtcrawl.searches`) are seeds; below the directory of one is, for `prefix`, what is below the part of
an engine's URLs that all have. If a seed redirects, the target counts as a seed, too. Such targets are the scope's
*aliases*; the set only grows.

What the patterns of a crawl cannot decide (`dhtcrawl.patterns`) is excluded: nothing is fetched that
may have been meant to be spared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from publicsuffixlist import PublicSuffixList

from dhtcrawl.config import CrawlSettings
from dhtcrawl.patterns import Patterns
from dhtcrawl.searches import Searches
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.url import host_of, hostname_of


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """`example.co.uk` of `www.example.co.uk:8080`; an address or a bare suffix as it is; without the root's dot."""
    name = hostname_of(host).removesuffix(".")
    if name.startswith("[") or name.replace(".", "").isdigit():
        return name
    domain: str | None = _suffixes().privatesuffix(name)
    return domain or name


class Scope:
    """The scope of a crawl: its kind, seeds, include and exclude patterns."""

    def __init__(
        self,
        seeds: Iterable[str],
        settings: CrawlSettings,
        now: Callable[[], float] = float,
        searches: Searches | None = None,
    ) -> None:
        """`now` gives seconds, by which the patterns are stopped that take too long."""
        self._kind = settings.scope
        self._include = Patterns.of_record(settings.include, now) if settings.include else None
        self._exclude = Patterns.of_record(settings.exclude, now) if settings.exclude else None
        self._hosts: set[str] = set()
        self._domains: set[str] = set()
        self._directories: set[str] = set()
        self._lengths: set[int] = set()  # of the directories: many of these have the same
        self._seeds: set[str] = set()
        self._searches = searches or None
        for seed in seeds:
            self.extend(seed)
        for host, directories in self._searches.directories.items() if self._searches else ():
            for directory in directories:
                self._lets_in(host, directory)

    def extend(self, url: str) -> bool:
        """Count `url` as a seed; return whether it was new."""
        if url in self._seeds:
            return False
        self._seeds.add(url)
        self._lets_in(host_of(url), url.partition("?")[0].rpartition("/")[0] + "/")
        return True

    def _lets_in(self, host: str, directory: str) -> None:
        """Cover what is like a seed on a host, in a directory."""
        self._hosts.add(host)
        if self._kind == "domain":
            self._domains.add(registrable_domain(host))
        if self._kind == "prefix":
            self._directories.add(directory)
            self._lengths.add(len(directory))

    def _is_seed(self, url: str) -> bool:
        return url in self._seeds or (self._searches is not None and bool(self._searches.of(url)))

    def refuses(self, url: str) -> str | None:
        """The `SkipReason` for which a canonical URL is not followed; None if it is followed."""
        if self._is_seed(url):
            return None
        if not self._covers(url):
            return SkipReason.OUT_OF_SCOPE
        if self._include is not None and self._include.matches(url) is not True:
            return SkipReason.EXCLUDED
        if self._exclude is not None and self._exclude.matches(url) is not False:
            return SkipReason.EXCLUDED
        return None

    def rules_out(self, url: str) -> str | None:
        """As `refuses`, of a URL that another node has followed: what patterns cannot decide is left to that node."""
        if self._is_seed(url):
            return None
        if not self._covers(url):
            return SkipReason.OUT_OF_SCOPE
        if self._include is not None and self._include.matches(url) is False:
            return SkipReason.EXCLUDED
        if self._exclude is not None and self._exclude.matches(url) is True:
            return SkipReason.EXCLUDED
        return None

    def strays(self, links: Iterable[Link | None]) -> list[Link]:
        """Those links of another node that are not covered, or pass for a seed and are none.

        Patterns are left to those who find a link and who fetch it: they cost more than all else here.
        """
        sent = [link for link in links if link is not None]
        if self._kind == "any":
            return [link for link in sent if link.seed and not self._is_seed(link.url)]
        if self._kind == "host":
            hosts = self._hosts
            outside = [link for link in sent if link.seed or link.url.split("/", 3)[2] not in hosts]
        else:
            outside = [link for link in sent if link.seed or not self._covers(link.url)]
        return [link for link in outside if not self._is_seed(link.url)]

    def reaches(self, host: str) -> bool:
        """Whether a page of `host`, as `host_of` gives it, may be within the scope."""
        return host in self._hosts or self._kind == "any" or registrable_domain(host) in self._domains

    def _covers(self, url: str) -> bool:
        if self._kind == "host":
            return host_of(url) in self._hosts
        if self._kind == "domain":
            return registrable_domain(host_of(url)) in self._domains
        if self._kind == "prefix":
            directories = self._directories
            return any(url[:length] in directories for length in self._lengths)
        return self._kind == "any"
