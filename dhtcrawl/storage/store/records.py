"""Task records and the merge of two replicas of one: a lattice (design invariant I2).

    pending ──▶ fetched ──▶ done
       │           ▲
       └──▶ dead ──┘  (a result counts whatever its attempt)

Two replicas merge to the higher `gen`; within it `done`, then `dead`, beats any
attempt; else the higher attempt wins, then the state. Depth merges by minimum.
Fetches are counted for each node (a grow-only counter: Shapiro et al. 2011,
section 3.1.1) and merge by maximum, so that a record always says how often its page
was fetched. Merging is commutative, associative and idempotent, so replicas may meet
in any order and any number of times.

A stored value is one byte of format version and a msgpack array or map.

What versions after the first add to a record is `Additions`, in the store and on the
wire: `others`, which only records have, and a sequence of bytes behind it, the tail.
Two rules hold for whoever adds to it:

- A link has a tail, too, and it becomes its task's. So links and records share one
  sequence of additions: a field of links takes its place in those of records.
- A version that does not know a field keeps the tail as it came, and merges two by the
  greater bytes. As long as nodes of such versions are about, every other rule would make
  replicas differ for good. So the tail merges as a whole, and by this rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from dhtcrawl.errors import StorageError, StoreTooNew

VALUE_VERSION = 1
_VERSION = bytes([VALUE_VERSION])
# A packer that is kept saves a buffer a record. It holds the interpreter while it packs, so threads may share it.
_packed: Callable[[object], bytes] = msgpack.Packer().pack
# The letter before the number of an archive file that holds copies of other nodes' bodies.
COPIES = "c"
# The field of a page record, and of no output, with the depth limit within which the page's links were sent; -1: none.
DEPTH_LIMIT = "depth_limit"
# How many nodes that fetched a page, besides the one that has it, are kept: those with the smallest ids.
OTHERS_MAX = 40
_PLAIN = 12  # fields of a stored task without additions, which would be the next two: `others` and the tail
_HEAD = 4  # bytes before the URL of a stored task with a URL of 32 to 255 bytes
_ARRAYS, _STR8, _FIXINT_MAX = range(0x90 + _PLAIN, 0x90 + _PLAIN + 3), 0xD9, 0x7F
# How many bytes a number from 0 on takes, by its first byte; their order is that of the numbers.
_NUMBER_BYTES = {**dict.fromkeys(range(_FIXINT_MAX + 1), 1), 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}
# A record is read several times between two changes: the cache has it until a thousand others are read.
TASKS_KEPT_MAX = 1024


class State(IntEnum):
    """Where a task stands; the order is the lattice's.

    Number 1 was "leased", which no version wrote: assignments are kept in memory
    only. The number stays reserved, and is read as pending, so that the other
    numbers keep their meaning in stores and on the wire.
    """

    PENDING = 0
    FETCHED = 2
    DEAD = 3
    DONE = 4

    @classmethod
    def _missing_(cls, value: object) -> State | None:
        return cls.PENDING if value == _RETIRED else None


_RETIRED = 1
STATES = {number: State(number) for number in (_RETIRED, *map(int, State))}  # a call of the enum costs much more


class SkipReason:
    """Why a URL was not fetched, in the words of reports/skipped.jsonl."""

    OUT_OF_SCOPE = "out-of-scope"
    EXCLUDED = "excluded"
    DEPTH = "depth"
    NOFOLLOW = "nofollow"
    RULES = "rules"
    ROBOTS = "robots"
    FAILED = "failed"
    RECALLED = "recalled"
    PRIVATE_ADDRESS = "private-address"
    REDIRECT_LIMIT = "redirect-limit"
    NOT_A_URL = "not-a-url"
    PAGE_LIMIT = "page-limit"
    TIME_LIMIT = "time-limit"
    SIZE_LIMIT = "size-limit"
    DISK_LIMIT = "disk-limit"
    DROPPED = "dropped"


class SkippedLink(NamedTuple):
    """A link that is not followed: `url` as written where it is none, why, and the page that has it."""

    url: str
    reason: str
    referrer: str = ""  # "" where the version that wrote the record kept none


class Place(NamedTuple):
    """Where a body lies: a response record in an archive file of a node."""

    node: str
    file: str
    offset: int
    length: int

    @property
    def is_copy(self) -> bool:
        """Whether `node` did not fetch the page, but has a copy of its body (`--copies`)."""
        return holds_copies(self.file)


def holds_copies(name: str) -> bool:
    """Whether an archive file holds copies of pages that other nodes fetched."""
    return name.rpartition("-")[2].startswith(COPIES)


class Additions(NamedTuple):
    """What versions after the first added to a record or, as far as it is in the tail, to a link.

    A new field goes before `later`, into `tail` and `of_tail`; see above.
    """

    others: tuple[str, ...] = ()  # nodes that fetched the page besides `place.node`: ids, sorted, once for each fetch
    later: bytes = b""  # what a later version adds; kept and passed on

    def tail(self) -> bytes:
        """All behind `others`, as it is stored and sent."""
        return self.later

    @classmethod
    def of_tail(cls, tail: bytes, others: tuple[str, ...] = ()) -> Additions:
        """The additions with a tail that was stored or sent."""
        return cls(others, tail)

    def fields(self) -> tuple[Any, ...]:
        """The additions as they follow the other fields of a stored record: left out where they are empty."""
        if self is NO_ADDITIONS:
            return ()  # the usual case
        tail = self.tail()
        return (self.others, tail) if tail else (self.others,) if self.others else ()

    @classmethod
    def of_fields(cls, fields: list[Any]) -> Additions:
        """The additions of a stored record's fields.

        Raises:
            TypeError: they are damaged.
        """
        if len(fields) == _PLAIN:
            return NO_ADDITIONS
        others = tuple(fields[_PLAIN])
        return cls.of_tail(fields[_PLAIN + 1], others) if len(fields) > _PLAIN + 1 else cls(others)

    def are_in(self, fields: list[Any]) -> bool:
        """Whether a stored record's fields have the same additions."""
        if self is NO_ADDITIONS:
            return len(fields) == _PLAIN
        ours = self.fields()
        return fields[_PLAIN:] == ([list(self.others), *ours[1:]] if ours else [])

    def merge(self, more: Additions, others: tuple[str, ...]) -> Additions:
        """These and `more` merged, with `others`, which merge by what else their records say."""
        tail = max(self.tail(), more.tail())
        return self.of_tail(tail, others) if tail or others else NO_ADDITIONS


