"""`why`, `fsck`, `forget` and `verify` on the store and the outputs of a finished crawl."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import plyvel
import pytest
from demo_site import expected

from dhtcrawl.cli import export, fsck, verify
from dhtcrawl.cli.places import CRAWLS_DIR, node_dir
from dhtcrawl.cli.runtime import STORE_DIR, locked
from dhtcrawl.config import CrawlSettings
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, MISSING_FILE, OUTPUT_FILES, REPORTS_DIR
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR, REJECTED_FILE, RULES_FILE
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.records import pack
from dhtcrawl.storage.store.txn import Txn

from .conftest import DemoCrawl, Here

MISSING = f"{REPORTS_DIR}/{MISSING_FILE}"  # only where a body is
OF_RULES = (f"{REPORTS_DIR}/{REJECTED_FILE}", f"{RECORDS_DIR}/{RULES_FILE}")  # only with rules


def written(out: Path) -> set[str]:
    """The files in a crawl's directory that are not in its archive."""
    files = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    return {path.as_posix() for path in files if path.parts[0] != ARCHIVE_DIR}


def crawl_id(out: Path) -> str:
    return str(json.loads((out / "summary.json").read_text())["crawl"])


@contextmanager
def store(out: Path) -> Iterator[plyvel.DB]:
    with plyvel.DB(str(node_dir(out) / STORE_DIR)) as db:
        yield db


def add_crawls(out: Path, *ids: bytes) -> None:
    """More crawls in the same store, with nothing in them."""
    engine = LevelEngine(node_dir(out) / STORE_DIR)
    writes: dict[bytes, bytes | None] = {}
    for one in ids:
        catalog.put_crawl(Txn(engine, writes), CrawlRecord(one, make_spec(["other.org"], CrawlSettings()), b""))
    engine.write(writes, sync=False)
    engine.close()


@pytest.mark.needs_root
def test_a_store_stays_its_owners_when_root_looks_into_it(here: Here, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving files to another user needs root")
    out, user = tmp_path / "out", 4321  # that of a service
    directory = node_dir(out) / STORE_DIR
    engine, writes = LevelEngine(directory), dict[bytes, bytes | None]()
    catalog.check_format(Txn(engine, writes))
    engine.write(writes, sync=False)
    engine.close()
    others = tmp_path / "others"
    others.touch()
    for path in (node_dir(out), directory, *directory.iterdir()):
        os.chown(path, user, user)
    (directory / "link").symlink_to(others)
    (directory / "hard").hardlink_to(others)
    before = os.umask(0o077)  # as root's may be: then nobody else reads what it writes
    try:
        assert here("fsck", "--out", out).code == 0
    finally:
        os.umask(before)
    assert others.stat().st_uid == os.geteuid(), "what only leads elsewhere is left alone"
    (directory / "link").unlink()
    (directory / "hard").unlink()
    found = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in directory.iterdir()}
    assert "CURRENT" in found
    assert set(found.values()) == {(user, user)}, found


def take_part(out: Path) -> None:
    """Make the store that of a node of a swarm."""
    with store(out) as db:
        db.put(keys.SWARM_KEY, pack("ab" * 20))


# -- why --


@pytest.mark.parametrize(
    ("path", "state", "more"),
    [
        ("", "was fetched, and all its links are known", "depth 0"),
        ("gone.html", "was fetched, and all its links are known", "status 410"),
        ("old/1", "was fetched", "old/2"),
        ("private/diary.html", "was given up", "robots.txt disallows it"),
        ("links/never.html", "was found, but not followed", "nofollow"),
        ("orphan.html", "was never found", "yes: it would be followed"),
    ],
)
def test_why_says_where_a_url_stands(path: str, state: str, more: str, demo: DemoCrawl, here: Here) -> None:
    ended = here("why", demo.url + path, "--out", demo.out)
    assert ended.code == 0, ended
    assert ended.stdout.startswith(f"{demo.url}{path} {state}")
    assert more in " ".join(ended.stdout.split())


