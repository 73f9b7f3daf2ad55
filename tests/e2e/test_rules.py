"""Records by rules: those that lxml finds, from one node, its archive, and five of which two die."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urldefrag, urljoin

import pytest
from lxml import html

from .conftest import Serve, ServeSlowly, root_of
from .crawler import Crawler
from .outputs import Outputs
from .sites import POSTGRESQL, SQLITE, DocSite
from .swarm import CLEAN, IN_FLIGHT, Swarm, submitted

Row = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs" / "extraction.md"
# The rules for PostgreSQL's documentation that stand there, and these.
RULES = """
[[rules]]
name = "interfaces"
site = "127.0.0.1"
pages = "/c3ref/*.html"
[[rules.fields]]
name = "title"
selector = "h2"
required = true
[[rules.fields]]
name = "code"
selector = "blockquote pre"
transforms = ["strip"]
list = true
[[rules.fields]]
name = "links"
selector = "p a"
take = "@href"
type = "url"
list = true
"""


def parsed(data: bytes) -> Any:
    """The tree that libxml2 makes of a page: neither the parser nor the tree builder that rules use."""
    return html.document_fromstring(data, parser=html.HTMLParser(encoding="utf-8"))


def of_class(name: str) -> str:
    return f"[contains(concat(' ', normalize-space(@class), ' '), ' {name} ')]"


def text(element: Any) -> str:
    return " ".join(element.text_content().split())


def first(scope: Any, xpath: str) -> str | None:
    found = [text(element) for element in scope.xpath(xpath)[:1]]
    return found[0] or None if found else None


def links(page: Any, xpath: str, url: str) -> list[str]:
    return [urldefrag(urljoin(url, href))[0] for element in page.xpath(xpath) if (href := element.get("href"))]


def command_by_hand(page: Any, url: str) -> Row:
    names, sections = f"//*{of_class('refnamediv')}", f"//div{of_class('refsect1')}"
    (purpose,) = page.xpath(f"{names}//p")[:1] or [None]
    return {
        "title": first(page, f"{names}//h2//*{of_class('refentrytitle')}"),
        "purpose": None if purpose is None else " ".join(purpose.text_content().partition("—")[2].split()) or None,
        "synopses": [text(each) for each in page.xpath(f"//pre{of_class('synopsis')}")],
        "links": links(page, f"{sections}[not(following-sibling::div)]//a{of_class('xref')}", url),
        "sections": [{"heading": first(each, ".//h2"), "first": first(each, ".//p")} for each in page.xpath(sections)],
    }


def interface_by_hand(page: Any, url: str) -> Row:
    return {
        "title": first(page, "//h2"),
        "code": [code for each in page.xpath("//blockquote//pre") if (code := each.text_content().strip())],
        "links": links(page, "//p//a", url),
    }


class Case(NamedTuple):
    """A site, where the crawl begins, the rule for its pages, and what lxml makes of one."""

    site: DocSite
    seed: str
    rule: str
    by_hand: Callable[[Any, str], Row]

    def records_of(self, outputs: Outputs) -> dict[str, Row]:
        """The record of each page, by lxml; without those that lack their title."""
        root, found = root_of(self.site), {}
        prefix = "/sql-" if self.rule == "commands" else "/c3ref/"
        for path, page in outputs.html().items():
            if path.startswith(prefix):
                row = self.by_hand(parsed((root / path.lstrip("/")).read_bytes()), page["url"])
                if row["title"] is not None:
                    found[page["url"]] = row
        return found


COMMANDS = Case(POSTGRESQL, "/sql-commands.html", "commands", command_by_hand)
INTERFACES = Case(SQLITE, "/c3ref/funclist.html", "interfaces", interface_by_hand)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.toml"
    (commands,) = re.findall(r"^# postgresql.toml\n(.*?)^```$", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    file.write_text(commands.replace("www.postgresql.org", "127.0.0.1") + RULES)
    return file


def rows(outputs: Outputs, case: Case) -> list[Row]:
    file = outputs.out / "records" / f"{case.rule}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def assert_same_records(outputs: Outputs, case: Case) -> None:
    wanted = case.records_of(outputs)
    assert len(wanted) > 100
    found = rows(outputs, case)
    assert [row["_url"] for row in found] == sorted(wanted), "each once"
    for row in found:
        fields = {name: value for name, value in row.items() if not name.startswith("_")}
        assert fields == wanted[row["_url"]]
    assert outputs.summary()["records"] == {case.rule: len(wanted)}


@pytest.mark.needs_nginx
@pytest.mark.parametrize("case", [COMMANDS, INTERFACES], ids=["commands", "interfaces"])
def test_live_and_from_the_archive_records_are_those_of_lxml(
    case: Case, serve: Serve, crawler: Crawler, outputs: Outputs, rules: Path
) -> None:
    seed = serve(case.site).url + case.seed
    options = ["--allow-private", "--delay", "0", "--depth", "1", "--out", str(outputs.out)]
    crawler.run("crawl", seed, *options, "--rules", str(rules)).ended_with(0)
    assert_same_records(outputs, case)
    written = [outputs.out / "records" / f"{case.rule}.jsonl", outputs.out / "reports" / "rejected.jsonl"]
    live = [file.read_bytes() for file in written]
    for file in written:
        file.unlink()
    crawler.run("extract", str(outputs.out), "--rules", str(rules), "--processes", "2").ended_with(0)
    assert [file.read_bytes() for file in written] == live
    crawler.check(outputs.out)


@pytest.mark.needs_nginx
def test_five_nodes_of_which_two_die_bring_each_record_once(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs, rules: Path
) -> None:
    server = serve_slowly(COMMANDS.site, 60)
    swarm.start(5)
    swarm.meet()
    dead = swarm.nodes[:2]
    options = ["--delay", "0", "--depth", "1", "--rules", str(rules)]
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + COMMANDS.seed, *options) as crawl:
        for node, moment in zip(dead, (60, 100), strict=True):
            crawl.reach(server, moment)
            node.kill()
        swarm.give_up(*dead)
        swarm.restart(*dead)
        server.open()
        summary = crawl.finish(swarm, CLEAN)
    assert summary["refetches"] <= len(dead) * IN_FLIGHT
    assert_same_records(outputs, COMMANDS)
    crawler.check(outputs.out)
