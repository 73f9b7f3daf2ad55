"""The record of a crawl that every node of a swarm keeps, and the merge of two replicas of it.

    running ◀──▶ paused        a user, at any node
       │           │
       └─────┬─────┘
             ▼
         stopping ──▶ running  a user; or the coordinator, when a limit is reached (`cause`)
             │
             ▼
       ended: a word           the coordinator; `running` again by a user, or by a node that comes back with work

Every arrow raises `version`. Two replicas merge to the state of the higher version.
Equal versions with different states arise only at nodes that could not hear one
another: then an end beats none, and "complete" every other end, for it is a fact and
the others are wishes. An end brings `totals` of the figures along. Of two changes of the limits the
later one holds, whatever the state is (`dhtcrawl.storage.store.setting_changes`). Aliases and participants
merge by union, and so do the fields that later versions add: a node keeps and
sends on what it does not know.
The targets of seeds' redirects merge by who says which (`redirect_targets`), and who has the pages of a node that
left by what that node signed last (`bequests`). Of a crawl with an author, aliases are those that this node believes,
`adopted` is what an earlier version stored, and no other node hears either.
So merging is commutative, associative and idempotent, and replicas may meet in any order.

The crawl's author has signed its id, and who changes the state or the settings signs that (`crawl_signatures`).

On the wire a record is one string of bytes: a msgpack map, deflated.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import msgpack

from dhtcrawl.config import CrawlSettings, load
from dhtcrawl.errors import ConfigError
from dhtcrawl.keyspace import CRAWL_ID_BYTES
from dhtcrawl.node_key import NodeKey
from dhtcrawl.searches import read_searches
from dhtcrawl.spec import NONCE_BYTES, RULES_CHARS_MAX, CrawlSpec
from dhtcrawl.storage.store import bequests, crawl_signatures, redirect_targets
from dhtcrawl.storage.store.crawl_signatures import (
    SETTINGS,
    STATE,
    CrawlAuthor,
    Maker,
    made_by,
    read_author,
    read_maker,
)
from dhtcrawl.storage.store.setting_changes import SettingChanges, later_changes, next_changes, read_changes
from dhtcrawl.url import CANON_VERSION, canonicalize

V = TypeVar("V", str, bytes)
P = TypeVar("P")

RUNNING, PAUSED, STOPPING = STATES = ("running", "paused", "stopping")
COMPLETE, FAILED, STOPPED = "complete", "failed", "stopped"
FINAL = (COMPLETE, FAILED)  # ends which say that nothing is left

VERSION_MAX: Final = 2**53
# What a peer says counts in steps (`lowered`). Nobody changes a crawl four thousand million times, so a stored version
# beyond that came from a peer, and is read as that of one step.
STEP_MAX: Final = 1_000
STORED_VERSION_MAX: Final = 2**32
# A union that is too large keeps the smallest, so that it remains a lattice. There is one alias a redirected seed.
ALIASES_MAX: Final = 4_096
PARTICIPANTS_MAX: Final = 4_096
BEQUESTS_MAX: Final = 1_024  # 188 bytes each
# A frame holds 1 MiB. Some 40,000 seeds fit; a malicious record can be sixty times its length when inflated.
WIRE_BYTES_MAX: Final = 900 << 10
# Of it, what lists leave free for state, end, figures and changes of the settings: who stops a crawl, and its end, find
# room. They take 6 KiB at most.
STATE_BYTES: Final = 8 << 10
# And what a node's own additions to lists leave free for those that others make at the same moment: of two that do not
# fit together each would be kept by some, and no wave would find one record.
OWN_BYTES: Final = 64 << 10
INFLATED_BYTES_MAX: Final = 3 << 20
SPEC_BYTES_MAX: Final = 2 << 20
DIGEST_BYTES: Final = 8
TOTALS_MAX: Final = 128
TOTAL_MAX: Final = 2**63 - 1
NO_TOTALS: Final[Mapping[str, int | float]] = MappingProxyType({})
LATER_MAX: Final = 64  # fields that this version does not know
LATER_BYTES_MAX: Final = 4 << 10  # of the value of each
DETAIL_CHARS_MAX: Final = 200  # of a peer's text in an error

_STORED = (
    "aliases",
    "ended",
    "state",
    "cause",
    "version",
    "participants",
    "adopted",
    "totals",
)  # besides spec, nonce, and what may be missing
MAY_BE_MISSING: Final = ("author", "maker", "changes", "later", "targets", "bequests")  # from a stored record
_ON_THE_WIRE = frozenset({"crawl", "spec", "nonce", "places", *MAY_BE_MISSING, *_STORED}) - {"later"}
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_WORD = re.compile(r"[a-z][a-z -]{0,31}")
_HEX_ID = re.compile(r"[0-9a-f]{40}")


class NotARecord(ValueError):
    """A peer sent bytes that are not a crawl's record; the message says what is wrong with them."""


