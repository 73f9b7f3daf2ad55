"""Who may change what of a crawl: what counts of a record that a peer tells. Pure.

    what                          who
    a crawl                       its author, the node where it was submitted, which has signed its id
    settings, pause, stop, end    the author; the coordinator, as each node sees it. An honest one takes the wishes of
                                  people only once the author is no member any more
    stopped by `disk limit`       any member: no other may fetch what it owns
    complete or failed → running  any member: it has work that is left
    a target of a redirect        the node that signs it; who believes that node, `redirect_trust` says
    who is a node's heir          that node, which signs it when it leaves

Each change is signed by its maker. What came from who may not make it is left out, and the rest of the record counts. A
member that may make any change may also pass on others' without a maker that counts here any more: so a node whose view
differs for a while learns from the coordinator what it would not take from others. A coordinator that is told a
change which does not count makes its own again, in a later version, so that all have one record.

Of a crawl that has no author, as it was begun by a version that knew none, all changes count, and it is in this
node's store: none is taken from a peer.

What a node hears of a crawl that it does not know counts as it is, if its author has signed it: whoever joins has met
nobody, and hears the rest from the coordinator.

A signature is verified where a record tells something else than is known: once a change, and never
for a page or a link.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from dhtcrawl.crawl.budget import Stop
from dhtcrawl.keyspace import crawl_key, distance, placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.storage.store import bequests, redirect_targets
from dhtcrawl.storage.store.bequests import Bequest, bequests_of
from dhtcrawl.storage.store.crawl_record import (
    BEQUESTS_MAX,
    FINAL,
    RUNNING,
    STOPPING,
    CrawlRecord,
    is_later,
    signed,
    with_state_of,
)
from dhtcrawl.storage.store.crawl_signatures import SETTINGS, STATE, Maker, has_made, is_author
from dhtcrawl.storage.store.redirect_targets import is_signed, targets_of
from dhtcrawl.storage.store.setting_changes import later_changes

CRAWLS_KEPT_MAX: Final = 1_024  # of which it is remembered who coordinated them
TARGETS_A_RECORD: Final = 256  # of redirects, whose signatures are verified: 60 to 150 µs each
BEQUESTS_A_RECORD: Final = 256  # the same of nodes that left
COORDINATORS_KEPT: Final = 4  # of one crawl, the latest


@loop_state
class CrawlAuthority:
    """Judges for one node; `refused` counts changes that did not count."""

    def __init__(
        self,
        key: NodeKey,
        view: Callable[[], View],
        was_member: Callable[[bytes], bool],
        *,
        incarnation: int = 1,
        passed_on: bool = False,
    ) -> None:
        """`was_member(node)` is true of all that are or were members; the node starts for the so-manieth time.

        With `passed_on` it takes people's wishes from the other nodes of its machine.
        """
        self.passed_on = passed_on
        self.refused = 0
        self.forged = 0  # targets of redirects, and bequests, that the nodes which they name have not signed
        self._begun = bequests.first_number(incarnation)
        self._bequeathed = self._begun  # the number of the latest that this node has signed
        self._key = key
        self._view = view
        self._was_member = was_member
        self._coordinators: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()  # by crawl, those that were seen

    def signed(self, record: CrawlRecord, before: CrawlRecord | None) -> CrawlRecord:
        """A record that was changed here, with this node as the maker of what is new since `before`."""
        return signed(record, before, self._key)

    def is_authored(self, record: CrawlRecord) -> bool:
        """Whether the node where the crawl was submitted has signed it."""
        author = record.author
        return author is not None and is_author(author, record.nonce, record.crawl_id, self._key)

    def coordinates(self, crawl_id: bytes) -> bool:
        """Whether this node is the coordinator in its own view."""
        return self._coordinator(crawl_id) == self._key.node_id

    def in_charge(self, record: CrawlRecord) -> bytes | None:
        """The node that takes people's wishes for a crawl: its author, or once that is no member the coordinator.

        None of a crawl without an author: any does.
        """
        author = record.author
        if author is None or author.node_id == self._key.node_id or author.node_id in self._view():
            return None if author is None else author.node_id
        return self._coordinator(record.crawl_id)

    def believed(self, record: CrawlRecord, known: CrawlRecord | None, teller: bytes) -> CrawlRecord:
        """What counts of a peer's record beside the `known` one; the same object where all does."""
        self._coordinator(record.crawl_id)
        record = self._with_signed_bequests(self._with_signed_targets(record, known), known)
        if known is None:
            return record
        if record.author != known.author:
            # It was checked when it came, and the crawl's id allows no other.
            author = known.author or (record.author if self.is_authored(record) else None)
            record = replace(record, author=author)
        if record.author is None or self._may_change(teller, known):
            return record
        counts = record
        if is_later(record, known) and not self._state_counts(record, known):
            counts = with_state_of(counts, known)
        if not self._settings_count(record, known):
            counts = replace(counts, changes=known.changes)
        self.refused += counts is not record
        return counts

    def led_to(self, record: CrawlRecord, source: str, url: str) -> CrawlRecord:
        """The record with this node's word that a seed redirects to `url`, which it believes itself."""
        if record.author is None:
            return replace(record, aliases=[*record.aliases, url])
        target = redirect_targets.made(self._key, record.crawl_id, source, url)
        return replace(record, aliases=[*record.aliases, url], targets={**record.targets, target.name: target.packed()})

    def bequest(self, record: CrawlRecord, heir: bytes) -> Bequest:
        """Sign that this node's pages are `heir`'s once it has left; it counts instead of those before."""
        known = bequests.last_of(record.bequests).get(self._key.node_id.hex())
        # The store may be a copy from before later starts, which others know.
        self._bequeathed = max(self._bequeathed, 0 if known is None else known.number) + 1
        return bequests.made(self._key, record.crawl_id, heir, self._bequeathed)

    def reclaimed(self, record: CrawlRecord) -> CrawlRecord:
        """The record with this node's word that it is back, where it left its pages to another; else the same object.

        What it fetches from here on that one has not, and others would not miss it.
        """
        own = self._key.node_id
        if record.ended or own.hex() not in record.heirs:
            return record
        last = bequests.last_of(record.bequests).get(own.hex())
        if last is None or self._begun < last.number <= self._bequeathed:
            return record
        back = self.bequest(record, own)
        return replace(record, bequests={**record.bequests, back.name: back.packed()})

    def left_here(self, crawl_id: bytes, node: bytes, packed: bytes) -> Bequest | None:
        """The bequest of a node that leaves its pages to this one; None where it has not signed that."""
        bequest = bequests.read(bequests.name_of(node, self._key.node_id), packed)
        return bequest if bequest is not None and bequests.is_signed(bequest, crawl_id, self._key) else None

    def may_lead(self, record: CrawlRecord, node: bytes, task_key: bytes) -> bool:
        """Whether a node's word on where a seed with this task key redirects counts without a question to others.

        It is this node, the author, or the owner; or it is or was a member, and is closer than the present owner.
        """
        if node == self._key.node_id or (record.author is not None and node == record.author.node_id):
            return True
        key, owner = placement(task_key), self._view().owner(placement(task_key))
        if owner is None or owner.id == node:
            return owner is not None
        return distance(node, key) < distance(owner.id, key) and self._was_member(node)

    def _with_signed_targets(self, record: CrawlRecord, known: CrawlRecord | None) -> CrawlRecord:
        """The record without new targets that nobody has signed, and with so many new ones at most: the rest later."""
        before = {} if known is None else known.targets
        news = {name: value for name, value in record.targets.items() if before.get(name) != value}
        if not news:
            return record
        few = dict(list(news.items())[:TARGETS_A_RECORD])
        sound = {
            target.name: target.packed() for target in targets_of(few) if is_signed(target, record.crawl_id, self._key)
        }
        self.forged += len(few) - len(sound)
        if len(sound) == len(news):
            return record
        return replace(
            record, targets={name: value for name, value in record.targets.items() if name not in news} | sound
        )

    def _with_signed_bequests(self, record: CrawlRecord, known: CrawlRecord | None) -> CrawlRecord:
        """The record without later bequests that nobody has signed, and with so many of them at most: the rest later.

        No honest node has one that is not signed. So where one is met, the others of its record are not looked at.
        """
        before = {} if known is None else known.bequests
        # Where there is no room, those with the smallest names are kept.
        last = max(before) if len(before) >= BEQUESTS_MAX else None
        news = {name: value for name, value in record.bequests.items() if value > before.get(name, b"")}
        placed = (bequest for bequest in bequests_of(news) if last is None or bequest.name <= last)
        sound = dict[str, bytes]()
        for bequest in islice(placed, BEQUESTS_A_RECORD):
            if not bequests.is_signed(bequest, record.crawl_id, self._key):
                self.forged += 1
                break
            sound[bequest.name] = bequest.packed()
        if len(sound) == len(news):
            return record
        kept = {name: value for name, value in record.bequests.items() if name not in news}
        return replace(record, bequests=kept | sound)

    def _state_counts(self, record: CrawlRecord, known: CrawlRecord) -> bool:
        before, after = ((each.state, each.cause, each.ended) for each in (known, record))
        if before == after:
            return True  # it only counts further
        if known.ended in FINAL and after == (RUNNING, "", ""):
            return True
        if not known.ended and after == (STOPPING, Stop.DISK_LIMIT.word, ""):
            return True
        return self._counts(record.maker, known, STATE, record.state_said)

    def _settings_count(self, record: CrawlRecord, known: CrawlRecord) -> bool:
        changes = record.changes
        if changes is None or later_changes(changes, known.changes) == known.changes:
            return True
        return self._counts(changes.maker, known, SETTINGS, changes.said())

    def _counts(self, maker: Maker | None, known: CrawlRecord, what: bytes, said: Sequence[Any]) -> bool:
        if maker is None or not self._may_change(maker.node_id, known):
            return False
        return has_made(maker, known.crawl_id, what, said, self._key)

    def _may_change(self, node: bytes, known: CrawlRecord) -> bool:
        """Whether a node is the author, or is or was the coordinator.

        It was where this node has seen it as such, or where it is or was a member and is closer than the present one.
        """
        if known.author is not None and node == known.author.node_id:
            return True
        coordinator = self._coordinator(known.crawl_id)
        if coordinator is None or node in self._coordinators[known.crawl_id]:
            return coordinator is not None
        key = crawl_key(known.crawl_id)
        return distance(node, key) < distance(coordinator, key) and self._was_member(node)

    def _coordinator(self, crawl_id: bytes) -> bytes | None:
        owner = self._view().owner(crawl_key(crawl_id))
        if owner is None:
            return None
        seen = self._coordinators.get(crawl_id, ())
        if owner.id not in seen:
            self._coordinators[crawl_id] = (*seen[1 - COORDINATORS_KEPT :], owner.id)
            self._coordinators.move_to_end(crawl_id)
            if len(self._coordinators) > CRAWLS_KEPT_MAX:
                self._coordinators.popitem(last=False)
        return owner.id