NO_ADDITIONS = Additions()


class Task(NamedTuple):
    """A task record. `order` numbers the tasks of a node in the order of their discovery."""

    url: str
    depth: int
    order: int
    referrer: str
    state: State = State.PENDING
    gen: int = 0
    attempt: int = 0
    hops: int = 0  # redirects that led here, in a row
    seed: bool = False  # a seed, or what a seed redirects to
    reason: str = ""  # of a dead task: a SkipReason
    detail: str = ""
    place: Place | None = None  # of a fetched or done task: where its body lies
    added: Additions = NO_ADDITIONS

    @property
    def others(self) -> tuple[str, ...]:
        return self.added.others

    @property
    def fetchers(self) -> tuple[str, ...]:
        """The nodes known to have fetched the page: ids, sorted, once for each fetch."""
        if self.place is None or self.place.is_copy:
            return self.others
        return tuple(sorted((*self.others, self.place.node)))

    def with_others(self, others: tuple[str, ...]) -> Task:
        """The record with other `Additions.others`."""
        return self._replace(added=self.added._replace(others=others))

    def pack(self) -> bytes:
        return self.pack_with(self.order)

    def pack_with(self, order: int) -> bytes:
        """The stored value of `_replace(order=order)`."""
        fields = (
            self.url, self.depth, order, self.referrer, int(self.state), self.gen, self.attempt,
            self.hops, self.seed, self.reason, self.detail, self.place,
        )  # fmt: skip
        # The usual case without a call: each task is written nine times in a swarm.
        return _VERSION + _packed(fields if self.added is NO_ADDITIONS else (*fields, *self.added.fields()))


class ShownTask(NamedTuple):
    """The part of a task record that outputs show, for less than the whole."""

    url: str
    referrer: str
    state: State
    reason: str
    detail: str


@lru_cache(maxsize=TASKS_KEPT_MAX)
def unpack_task(value: bytes) -> Task:
    """The task record in a stored value.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    fields = unpack(value)
    try:
        url, depth, order, referrer, state, gen, attempt, hops, seed, reason, detail, place = fields[:_PLAIN]
        return Task(
            url, depth, order, referrer, STATES[state], gen, attempt, hops, seed, reason, detail,
            Place(*place) if place is not None else None, Additions.of_fields(fields),
        )  # fmt: skip
    except (ValueError, TypeError, LookupError) as error:
        raise _damaged(error) from error


def depth_of(value: bytes) -> int:
    """The depth in a stored task record: all that matters of most links that are known, without reading the rest.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    # As `_after_url`, without its call: each record that is written or looked up comes by here.
    if len(value) > _HEAD and value[0] == VALUE_VERSION and value[1] in _ARRAYS and value[2] == _STR8:
        at = _HEAD + value[3]
        if at < len(value) and value[at] <= _FIXINT_MAX:
            return value[at]
    return unpack_task(value).depth