@dataclass(frozen=True, slots=True)
class CrawlRecord:
    """A crawl's record. `ended` is "" while there is work left."""

    crawl_id: bytes
    spec: CrawlSpec
    nonce: bytes
    aliases: list[str] = field(default_factory=list)
    ended: str = ""  # "complete", "failed", or the word of what ended it: "page limit", "stopped", …
    state: str = RUNNING
    cause: str = ""  # why it is stopping, in the words of `ended`
    version: int = 0  # how often state or end were changed
    participants: list[str] = field(default_factory=list)  # ids, in hex, of the nodes that ever ran it
    adopted: dict[str, str] = field(default_factory=dict)  # as `heirs`, before nodes that leave signed it
    totals: dict[str, int | float] = field(
        default_factory=dict
    )  # of an ended crawl: the counters of all nodes, added up
    later: dict[str, bytes] = field(default_factory=dict)  # fields that only later versions know: their values, packed
    changes: SettingChanges | None = None  # of the spec's settings, by a user
    author: CrawlAuthor | None = None  # where it was submitted; None: before authors were known
    maker: Maker | None = None  # of this version of the state; None: unknown, or it has not changed
    targets: dict[str, bytes] = field(default_factory=dict)  # where seeds redirect to, by who says so
    # To whom nodes that left gave their pages, as they signed it.
    bequests: dict[str, bytes] = field(default_factory=dict)
    _digest: bytes = field(default=b"", init=False, compare=False, repr=False)
    _heirs: dict[str, str] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def digest(self) -> bytes:
        """Eight bytes that differ if two replicas of a crawl's record differ."""
        if not self._digest:
            object.__setattr__(self, "_digest", _digest_of(merge_crawls(self, self)))  # every wave asks every member
        return self._digest

    @property
    def heirs(self) -> Mapping[str, str]:
        """Of nodes that left: who has their archive now, all in hex. An heir may leave in turn: follow the chain."""
        if self._heirs is None:
            last = {node: each.heir.hex() for node, each in bequests.last_of(self.bequests).items()}
            found = {node: heir for node, heir in (self.adopted | last).items() if heir != node}
            object.__setattr__(self, "_heirs", found)
        return cast("dict[str, str]", self._heirs)

    @property
    def settings(self) -> CrawlSettings:
        """The settings that hold now: those of the spec, and what was changed of them."""
        return self.spec.settings if self.changes is None else self.changes.applied(self.spec.settings)

    @property
    def spec_now(self) -> CrawlSpec:
        """The spec with the settings that hold now; its digest may be another than the crawl's id."""
        return replace(self.spec, settings=self.settings)

    @property
    def begun_depth(self) -> int | None:
        """The depth limit that it began with, if that was ever changed; else None."""
        return None if self.changes is None or self.changes.depth is None else self.spec.settings.depth

    @property
    def state_said(self) -> list[Any]:
        """What the maker of this version of the state signs."""
        return [self.version, self.state, self.cause, self.ended, sorted(map(list, self.totals.items()))]

    @property
    def shared_aliases(self) -> list[str]:
        """The aliases that other nodes take from this one: none where the crawl's author is known."""
        return self.aliases if self.author is None else []

    @property
    def shared_adopted(self) -> dict[str, str]:
        """The heirs without a signature that other nodes take from this one: none where the crawl's author is known."""
        return self.adopted if self.author is None else {}

    @property
    def depth_matters(self) -> bool:
        """Whether a smaller depth of a page may bring further links into scope: there is a limit, and work left."""
        return not self.ended and self.settings.depth >= 0