def test_why_knows_the_scope(demo: DemoCrawl, here: Here) -> None:
    assert "no: it would be skipped" in here("why", "never-heard-of.org", "--out", demo.out).stdout
    assert "out-of-scope" in here("why", "http://example.org/elsewhere", "--out", demo.out).stdout


def test_why_speaks_json(demo: DemoCrawl, here: Here) -> None:
    (answer,) = json.loads(here("why", f"{demo.url}old/1#x", "--json", "--out", demo.out).stdout)
    assert (answer["url"], answer["state"], answer["status"]) == (f"{demo.url}old/1", "done", 301)
    assert answer["crawl"] == crawl_id(demo.out)
    file, _, offset = answer["archive"].rpartition(":")
    with gzip.open(demo.out / "archive" / file) as archive:
        assert archive.readline().startswith(b"WARC/1")
    assert int(offset) > 0


def test_why_agrees_with_the_site_for_every_page(demo: DemoCrawl, here: Here) -> None:
    outcome = expected(demo.site)
    for path in sorted(outcome["redirects"] | outcome["other"] | outcome["robots"]):
        (answer,) = json.loads(here("why", demo.url + path[1:], "--json", "--out", demo.out).stdout)
        assert answer["state"] == ("dead" if path in outcome["robots"] else "done")


def test_why_looks_at_one_crawl_where_it_is_named(copy: Path, demo: DemoCrawl, here: Here) -> None:
    add_crawls(copy, bytes(16))
    assert len(json.loads(here("why", demo.url, "--json", "--out", copy).stdout)) == 2
    (answer,) = json.loads(here("why", demo.url, "--json", "--out", copy, "--crawl", "0000").stdout)
    assert answer["state"] == "unknown"


# -- fsck --


def test_fsck_finds_a_finished_crawl_sound(demo: DemoCrawl, here: Here) -> None:
    ended = here("fsck", "--out", demo.out)
    assert ended.code == 0
    assert ended.stdout.endswith(": sound\n")
    findings = json.loads(here("fsck", "--data-dir", node_dir(demo.out), "--json").stdout)
    assert (findings["crawl"], findings["problems"]) == (crawl_id(demo.out), [])


def test_fsck_names_what_is_wrong(copy: Path, demo: DemoCrawl, here: Here) -> None:
    prefix = keys.PAGE + bytes.fromhex(crawl_id(copy))
    with store(copy) as db:
        key = next(db.iterator(prefix=prefix, include_value=False))
        db.delete(key)
    ended = here("fsck", "--out", copy)
    assert ended.code == 1
    assert ended.stdout.splitlines()[-1].endswith("1 problems")
    assert demo.url in ended.stdout.splitlines()[0]


def test_fsck_says_that_the_archive_is_not_there(copy: Path, here: Here) -> None:
    whole = here("fsck", "--out", copy).stdout
    shutil.rmtree(copy / "archive")
    lacking = f": sound, without the archive: it is not in {copy}"
    assert here("fsck", "--out", copy).stdout == whole.replace(": sound", lacking)


def test_a_store_in_use_is_left_alone(copy: Path, demo: DemoCrawl, here: Here) -> None:
    with locked(node_dir(copy)):
        for args in (["fsck"], ["why", demo.url], ["forget", crawl_id(copy)]):
            ended = here(*args, "--out", copy)
            assert ended.code == 2
            assert "in use by process" in ended.message()


def test_a_store_of_a_later_version_is_refused(copy: Path, here: Here) -> None:
    with store(copy) as db:
        db.put(keys.FORMAT_KEY, b"99")
    ended = here("fsck", "--out", copy)
    assert ended.code == 4
    assert "upgrade dhtcrawl" in ended.message()


# -- forget --


def test_forget_drops_the_records_and_leaves_the_outputs(copy: Path, demo: DemoCrawl, here: Here) -> None:
    ended = here("forget", crawl_id(copy)[:6], "--out", copy)
    assert ended.code == 0, ended
    assert ended.stdout.startswith(f"forgot crawl {crawl_id(copy)[:12]}: ")
    assert here("why", demo.url, "--out", copy).stdout == "no crawl in this store\n"
    assert here("fsck", "--out", copy).stdout == "no crawl in this store\n"
    with store(copy) as db:
        assert {key for key, _ in db if not key.startswith(b"\0")} == set()
    assert here("verify", copy).code == 0


