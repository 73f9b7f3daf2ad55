"""What a store says of itself: its format, how often it was opened, and its crawls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgpack
import plyvel
import pytest
from storage.stores import PLACE, NoPassing, Store, link, page

from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import Exit, StorageError, StoreTooNew
from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import catalog, keys, tasks
from dhtcrawl.storage.store.crawl_record import CrawlRecord, merge_crawls
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.records import pack, unpack

# Neighbours in byte order, and ids that end in the highest byte.
IDS = [bytes(16), bytes(15) + b"\1", bytes(15) + b"\xff", b"\xff" * 15 + b"\xfe", b"\xff" * 16]


def crawl(crawl_id: bytes, seed: str = "http://a.example/") -> CrawlRecord:
    settings = CrawlSettings(depth=3, exclude=("x", "é"), delay_s=0.5)
    return CrawlRecord(crawl_id, make_spec([seed], settings), b"n" * 16, ["http://www.a.example/"], "")


# Format and incarnation


def test_a_new_store_is_marked_and_opens_again(store: Store) -> None:
    store.run(catalog.check_format)
    assert store.engine.get(keys.FORMAT_KEY) == b"1"
    store.run(catalog.next_incarnation)
    store.run(catalog.check_format)


@pytest.mark.parametrize("version", [b"2", b"999"])
def test_a_store_of_a_newer_format_is_refused_untouched(store: Store, version: bytes) -> None:
    store.put(keys.FORMAT_KEY, version)
    with pytest.raises(StoreTooNew, match=f"format {version.decode()}, this version reads up to 1; upgrade") as caught:
        store.run(catalog.check_format)
    assert caught.value.exit_code == Exit.CONFIG
    assert dict(store.engine.scan(b"", b"\xff")) == {keys.FORMAT_KEY: version}


@pytest.mark.parametrize("version", [b"", b"one", b"\xff", b"-1", b"1.0", "²".encode(), b"1 "])
def test_a_format_that_is_no_version_is_refused(store: Store, version: bytes) -> None:
    store.put(keys.FORMAT_KEY, version)
    with pytest.raises(StorageError, match="which is no version"):
        store.run(catalog.check_format)


def test_somebody_elses_leveldb_is_refused_untouched(tmp_path: Path) -> None:
    foreign = plyvel.DB(str(tmp_path), create_if_missing=True)
    foreign.put(b"\xfe\xffkey", b"value")
    foreign.close()
    store = Store(LevelEngine(tmp_path))
    with pytest.raises(StorageError, match="not one of dhtcrawl's; use another directory"):
        store.run(catalog.check_format)
    store.engine.close()
    foreign = plyvel.DB(str(tmp_path))
    assert list(foreign) == [(b"\xfe\xffkey", b"value")]
    foreign.close()


def test_each_start_is_one_incarnation(store: Store) -> None:
    assert [store.run(catalog.next_incarnation) for _ in range(3)] == [1, 2, 3]
    store.run(partial(catalog.remember_incarnation, incarnation=900))
    store.run(partial(catalog.remember_incarnation, incarnation=2))
    assert store.run(catalog.next_incarnation) == 901


@pytest.mark.parametrize(
    ("stored", "starts"),
    [
        (INCARNATION_MAX - 1, [INCARNATION_MAX] * 2),  # the others tell it from what it was by its epoch
        (2**24, [2, 3]),  # what earlier versions stored of what others had said
        (2**63 - 1, [2, 3]),
    ],
)
def test_a_node_starts_with_a_number_that_others_take_whatever_is_stored(
    store: Store, stored: int, starts: list[int]
) -> None:
    store.put(keys.INCARNATION_KEY, pack(stored))
    assert [store.run(catalog.next_incarnation) for _ in starts] == starts
    assert starts[-1] << 40 < 2**62


# Crawls


def test_crawls_read_back_as_they_were_put(store: Store) -> None:
    records = [crawl(crawl_id, f"http://{n}.example/") for n, crawl_id in enumerate(IDS)]
    store.run(catalog.check_format)
    store.run(catalog.next_incarnation)
    for record in reversed(records):
        store.run(partial(catalog.put_crawl, crawl=record))
    assert store.run(catalog.crawls) == records
    assert all(record.spec.crawl_id(b"n") == crawl(b"", record.spec.seeds[0]).spec.crawl_id(b"n") for record in records)


def test_how_a_crawl_ended_is_all_that_set_ended_changes(store: Store) -> None:
    store.run(partial(catalog.put_crawl, crawl=crawl(IDS[0])))
    later = {**unpack(store.engine.get(keys.CRAWL + IDS[0]) or b""), "of a later version": 1}
    store.put(keys.CRAWL + IDS[0], pack(later))
    for ended in ("complete", ""):
        store.run(partial(catalog.set_ended, crawl=IDS[0], ended=ended))
        assert [record.ended for record in store.run(catalog.crawls)] == [ended]
        assert unpack(store.engine.get(keys.CRAWL + IDS[0]) or b"") == {**later, "ended": ended}


def test_a_record_of_the_time_before_swarms_reads_as_that_of_one_node(store: Store) -> None:
    record = crawl(IDS[0])
    fields = {"spec": record.spec.canonical(), "nonce": record.nonce, "aliases": record.aliases, "ended": "complete"}
    store.put(keys.CRAWL + IDS[0], pack(fields))
    (read,) = store.run(catalog.crawls)
    assert read == replace(record, ended="complete")
    assert (read.state, read.version, read.cause, read.participants, read.adopted) == ("running", 0, "", [], {})


def test_a_crawl_by_templates_of_another_version_is_named(store: Store) -> None:
    record = crawl(IDS[1])
    spec = msgpack.unpackb(record.spec.canonical())
    # As they were before 0082: pages of results travelled with the seeds.
    spec["searches"] = {"searches": [["cars", "e", "a.example", 0, [[0, 1]]]], "delays": {}}
    store.put(
        keys.CRAWL + IDS[1], pack({"spec": msgpack.packb(spec), "nonce": record.nonce, "aliases": [], "ended": ""})
    )
    told = f"the store's crawl {IDS[1].hex()} cannot be read (searches: .*); go on with the version that began it"
    for read in (
        catalog.crawls,
        partial(catalog.depth_matters, crawl=IDS[1]),
        partial(catalog.merge_in, crawl=record),
    ):
        with pytest.raises(StorageError, match=told.replace("(", r"\(").replace(")", r"\)")):
            store.run(read)


def test_a_copy_is_merged_into_what_is_stored_and_later_fields_stay(store: Store) -> None:
    ours = replace(crawl(IDS[0]), version=1, state="paused", participants=["a" * 40])
    theirs = replace(crawl(IDS[0]), aliases=["http://b.example/"], version=2)
    assert store.run(partial(catalog.merge_in, crawl=ours)) == ours
    later = {**unpack(store.engine.get(keys.CRAWL + IDS[0]) or b""), "of a later version": 1}
    store.put(keys.CRAWL + IDS[0], pack(later))
    merged = store.run(partial(catalog.merge_in, crawl=theirs))
    assert merged == merge_crawls(theirs, ours)
    assert (merged.state, merged.participants, len(merged.aliases)) == ("running", ["a" * 40], 2)
    assert store.run(catalog.crawls) == [merged]
    assert unpack(store.engine.get(keys.CRAWL + IDS[0]) or b"")["of a later version"] == 1


# Closed crawls

DAY_MS = 86_400_000


def test_a_forgotten_crawl_is_closed_for_thirty_days_of_running(store: Store) -> None:
    store.run(partial(catalog.count_run_time, ran_ms=5 * DAY_MS))
    store.run(partial(catalog.put_closed, crawl=IDS[0]))
    assert [store.run(partial(catalog.is_closed, crawl=crawl_id)) for crawl_id in IDS[:2]] == [True, False]
    assert store.run(partial(catalog.count_run_time, ran_ms=30 * DAY_MS - 1)) == 0
    assert store.run(partial(catalog.is_closed, crawl=IDS[0]))
    assert store.run(partial(catalog.count_run_time, ran_ms=1)) == 1
    assert not store.run(partial(catalog.is_closed, crawl=IDS[0]))


def test_closing_it_again_begins_the_time_anew(store: Store) -> None:
    for _ in range(2):
        store.run(partial(catalog.put_closed, crawl=IDS[0]))
        store.run(partial(catalog.count_run_time, ran_ms=29 * DAY_MS))
    assert store.run(partial(catalog.is_closed, crawl=IDS[0]))


def test_of_too_many_closed_crawls_the_first_is_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CLOSED_KEPT_MAX", 2)
    for crawl_id in (IDS[3], IDS[0], IDS[4]):
        store.run(partial(catalog.count_run_time, ran_ms=1))
        store.run(partial(catalog.put_closed, crawl=crawl_id))
    assert [store.run(partial(catalog.is_closed, crawl=crawl_id)) for crawl_id in IDS] == [1, 0, 0, 0, 1]


def test_a_note_of_a_closed_crawl_outlasts_its_records_and_a_restart(store: Store) -> None:
    store.run(catalog.check_format)
    fill(store, IDS[0])
    store.run(partial(catalog.put_closed, crawl=IDS[0]))
    list(store.drop_all(partial(catalog.forget, crawl=IDS[0], limit=1000)))
    store.run(catalog.check_format)
    assert store.run(catalog.crawls) == []
    assert store.run(partial(catalog.is_closed, crawl=IDS[0]))


def fill(store: Store, crawl_id: bytes) -> None:
    """Records of every kind."""
    store.run(partial(catalog.put_crawl, crawl=crawl(crawl_id)))
    urls = [f"http://a.example/{n}" for n in range(4)]
    links = [link(url) for url in urls]
    store.run(lambda txn: tasks.accept(txn, crawl_id, links, store.orders, depth_matters=False))
    brought = page(urls[0], links=urls, skipped=[("http://z.example/", "robots")])
    store.run(lambda txn: tasks.fetched(txn, crawl_id, brought, PLACE, 0))
    rests = {keys.EXTRA: b"f", keys.HOST: b"h" * 20, keys.ARCHIVE: b"f", keys.COUNTERS: b"", keys.SEEDED: b""}
    for kind, rest in (rests | dict.fromkeys(keys.COPIES, links[0].key)).items():
        store.put(keys.key(kind, crawl_id, rest), pack(1))


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("gone", IDS)
def test_forgetting_removes_exactly_one_crawl(store: Store, gone: bytes, limit: int) -> None:
    store.run(catalog.check_format)
    store.run(catalog.next_incarnation)
    for crawl_id in IDS:
        fill(store, crawl_id)
    everything = store.stored_keys()
    theirs = [key for key in everything if not (key[:1] in keys.KINDS and key[1:17] == gone)]
    assert {key[:1] for key in everything if key not in theirs} == set(keys.KINDS)
    dropped = 0
    for count in store.drop_all(partial(catalog.forget, crawl=gone, limit=limit)):
        # As long as something is left of it, the crawl is known, and can be forgotten to the end.
        left = [key for key in store.stored_keys() if key not in theirs]
        assert not left or keys.CRAWL + gone in left
        assert count <= limit
        dropped += count
    assert store.stored_keys() == theirs
    assert dropped == len(everything) - len(theirs)


def test_of_a_forgotten_crawl_nothing_stays_that_comes_later_and_of_one_that_is_put_again_everything(
    store: Store,
) -> None:
    for crawl_id in IDS[:3]:
        fill(store, crawl_id)
    whole = store.stored_keys()
    for crawl_id in IDS[:2]:
        store.run(partial(catalog.put_closed, crawl=crawl_id))
    # As what gathers it once more does.
    store.run(partial(catalog.put_crawl, crawl=crawl(IDS[1])))
    assert store.run(catalog.closed) == [IDS[0]]
    for crawl_id in IDS[:3]:
        list(store.drop_all(partial(catalog.drop_closed, crawl=crawl_id, limit=3)))
    assert [key for key in store.stored_keys() if key[:1] in keys.KINDS] == [
        key for key in whole if key[1:17] != IDS[0] and key[:1] in keys.KINDS
    ]


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_forgetting_a_large_crawl_never_passes_again_what_is_gone(limit: int) -> None:
    engine = NoPassing()
    store = Store(engine)
    for crawl_id in IDS:
        fill(store, crawl_id)
    engine.gone.clear()  # the queue entry of the page that was fetched
    whole = len(store.stored_keys())
    dropped = sum(store.drop_all(partial(catalog.forget, crawl=IDS[2], limit=limit)))
    assert whole == dropped * len(IDS)


def test_forgetting_what_is_not_there_drops_nothing(store: Store) -> None:
    fill(store, IDS[1])
    before = store.stored_keys()
    assert store.run(partial(catalog.forget, crawl=IDS[0], limit=10)) == (0, None)
    assert store.stored_keys() == before


def test_a_crawl_is_unwritten_until_its_outputs_are_whatever_is_learned_of_it_meanwhile(store: Store) -> None:
    for crawl_id in IDS[:2]:
        store.run(partial(catalog.put_crawl, crawl=crawl(crawl_id)))
    assert store.run(catalog.unwritten) == []
    store.run(partial(catalog.set_unwritten, crawl=IDS[0], unwritten=True))
    store.run(partial(catalog.set_unwritten, crawl=b"forgotten since.", unwritten=True))
    store.run(lambda txn: catalog.merge_in(txn, replace(crawl(IDS[0]), version=7, ended="complete")))
    assert store.run(catalog.unwritten) == [IDS[0]]
    record = store.run(partial(catalog.get_crawl, crawl=IDS[0]))
    assert record is not None
    assert (record.version, record.ended) == (7, "complete")
    for _ in range(2):
        store.run(partial(catalog.set_unwritten, crawl=IDS[0], unwritten=False))
        assert store.run(catalog.unwritten) == []
