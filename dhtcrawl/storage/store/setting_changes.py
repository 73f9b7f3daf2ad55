"""What a user has changed of a crawl's settings since it was begun: of two such changes the later one holds.

The spec of a crawl never changes, because the crawl's id is its digest. The
limits and the delay say how far and how fast a crawl goes, not what it is, so
they may change. A change has all of them, and a version that grows with each; the depth only if that was ever changed,
for then a node looks through its pages as it begins (`dhtcrawl.crawl.depth_change`).

Written down, it is a list that begins with the version, and ends with the node that made the change and its
signature, where they are known. Packed by msgpack, of two such lists that of the later version has greater bytes: nodes
that do not know the field keep the greater bytes of two values, and so merge to the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import msgpack

from dhtcrawl.config import CrawlSettings
from dhtcrawl.spec import CHANGEABLE
from dhtcrawl.storage.store.crawl_signatures import Maker, read_maker
from dhtcrawl.units import INT_MAX

VERSION_MAX: Final = 2**53
_SAID: Final = 5  # of a row; behind it are the depth or None, and its maker, if that is known


class SettingChanges(NamedTuple):
    """The settings of `CHANGEABLE` as a user last wanted them; times in seconds, the size in bytes.

    0 is no limit, but for the depth -1 is; a depth of None was never changed, and is the spec's.
    """

    version: int
    delay_s: float
    max_pages: int
    size_limit_bytes: int
    time_limit_s: float
    depth: int | None = None
    maker: Maker | None = None

    def said(self) -> list[int | float]:
        """What its maker signs."""
        return [self.version, *(value for value in self._settings() if value is not None)]

    def row(self) -> list[Any]:
        """What is stored and sent."""
        # As long whether the depth was changed or not: of two lists the longer one has greater bytes.
        return [self.version, *self._settings(), *([] if self.maker is None else [list(self.maker)])]

    @property
    def packed(self) -> bytes:
        """The bytes by which two changes are compared."""
        return cast(bytes, msgpack.packb(self.row()))

    def applied(self, settings: CrawlSettings) -> CrawlSettings:
        """The settings with what was changed."""
        changed = zip(CHANGEABLE, self._settings(), strict=True)
        return replace(settings, **{name: value for name, value in changed if value is not None})

    def _settings(self) -> list[Any]:
        return [getattr(self, name) for name in CHANGEABLE]


def next_changes(before: SettingChanges | None, begun: CrawlSettings, settings: CrawlSettings) -> SettingChanges:
    """The change to what `settings` say, after the change `before`, of a crawl that was `begun` with others."""
    version = 1 if before is None else before.version + 1
    is_changed = settings.depth != begun.depth or (before is not None and before.depth is not None)
    delay_s, time_limit_s = float(settings.delay_s), float(settings.time_limit_s)
    depth = settings.depth if is_changed else None
    return SettingChanges(version, delay_s, settings.max_pages, settings.size_limit_bytes, time_limit_s, depth)


def later_changes(a: SettingChanges | None, b: SettingChanges | None) -> SettingChanges | None:
    """The later of two changes."""
    if a is None or b is None:
        return a or b
    return max(a, b, key=lambda changes: changes.packed)


def read_changes(value: object) -> SettingChanges | None:
    """A change from a peer or a store; None where it is no such thing."""
    if type(value) is not list or [type(part) for part in value[:_SAID]] != [int, float, int, int, float]:
        return None
    more = value[_SAID:]
    depth = more.pop(0) if more and (more[0] is None or type(more[0]) is int) else None
    makers = [read_maker(part) for part in more]
    if None in makers or len(makers) > 1:
        return None
    version, delay_s, max_pages, size_limit_bytes, time_limit_s = value[:_SAID]
    maker = makers[0] if makers else None
    changes = SettingChanges(version, delay_s, max_pages, size_limit_bytes, time_limit_s, depth, maker)
    sound = 1 <= changes.version <= VERSION_MAX and max(changes.max_pages, changes.size_limit_bytes) <= INT_MAX
    sound = sound and (depth is None or -1 <= depth <= INT_MAX)
    # A NaN is not at least 0 either.
    return changes if sound and all(0 <= part < float("inf") for part in value[:_SAID]) else None