def test_what_a_crawl_writes_besides_archive_and_store_is_known_by_name(demo: DemoCrawl) -> None:
    assert written(demo.out) == set(OUTPUT_FILES) - {MISSING, *OF_RULES}


def test_forget_with_outputs_removes_the_files_too(copy: Path, here: Here) -> None:
    (copy / "notes.txt").write_text("mine")
    (copy / MISSING).touch()
    assert here("forget", crawl_id(copy).upper(), "--out", copy, "--outputs").code == 0
    assert written(copy) == {"notes.txt"}
    assert list((copy / "archive").iterdir()) == []
    assert (copy / "notes.txt").read_text() == "mine"
    assert (node_dir(copy) / "identity.pem").exists()


RULES = '[[rules]]\nname = "r"\nsite = "*"\n[[rules.fields]]\nname = "t"\nselector = "h1"\n'
RECORD = '{"_url":"http://a.example/","_record":1,"_fetched_at":"2026-11-25T12:00:00Z","t":"A"}\n'


@pytest.mark.parametrize("rules", [RULES, "of a later version", None])
def test_forget_with_outputs_leaves_a_persons_own_files_beside_the_records(
    rules: str | None, copy: Path, here: Here
) -> None:
    records = copy / RECORDS_DIR
    records.mkdir()
    if rules is not None:
        (records / RULES_FILE).write_text(rules)
    (records / "r.jsonl").write_text(RECORD)
    (records / "customers.jsonl").write_text('{"name": "Li"}\n')
    (records / "empty.jsonl").touch()
    (records / "kept.jsonl").mkdir()
    own = {"customers.jsonl", "empty.jsonl", "kept.jsonl"}
    if rules == RULES:
        (records / "cheap.jsonl").write_text(RECORD)  # by grep
        own.add("cheap.jsonl")
    assert here("forget", crawl_id(copy), "--out", copy, "--outputs").code == 0
    assert {path.name for path in records.iterdir()} == own


def test_forget_leaves_other_crawls_alone(copy: Path, demo: DemoCrawl, here: Here) -> None:
    add_crawls(copy, bytes(16))
    assert here("forget", "0000", "--out", copy).code == 0
    assert here("fsck", "--out", copy).stdout.endswith(": sound\n")
    assert len(json.loads(here("why", demo.url, "--json", "--out", copy).stdout)) == 1


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        ("zzz", "no crawl zzz here; there is: "),
        ("", "the crawl's id is empty"),
        ("0", "0 could be any of 2 crawls; give more of the id"),
    ],
)
def test_forget_refuses_what_names_no_crawl_or_several(prefix: str, says: str, copy: Path, here: Here) -> None:
    add_crawls(copy, b"\x01" + bytes(15), b"\x02" + bytes(15))
    with store(copy) as db:
        before = sum(1 for _ in db)
    ended = here("forget", prefix, "--out", copy, "--outputs")
    # The demo's own id may begin with a zero, too.
    says = says.replace("2 crawls", f"{2 + crawl_id(copy).startswith('0')} crawls")
    assert ended.code == 2
    assert says in ended.message()
    with store(copy) as db:
        assert sum(1 for _ in db) == before
    assert written(copy) == set(OUTPUT_FILES) - {MISSING, *OF_RULES}


@pytest.mark.parametrize("in_swarm", [True, False])
def test_forget_refuses_a_crawl_that_goes_on_in_a_swarm_and_says_what_to_do(
    in_swarm: bool, copy: Path, here: Here
) -> None:
    add_crawls(copy, bytes(16))
    if in_swarm:
        take_part(copy)
    ended = here("forget", "0000", "--out", copy)
    assert ended.code == (2 if in_swarm else 0), ended
    if in_swarm:
        assert "crawl 000000000000 has not ended" in ended.message()
        assert "dhtcrawl stop 000000000000" in ended.message()
    with store(copy) as db:
        assert (db.get(keys.CRAWL + bytes(16)) is not None) == in_swarm
    assert here("forget", crawl_id(copy), "--out", copy).code == 0  # that has ended