def new_record(spec: CrawlSpec, salt: bytes, key: NodeKey) -> CrawlRecord:
    """The record of a crawl that begins at the node with this key; another crawl for each salt of `NONCE_BYTES`."""
    nonce = crawl_signatures.nonce_of(key.node_id, salt)
    crawl_id = spec.crawl_id(nonce)
    return CrawlRecord(crawl_id, spec, nonce, author=crawl_signatures.author(key, salt, crawl_id))


def signed(record: CrawlRecord, before: CrawlRecord | None, key: NodeKey) -> CrawlRecord:
    """The record with the signature of the node with this key on what has changed since `before`."""
    changes = record.changes
    if changes is not None and (before is None or changes != before.changes) and changes.maker is None:
        changes = changes._replace(maker=made_by(key, record.crawl_id, SETTINGS, changes.said()))
        record = replace(record, changes=changes)
    if record.maker is None and record.version > (0 if before is None else before.version):
        record = replace(record, maker=made_by(key, record.crawl_id, STATE, record.state_said))
    return record


def changed(
    record: CrawlRecord,
    state: str,
    *,
    cause: str = "",
    ended: str = "",
    totals: Mapping[str, int | float] = NO_TOTALS,
) -> CrawlRecord:
    """The record after a change of state or end; the same object if nothing changes. `totals` are those of an end."""
    assert state in STATES, state
    if (record.state, record.cause, record.ended) == (state, cause, ended):
        return record
    version, counted = record.version + 1, dict(totals)
    return replace(record, state=state, cause=cause, ended=ended, version=version, totals=counted, maker=None)


def with_settings(record: CrawlRecord, settings: CrawlSettings) -> CrawlRecord:
    """The record once the settings that may change are those of `settings`; the same object if nothing changes."""
    after = next_changes(record.changes, record.spec.settings, settings)
    return record if after.applied(record.settings) == record.settings else replace(record, changes=after)


def is_later(a: CrawlRecord, b: CrawlRecord) -> bool:
    """Whether a merge takes the state of `a`, as that of `b` is another and an earlier one."""
    return a.state_said != b.state_said and _rank(a) > _rank(b)


def with_state_of(record: CrawlRecord, other: CrawlRecord) -> CrawlRecord:
    """The record with state and end of another replica."""
    said = {name: getattr(other, name) for name in ("version", "state", "cause", "ended", "totals", "maker")}
    return replace(record, **said)


def with_said_of(record: CrawlRecord, other: CrawlRecord) -> CrawlRecord:
    """The record with state, end and settings of another replica, and the lists as they are."""
    return replace(with_state_of(record, other), changes=other.changes, author=other.author)


def said_again(record: CrawlRecord, other: CrawlRecord) -> CrawlRecord:
    """The record with its state and settings in versions above those of another replica, where that has later ones."""
    if is_later(other, record):
        record = replace(record, version=other.version + 1, maker=None)
    theirs, ours = other.changes, record.changes
    if theirs is not None and later_changes(theirs, ours) != ours:
        version = theirs.version + 1
        ours = next_changes(None, record.spec.settings, record.settings) if ours is None else ours
        record = replace(record, changes=ours._replace(version=version, maker=None))
    return record


def merge_crawls(a: CrawlRecord, b: CrawlRecord) -> CrawlRecord:
    """Merge two replicas of a record; the lists of the result are sorted."""
    assert a.crawl_id == b.crawl_id, "these are two crawls"
    later = max(a, b, key=_rank)
    return replace(
        later,
        totals=dict(sorted(later.totals.items())),
        aliases=_smallest([*a.aliases, *b.aliases], ALIASES_MAX),
        participants=_smallest([*a.participants, *b.participants], PARTICIPANTS_MAX),
        # Of two values the greater wins; any rule would do that is the same at all nodes.
        adopted=_greatest(a.adopted, b.adopted, PARTICIPANTS_MAX),
        later=_greatest(a.later, b.later, LATER_MAX),
        changes=later_changes(a.changes, b.changes),
        author=max(filter(None, (a.author, b.author)), default=None),
        targets=_greatest(a.targets, b.targets, ALIASES_MAX),
        bequests=_greatest(a.bequests, b.bequests, BEQUESTS_MAX),
    )


