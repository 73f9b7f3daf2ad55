"""The judge is judged first: known sites have about the known number of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import truth as judge
from .conftest import Serve
from .sites import ALL, SMALL, SQLITE, START, DocSite
from .truth import Truth, truth_of, walked


@pytest.mark.needs_nginx
@pytest.mark.parametrize("site", [*ALL, SMALL], ids=lambda site: site.package)
def test_a_walk_over_the_files_finds_the_known_number_of_pages(site: DocSite, serve: Serve) -> None:
    serve(site)
    found = truth_of(site.root, START, site.encoding).page_count
    assert abs(found - site.page_count) <= site.page_count / 100, found


@pytest.mark.needs_nginx
def test_the_awkward_site_is_as_awkward_as_it_is_known_to_be(serve: Serve) -> None:
    serve(SQLITE)
    truth = truth_of(SQLITE.root, START)
    assert len(truth.broken) > 400
    assert max(truth.links.values()) == 10_445


def test_the_model_knows_what_nginx_does_with_directories_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="sub?x=1#f">dir</a> <a href="//site/a%20b.html">b</a> <a href="gone.html"> <area href=" c.bin ">'
        '<a href="mailto:x@y"> <a href="http://elsewhere/"> <!-- <a href="comment.html"> --> <a name="x">'
    )
    (tmp_path / "a b.html").write_text('<base href="/sub/"><a href="d.html"> <a href="\\">')
    (tmp_path / "sub/index.html").write_text('<iframe src="../index.html">')
    (tmp_path / "sub/d.html").write_text("")
    (tmp_path / "c.bin").write_text('<a href="never.html">')
    assert walked(tmp_path) == Truth(
        pages={
            "/index.html": tmp_path / "index.html",
            "/a%20b.html": tmp_path / "a b.html",
            "/sub/d.html": tmp_path / "sub/d.html",
            "/": tmp_path / "index.html",
            "/sub/?x=1": tmp_path / "sub/index.html",
        },
        redirects={"/sub?x=1"},
        files={"/c.bin"},
        broken={"/gone.html"},
        links={"/index.html": 5, "/a%20b.html": 2, "/sub/d.html": 0, "/": 5, "/sub/?x=1": 1},
    )


def test_what_was_worked_out_is_kept_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "KEPT_IN", tmp_path / "kept")
    root = tmp_path / "site"
    root.mkdir()
    (root / "index.html").write_text('<a href="gone.html">')
    assert truth_of(root) == walked(root)
    truth_of.cache_clear()  # another process
    with monkeypatch.context() as kept:
        kept.setattr(judge, "walked", None)
        assert truth_of(root).broken == {"/gone.html"}
    (root / "index.html").write_text('<a href="lost.html">')
    truth_of.cache_clear()
    assert truth_of(root).broken == {"/lost.html"}