def url_of(value: bytes) -> str:
    """The URL in a stored task record, without reading the rest of most.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    at = _after_url(value)
    return value[_HEAD:at].decode("utf-8", "replace") if at else unpack_task(value).url


def lower_order(a: bytes, b: bytes) -> bytes | None:
    """Of two stored task records that differ in nothing but `order`, the one with the lower; else None.

    None also where it takes more than a look to know. What it returns is what they merge to.
    """
    at = _after_url(a) + 1  # behind the depth
    if at == 1 or at >= len(a) or a[:at] != b[:at] or at >= len(b):
        return None
    a_end, b_end = at + _NUMBER_BYTES.get(a[at], len(a)), at + _NUMBER_BYTES.get(b[at], len(b))
    if a_end >= len(a) or b_end >= len(b) or a[a_end:] != b[b_end:]:
        return None
    return a if a[at:a_end] <= b[at:b_end] else b


def _after_url(value: bytes) -> int:
    """Where the depth stands in a stored task record, in one byte; 0 where that takes reading it."""
    # msgpack: an array of 12 to 14, a text of 32 to 255 bytes, a number below 128.
    if len(value) > _HEAD and value[0] == VALUE_VERSION and value[1] in _ARRAYS and value[2] == _STR8:
        at = _HEAD + value[3]
        if at < len(value) and value[at] <= _FIXINT_MAX:
            return at
    return 0


def shown_task(value: bytes) -> ShownTask:
    """What a stored task record says for the outputs.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    fields = unpack(value)
    try:
        url, _, _, referrer, state, _, _, _, _, reason, detail, _ = fields[:_PLAIN]
        return ShownTask(url, referrer, STATES[state], reason, detail)
    except (ValueError, TypeError, LookupError) as error:
        raise _damaged(error) from error


def has_additions(value: bytes) -> bool:
    """Whether a stored task record has `Additions`."""
    return len(value) > 1 and value[1] != _ARRAYS.start


def is_task(fields: object) -> bool:
    """Whether a stored value's content has the fields of a task record of this version."""
    return type(fields) is list and _PLAIN <= len(fields) <= _PLAIN + 2


def essence(task: Task) -> tuple[Any, ...]:
    """The fields by which replicas are compared; two that were merged with each other have the same."""
    same = (task.gen, task.state, task.attempt, task.depth, task.place, task.seed, task.reason)
    return (*same, *task.added.fields())


def essence_of(fields: list[Any]) -> tuple[Any, ...]:
    """The `essence` of a stored record's fields, without making a Task.

    Raises:
        ValueError, TypeError: they are damaged.
    """
    _, depth, _, _, state, gen, attempt, _, seed, reason, _, place = fields[:_PLAIN]
    return (gen, State(state), attempt, depth, place, seed, reason, *Additions.of_fields(fields).fields())


def merge(a: Task, b: Task) -> Task:
    """Merge two replicas of a record."""
    if a.gen == b.gen and a.state == b.state == State.DONE:
        # Both replicas are of a page that was fetched: the lowest attempt wins, then the
        # node id. The other fields make the winner the same in either order.
        winner = min(a, b, key=lambda task: (task.attempt, task.place or (), task.reason, task.detail))
    else:
        winner = max(a, b, key=_rank)
    # The fields about the discovery are those of the replica with the smallest depth, all
    # of them: a mix would make the merge depend on the order in which replicas meet.
    finder = min(a, b, key=lambda task: (task.depth, task.order, task.referrer, task.hops))
    return winner._replace(
        depth=finder.depth,
        order=finder.order,
        referrer=finder.referrer,
        hops=finder.hops,
        seed=a.seed or b.seed,
        added=a.added.merge(b.added, _others(winner, a, b)),
    )


def merge_stored(a: bytes, b: bytes) -> bytes:
    """Merge two stored replicas of a record, most without reading them.

    Raises:
        StoreTooNew: a later version wrote one.
        StorageError: one is damaged.
    """
    lower = lower_order(a, b)
    return lower if lower is not None else merge(unpack_task(a), unpack_task(b)).pack()


def fetched_again(task: Task, node: str) -> tuple[str, ...]:
    """`Additions.others` after `node` has fetched the page again while its place stays the same."""
    return tuple(sorted((*task.others, node))[:OTHERS_MAX])


def others_beside(place: Place | None, fetchers: Iterable[str]) -> tuple[str, ...]:
    """`Additions.others` of a page that lies at `place` and was fetched by `fetchers`, as `Task.fetchers` has them."""
    known = sorted(fetchers)
    if place is not None and not place.is_copy and place.node in known:
        known.remove(place.node)
    return tuple(known[:OTHERS_MAX])


def _others(winner: Task, a: Task, b: Task) -> tuple[str, ...]:
    if not a.others and not b.others:
        loser = b if winner is a else a
        if loser.place is None or loser.place == winner.place:
            return ()  # the usual case
    return others_beside(winner.place, (Counter(a.fetchers) | Counter(b.fetchers)).elements())


def _rank(task: Task) -> tuple[Any, ...]:
    settled = task.state if task.state >= State.DEAD else 0
    return (task.gen, settled, task.attempt, task.state, task.reason, task.detail, task.place or ())


def pack(value: object) -> bytes:
    """The stored value of any other record."""
    return _VERSION + _packed(value)


def unpack(value: bytes) -> Any:
    """The content of a stored value.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    if not value or value[0] != VALUE_VERSION:
        if value[:1] < _VERSION:
            raise _damaged("no record begins so")
        raise StoreTooNew(
            f"the store has a record of format {value[0]}, this version reads {VALUE_VERSION}; upgrade dhtcrawl"
        )
    try:
        return msgpack.unpackb(memoryview(value)[1:], strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _damaged(error) from error


def _damaged(why: object) -> StorageError:
    return StorageError(f"the store has a damaged record ({why}); run 'dhtcrawl fsck'")