def lowered(record: CrawlRecord, known: CrawlRecord | None) -> CrawlRecord:
    """A peer's record with versions at most a step above the `known` ones; the same object where they are.

    Each change raises a version by one, so a far higher one is a lie, or we were away for very long. It is lowered
    rather than refused: an honest record is told again, and known as it is after a few times; after a lie there are
    versions left for the next change.
    """
    base = 0 if known is None else known.version
    before = 0 if known is None or known.changes is None else known.changes.version
    changes = record.changes
    if changes is not None and changes.version > before + STEP_MAX:
        changes = changes._replace(version=before + STEP_MAX, maker=None)
    version = min(record.version, base + STEP_MAX)
    if (version, changes) == (record.version, record.changes):
        return record
    # Nobody has signed what is lowered.
    return replace(record, version=version, changes=changes, maker=record.maker if version == record.version else None)


def heir_of(record: CrawlRecord, node: str, is_there: Callable[[str], bool]) -> str | None:
    """The node that has the pages of `node` now: itself while it is there, else its heir; None if neither is there."""
    met = {node}
    while not is_there(node):
        heir = record.heirs.get(node)
        if heir is None or heir in met:
            return None
        met.add(heir)
        node = heir
    return node


def nodes_of(record: CrawlRecord, node: str, is_there: Callable[[str], bool]) -> frozenset[str]:
    """The nodes whose pages `node` has by the record: itself, and those of which it is the heir now."""
    return frozenset((node, *(left for left in left_to(record, node) if heir_of(record, left, is_there) == node)))


def left_to(record: CrawlRecord, node: str) -> tuple[str, ...]:
    """The nodes that ever left pages to `node`, directly or through heirs that left in turn."""
    given = {(each.heir.hex(), each.node_id.hex()) for each in bequests.bequests_of(record.bequests)}
    given |= {(heir, leaver) for leaver, heir in record.adopted.items()}
    found, heirs = set[str](), {node}
    while heirs:
        heirs = {leaver for heir, leaver in given if heir in heirs} - found - {node}
        found |= heirs
    return tuple(sorted(found))


def _digest_of(alike: CrawlRecord) -> bytes:
    """The digest of a record as a merge leaves it, with sorted lists."""
    said: tuple[Any, ...] = (alike.version, alike.state, alike.cause, alike.ended)
    later = alike.later
    if alike.changes is not None:
        # As a node that does not know the field has it, so that both have one digest.
        later = dict(sorted({**later, "changes": alike.changes.packed}.items()))
    said = (*said, alike.shared_aliases, alike.participants, alike.shared_adopted)
    said = (*said, *filter(None, (alike.totals, later, alike.targets, alike.bequests)))
    return hashlib.sha256(cast(bytes, msgpack.packb(said))).digest()[:DIGEST_BYTES]


def fits_the_wire(record: CrawlRecord) -> bool:
    """Whether other nodes can read the record; that of a crawl with a hundred thousand seeds is too long."""
    return has_room(record, 0)


def has_room(record: CrawlRecord, more_bytes: int) -> bool:
    """Whether other nodes could read the record if it were so many bytes longer."""
    if len(record.spec.canonical()) > SPEC_BYTES_MAX:
        return False
    sent = to_wire(record)
    inflated_bytes = len(zlib.decompress(sent))
    return len(sent) + more_bytes <= WIRE_BYTES_MAX and inflated_bytes + more_bytes < INFLATED_BYTES_MAX


def to_wire(record: CrawlRecord, since: CrawlRecord | None = None, among: Sequence[bytes] = ()) -> bytes:
    """The record for other nodes; for nodes that have it as it was, `since`, only the changes.

    For a receiver that has the same list of node ids, `among`, participants are sent as bits instead of 40 letters.
    """
    fields, later = write_fields(record), record.later
    fields.pop("later", None)
    fields["aliases"], fields["adopted"] = record.shared_aliases, record.shared_adopted
    if since is not None:
        del fields["spec"], fields["nonce"]
        fields.pop("author", None)
        for name, before in (("aliases", since.aliases), ("participants", since.participants)):
            known = set(before)
            fields[name] = [each for each in fields[name] if each not in known]
        # Sorted, so that the bytes do not depend on a hash.
        fields["adopted"] = dict(sorted(record.shared_adopted.items() - since.adopted.items()))
        fields["targets"] = dict(sorted(record.targets.items() - since.targets.items()))
        fields["bequests"] = dict(sorted(record.bequests.items() - since.bequests.items()))
        later = dict(sorted(later.items() - since.later.items()))
    if among:
        placed, new = [node.hex() for node in among], fields["participants"]
        fields["participants"] = sorted(set(new).difference(placed))
        fields["places"] = _bits(map(set(new).__contains__, placed))
    return zlib.compress(cast(bytes, msgpack.packb({**_unpacked(later), "crawl": record.crawl_id, **fields})))