# -- a node of a swarm --


@pytest.fixture
def in_swarm(copy: Path) -> Path:
    """The data directory of a node of a swarm, which has the crawl of `copy` and its outputs."""
    take_part(copy)
    data_dir, crawl = copy.with_name("data"), crawl_id(copy)
    node_dir(copy).rename(data_dir)
    (data_dir / CRAWLS_DIR).mkdir()
    copy.rename(data_dir / CRAWLS_DIR / crawl)
    return data_dir


def test_fsck_looks_at_the_archives_that_lie_with_a_node_of_a_swarm(in_swarm: Path, here: Here) -> None:
    (out,) = (in_swarm / CRAWLS_DIR).iterdir()
    ended = here("fsck", "--data-dir", in_swarm)
    assert ended.stdout.endswith(": sound\n"), ended
    (archive,) = (out / ARCHIVE_DIR).iterdir()
    archive.unlink()
    ended = here("fsck", "--data-dir", in_swarm)
    assert ended.code == 1
    assert f"{archive.name}: " in ended.stdout
    assert "are committed, but the file is gone" in ended.stdout


def test_forget_removes_the_outputs_that_lie_with_a_node_of_a_swarm(in_swarm: Path, here: Here) -> None:
    (out,) = (in_swarm / CRAWLS_DIR).iterdir()
    ended = here("forget", out.name[:8], "--data-dir", in_swarm, "--outputs")
    assert ended.code == 0, ended
    assert written(out) == set()
    assert list((out / ARCHIVE_DIR).iterdir()) == []


def test_forget_needs_no_outputs_to_remove_them(in_swarm: Path, here: Here) -> None:
    """The node is without a part of the crawl, or somebody has removed them."""
    (out,) = (in_swarm / CRAWLS_DIR).iterdir()
    shutil.rmtree(out)
    assert here("forget", out.name[:8], "--data-dir", in_swarm, "--outputs").code == 0


# -- verify --


def test_verify_finds_a_finished_crawl_sound(demo: DemoCrawl, here: Here) -> None:
    ended = here("verify", demo.out)
    assert ended.code == 0
    assert ended.stdout.endswith(": sound\n")
    report = json.loads(here("verify", demo.out, "--json").stdout)
    assert report["problems"] == []
    assert report["pages"] == json.loads((demo.out / "summary.json").read_text())["pages"]


def test_verify_finds_one_wrong_byte(copy: Path, here: Here) -> None:
    (path,) = (copy / "archive").iterdir()
    (index,) = (copy / "indexes").iterdir()
    entry = json.loads(index.read_text("utf-8").splitlines()[0].split(" ", 2)[2])
    data = bytearray(path.read_bytes())
    # Within what is compressed: of a header some bytes say nothing that could be wrong.
    data[int(entry["offset"]) + int(entry["length"]) // 2] ^= 1
    path.write_bytes(data)
    ended = here("verify", copy)
    assert ended.code == 1
    assert path.name in ended.stdout


@pytest.mark.parametrize(
    ("module", "args", "told"),
    [
        (verify, ["verify"], r"[1-9]\d* pages, [1-9]\d* index lines, [1-9]\d* records read"),
        (fsck, ["fsck", "--out"], r"[1-9]\d* tasks, [1-9]\d* pages, [1-9]\d* links checked"),
        (export, ["export", "--format", "wacz"], r"[1-9]\d* pages written"),
    ],
)
def test_what_takes_minutes_for_a_million_pages_shows_how_far_it_is(
    module: ModuleType, args: list[str], told: str, copy: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []

    @contextmanager
    def recorded(line: Callable[[], str]) -> Iterator[None]:
        yield
        lines.append(line())

    monkeypatch.setattr(module, "shown", recorded)
    assert here(*args, copy).code == 0
    assert [re.fullmatch(told, line) is not None for line in lines] == [True]
