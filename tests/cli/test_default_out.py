"""Where a crawl goes whose command names no directory."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Event, Timer

import pytest
from demo_site import DemoServer
from e2e.outputs import Outputs

from dhtcrawl.cli.default_out import new_out, nodes_begun, unfinished
from dhtcrawl.cli.options import AUTO
from dhtcrawl.cli.orphans import LOOK_S
from dhtcrawl.cli.runtime import locked
from dhtcrawl.config import CrawlSettings
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.txn import Txn

from .conftest import spawn

LABELS = ".".join(letter * 60 for letter in "abc")
DAY = date(2026, 11, 25)
SPEC = make_spec(["http://example.org/", "http://other.org/"], CrawlSettings(depth=2, max_pages=10))


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        ("https://example.org/page", "crawl-example.org-2026-11-25"),
        ("http://EXAMPLE.org:8080/", "crawl-example.org-8080-2026-11-25"),
        ("http://[2001:db8::1]:8000/", "crawl-2001-db8-1-8000-2026-11-25"),
        ("http://[::1]/", "crawl-1-2026-11-25"),
        ("http://bücher.example/", "crawl-xn--bcher-kva.example-2026-11-25"),
        ("http://a_b.example./", "crawl-a_b.example-2026-11-25"),
        ("http://-rf.example/", "crawl-rf.example-2026-11-25"),
        (
            f"http://{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 60}/",
            f"crawl-{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 17}-2026-11-25",
        ),
    ],
)
def test_a_new_directory_is_named_by_site_and_day_and_is_safe_as_a_name(seed: str, name: str) -> None:
    out = new_out(make_spec([seed, "http://second.example/"], CrawlSettings()), DAY)
    assert out == Path(name)
    assert len(f"{name}.node") <= 255


def begin(data_dir: Path, spec: CrawlSpec = SPEC, *, ended: str = "", key: bool = True, at: float = 0) -> None:
    """A store with a crawl, as a node leaves it."""
    data_dir.mkdir(parents=True)
    for name in ("lock", "identity.pem") if key else ("lock",):
        (data_dir / name).touch()
    engine, writes = LevelEngine(data_dir / "store"), dict[bytes, bytes | None]()
    catalog.check_format(Txn(engine, writes))
    catalog.put_crawl(Txn(engine, writes), CrawlRecord(spec.crawl_id(bytes(16)), spec, bytes(16), ended=ended))
    engine.write(writes, sync=False)
    engine.close()
    os.utime(data_dir, (at, at))


def test_the_newest_unfinished_crawl_of_the_same_seeds_goes_on_whatever_its_limits(tmp_path: Path) -> None:
    begin(tmp_path / "crawl-2026-11-01" / "node", at=1)
    assert unfinished(tmp_path, SPEC, 1) == tmp_path / "crawl-2026-11-01", "as earlier versions named it"
    begin(tmp_path / "example.org-2026-11-02.node", make_spec(SPEC.seeds, CrawlSettings(depth=2, delay_s=9.0)), at=2)
    assert unfinished(tmp_path, SPEC, 1) == tmp_path / "example.org-2026-11-02"
    begin(tmp_path / "other-scope.node", make_spec(SPEC.seeds, CrawlSettings(depth=2, scope="page")), at=3)
    begin(tmp_path / "other-seeds.node", make_spec(SPEC.seeds[:1], CrawlSettings(depth=2)), at=4)
    begin(tmp_path / "complete.node", ended="complete", at=5)
    begin(tmp_path / "failed.node", ended="failed", at=6)
    begin(tmp_path / "gathered.node", key=False, at=7)
    (tmp_path / "broken.node" / "store").mkdir(parents=True)
    (tmp_path / "broken.node" / "identity.pem").touch()
    assert unfinished(tmp_path, SPEC, 1) == tmp_path / "example.org-2026-11-02"
    with locked(tmp_path / "example.org-2026-11-02.node"):
        assert unfinished(tmp_path, SPEC, 1) == tmp_path / "crawl-2026-11-01", "what is in use is passed over"


def test_outputs_that_are_complete_are_not_looked_into(tmp_path: Path) -> None:
    begin(tmp_path / "a.node")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"complete": False}))
    assert unfinished(tmp_path, SPEC, 1) == tmp_path / "a"
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"complete": True}))
    assert unfinished(tmp_path, SPEC, 1) is None


def test_a_crawl_of_several_processes_goes_on_with_as_many(tmp_path: Path) -> None:
    begin(tmp_path / "old" / "nodes" / "1", at=1)
    (tmp_path / "old" / "nodes" / "2").mkdir()
    assert unfinished(tmp_path, SPEC, 2) == tmp_path / "old"
    begin(tmp_path / "new.node" / "nodes" / "1", ended="page limit", at=2)
    (tmp_path / "new.node" / "nodes" / "2").mkdir()
    assert unfinished(tmp_path, SPEC, 2) == tmp_path / "new"
    assert unfinished(tmp_path, SPEC, 3) is None
    assert unfinished(tmp_path, SPEC, 1) is None
    assert unfinished(tmp_path, SPEC, AUTO) == tmp_path / "new"
    begin(tmp_path / "alone.node", at=3)
    assert unfinished(tmp_path, SPEC, AUTO) == tmp_path / "alone"
    assert [nodes_begun(tmp_path / name) for name in ("old", "new", "alone", "none")] == [2, 2, 1, None]


def test_a_crawl_goes_on_whose_nodes_end_after_their_killed_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path / "killed.node" / "nodes" / "1", at=1)
    (tmp_path / "killed.node" / "nodes" / "2").mkdir()
    ends = Event()

    def hold(held: Event) -> None:
        with locked(tmp_path / "killed.node" / "nodes" / "1"):
            held.set()
            ends.wait(10)

    held = Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold, held)
        assert held.wait(10)
        Timer(2 * LOOK_S, ends.set).start()
        assert unfinished(tmp_path, SPEC, 2) == tmp_path / "killed"
    assert "waiting for the nodes of the run before to end" in capsys.readouterr().err
    with locked(tmp_path / "killed.node" / "nodes"):
        assert unfinished(tmp_path, SPEC, 2) is None, "its command is at work"


def test_an_interrupted_crawl_goes_on_another_day_without_its_name(server: DemoServer, tmp_path: Path) -> None:
    command = ["crawl", server.url, "--allow-private", "--delay", "0"]
    assert spawn(tmp_path, *command, "--max-pages", "3").code == 21
    (out,) = (path for path in tmp_path.glob("crawl-127.0.0.1-*") if path.suffix != ".node")
    earlier = out.with_name("127.0.0.1-2020-01-01")
    out.rename(earlier)
    out.with_name(f"{out.name}.node").rename(earlier.with_name(f"{earlier.name}.node"))
    goes_on = spawn(tmp_path, *command)
    assert goes_on.code == 0, goes_on
    assert "begun in 127.0.0.1-2020-01-01/ and goes on there" in goes_on.stderr
    assert Outputs(earlier).summary()["complete"] is True
    assert not out.exists()
    quiet = spawn(tmp_path, *command, "-q", "--max-pages", "1")
    assert (quiet.code, quiet.stderr) == (21, ""), "a complete one is not gone on with"
    assert out.exists()