def from_wire(data: object, known: CrawlRecord | None = None, among: Sequence[bytes] = ()) -> CrawlRecord:
    """Read a record from a peer's bytes and check all of it; with our own, `known`, the spec is not checked again.

    `among` are the ids that it was written with, if any.

    Raises:
        NotARecord: the bytes are not a record, or one of a version that we do not speak.
    """
    return _checked(_map(_inflated(data), "record"), known, among)


def _checked(fields: Mapping[str, Any], known: CrawlRecord | None, among: Sequence[bytes]) -> CrawlRecord:
    crawl_id, nonce, version, state = (fields.get(name) for name in ("crawl", "nonce", "version", "state"))
    if type(crawl_id) is not bytes or len(crawl_id) != CRAWL_ID_BYTES:
        raise NotARecord("crawl: no crawl id")
    if known is not None and known.crawl_id == crawl_id:
        spec, nonce = known.spec, known.nonce
    else:
        spec = _spec(fields.get("spec"), nonce, crawl_id)
    if type(version) is not int or not 0 <= version <= VERSION_MAX:
        raise NotARecord("version: no version")
    if state not in STATES:
        raise NotARecord("state: none that this version knows; upgrade dhtcrawl")
    author = _part(fields, "author", read_author)
    aliases, adopted = _aliases(fields.get("aliases", [])), _adopted(fields.get("adopted", {}))
    authored = author is not None or (known is not None and known.author is not None)
    return CrawlRecord(
        crawl_id,
        spec,
        cast(bytes, nonce),
        [] if authored else aliases,
        _word(fields, "ended"),
        cast(str, state),
        _word(fields, "cause"),
        version,
        _ids(fields.get("participants", []), "participants") + _placed(fields.get("places", b""), among),
        {} if authored else adopted,
        _totals(fields.get("totals", {})),
        _later(fields),
        _changes(fields),
        author,
        _part(fields, "maker", read_maker),
        _targets(fields.get("targets", {})),
        _bequests(fields.get("bequests", {})),
    )


def read_fields(crawl_id: bytes, fields: Mapping[str, Any]) -> CrawlRecord:
    """The record in a stored map; fields that versions before swarms left out are those of a single node.

    What an earlier version stored among `later`, and this one knows, is merged into its field.
    """
    stored = {name: fields[name] for name in _STORED if name in fields}
    later: dict[str, bytes] = fields.get("later", {})
    unknown = {name: value for name, value in later.items() if name not in _ON_THE_WIRE}
    spec, changes = CrawlSpec.from_canonical(fields["spec"]), read_changes(fields.get("changes"))
    author, maker = read_author(fields.get("author")), read_maker(fields.get("maker"))
    if stored.get("version", 0) > STORED_VERSION_MAX:
        stored["version"], maker = STEP_MAX, None
    if changes is not None and changes.version > STORED_VERSION_MAX:
        changes = changes._replace(version=STEP_MAX, maker=None)
    record = CrawlRecord(
        crawl_id,
        spec,
        fields["nonce"],
        **stored,
        later=unknown,
        changes=changes,
        author=author,
        maker=maker,
        targets=fields.get("targets", {}),
        bequests=fields.get("bequests", {}),
    )
    if len(unknown) == len(later):
        return record
    told = {name: getattr(record, name) for name in ("ended", "state", "cause", "version")}
    lifted = _unpacked({name: later[name] for name in (*_STORED, "changes") if name in later})
    try:
        return merge_crawls(record, _checked({**told, **lifted, "crawl": crawl_id}, record, ()))
    except NotARecord:
        return record  # a peer sent nonsense, which the earlier version could not tell from a value


def write_fields(record: CrawlRecord) -> dict[str, Any]:
    """The map to store."""
    stored = {name: getattr(record, name) for name in _STORED}
    return {
        "spec": record.spec.canonical(),
        "nonce": record.nonce,
        **stored,
        **({"later": record.later} if record.later else {}),
        **({"changes": record.changes.row()} if record.changes is not None else {}),
        **({"author": list(record.author)} if record.author is not None else {}),
        **({"maker": list(record.maker)} if record.maker is not None else {}),
        **({"targets": record.targets} if record.targets else {}),
        **({"bequests": record.bequests} if record.bequests else {}),
    }


def _rank(record: CrawlRecord) -> tuple[Any, ...]:
    ends = ("", "*", FAILED, COMPLETE)
    end = ends.index(record.ended) if record.ended in ends else 1
    state = STATES.index(record.state) if record.state in STATES else -1
    said = record.version, end, record.ended, state, record.state, record.cause, sorted(record.totals.items())
    return *said, record.maker or ()  # of two makers of the same any, but the same one at all nodes


def _greatest(a: dict[str, V], b: dict[str, V], most: int) -> dict[str, V]:
    """The greater value of each name; those with the smallest names, in their order."""
    both = dict(sorted(a.items() | b.items()))
    return dict(list(both.items())[:most])


def _smallest(words: Iterable[str], most: int) -> list[str]:
    return sorted(set(words))[:most]


def _inflated(data: object) -> bytes:
    if type(data) is not bytes or len(data) > WIRE_BYTES_MAX:
        raise NotARecord("record: no bytes, or too many")
    inflating = zlib.decompressobj()
    try:
        inflated = inflating.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error:
        raise NotARecord("record: not deflated") from None
    if not inflating.eof or inflating.unused_data:
        raise NotARecord("record: too long, or cut off")
    return inflated


def _map(data: bytes, name: str) -> dict[str, Any]:
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException):
        raise NotARecord(f"{name}: no msgpack") from None
    if type(fields) is not dict or not all(type(key) is str for key in fields):
        raise NotARecord(f"{name}: no map of names")
    return fields


def _spec(canonical: object, nonce: object, crawl_id: bytes) -> CrawlSpec:
    """Read a spec and check it as a user's input is checked, since a peer can make an id for any nonsense."""
    if type(canonical) is not bytes or len(canonical) > SPEC_BYTES_MAX:
        raise NotARecord("spec: missing, or too long")
    if type(nonce) is not bytes or len(nonce) != NONCE_BYTES:
        raise NotARecord("nonce: none")
    if hashlib.sha256(canonical + nonce).digest()[:CRAWL_ID_BYTES] != crawl_id:
        raise NotARecord("spec: not the one that the crawl's id stands for")
    fields = _map(canonical, "spec")
    seeds, canon_version = fields.pop("seeds", None), fields.pop("canon_version", None)
    searches, rules = fields.pop("searches", {}), fields.pop("rules", "")
    if type(canon_version) is not int or canon_version != CANON_VERSION:
        raise NotARecord("spec: another version of canonical URLs; upgrade dhtcrawl")
    if type(seeds) is not list or not (seeds or searches) or not all(map(_is_canonical, seeds)):
        raise NotARecord("spec: its seeds are no canonical URLs")
    # What they say is checked where they are used: in the worst case nothing is extracted.
    if type(rules) is not str or len(rules) > RULES_CHARS_MAX:
        raise NotARecord("spec: its rules are no text, or too long")
    values: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in fields.items()}
    try:
        typed = load(flags={f"crawl.{name}": value for name, value in values.items()}, begun=True).crawl
    except ConfigError as error:
        raise NotARecord(f"spec: {str(error)[:DETAIL_CHARS_MAX]}") from error
    settings = CrawlSettings(**values)
    try:
        found = read_searches(searches)
    except ValueError as error:
        raise NotARecord(f"spec: {error}") from None
    spec = CrawlSpec(tuple(dict.fromkeys(seeds)), settings, searches=found, rules=rules)
    # A node that left out a setting, or took "yes" for true, would crawl other pages than the rest.
    if settings != typed or spec.canonical() != canonical:
        raise NotARecord("spec: not as this version writes it")
    return spec


def _is_canonical(url: object) -> bool:
    return type(url) is str and canonicalize(url) == url


def _aliases(value: object) -> list[str]:
    if type(value) is not list or len(value) > ALIASES_MAX or not all(map(_is_canonical, value)):
        raise NotARecord("aliases: too many, or no canonical URLs")
    return value


def _targets(value: object) -> dict[str, bytes]:
    if type(value) is not dict or len(value) > ALIASES_MAX:
        raise NotARecord("targets: no map, or too long")
    if not all(redirect_targets.read(name, target, _is_canonical) for name, target in value.items()):
        raise NotARecord("targets: no URLs with id, key and signature")
    return value


def _bequests(value: object) -> dict[str, bytes]:
    if type(value) is not dict or len(value) > BEQUESTS_MAX:
        raise NotARecord("bequests: no map, or too long")
    if not all(bequests.read(name, bequest) for name, bequest in value.items()):
        raise NotARecord("bequests: no ids with number, key and signature")
    return value


def _ids(value: object, name: str) -> list[str]:
    if type(value) is not list or len(value) > PARTICIPANTS_MAX:
        raise NotARecord(f"{name}: no list, or too long")
    if not all(type(node) is str and _HEX_ID.fullmatch(node) for node in value):
        raise NotARecord(f"{name}: no node ids")
    return value


def _bits(which: Iterable[bool]) -> bytes:
    """One bit for each, the first the most significant, in as few bytes as hold it without leading zeros."""
    number = int("".join("01"[one] for one in which), 2)
    return number.to_bytes((number.bit_length() + 7) // 8)


def _placed(value: object, among: Sequence[bytes]) -> list[str]:
    if type(value) is not bytes or len(value) > (len(among) + 7) // 8:
        raise NotARecord("places: no bits, or of other nodes than are known here")
    bits = f"{int.from_bytes(value):0{len(among)}b}"
    if len(bits) > max(len(among), 1):
        raise NotARecord("places: more bits than nodes")
    return [node.hex() for node, bit in zip(among, bits, strict=False) if bit == "1"]


def _adopted(value: object) -> dict[str, str]:
    if type(value) is not dict:
        raise NotARecord("adopted: no map")
    return dict(zip(_ids(list(value), "adopted"), _ids(list(value.values()), "adopted"), strict=True))


def _totals(value: object) -> dict[str, int | float]:
    if type(value) is not dict or len(value) > TOTALS_MAX:
        raise NotARecord("totals: no map, or too long")
    for name, count in value.items():
        if type(name) is not str or not _FIELD_NAME.fullmatch(name):
            raise NotARecord("totals: no names of counters")
        if type(count) not in (int, float) or not -TOTAL_MAX <= count <= TOTAL_MAX:
            raise NotARecord("totals: no counts")
    return value


def _later(fields: Mapping[str, Any]) -> dict[str, bytes]:
    unknown = {name: fields[name] for name in fields.keys() - _ON_THE_WIRE - {"later"} if _FIELD_NAME.fullmatch(name)}
    packed = {name: cast(bytes, msgpack.packb(unknown[name])) for name in sorted(unknown)[:LATER_MAX]}
    return {name: value for name, value in packed.items() if len(value) <= LATER_BYTES_MAX}


def _changes(fields: Mapping[str, Any]) -> SettingChanges | None:
    changes = read_changes(fields.get("changes"))
    if changes is None and "changes" in fields:
        raise NotARecord("changes: no settings that may change")
    return changes


def _part(fields: Mapping[str, Any], name: str, read: Callable[[object], P]) -> P:
    part = read(fields.get(name))
    if part is None and name in fields:
        raise NotARecord(f"{name}: no id, key and signature")
    return part


def _unpacked(later: dict[str, bytes]) -> dict[str, Any]:
    return {name: msgpack.unpackb(value) for name, value in later.items()}


def _word(fields: Mapping[str, Any], name: str) -> str:
    """Read a word; one that only later versions know is accepted, too."""
    value = fields.get(name, "")
    if type(value) is not str or (value and not _WORD.fullmatch(value)):
        raise NotARecord(f"{name}: no word")
    return value
