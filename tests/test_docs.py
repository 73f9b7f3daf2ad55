"""What the documentation says exists, exists; what exists, it mentions. `test_docs_config.py` has the settings."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dhtcrawl.cli.main import cli
from dhtcrawl.config import all_settings
from dhtcrawl.errors import Exit
from dhtcrawl.export.formats import FORMATS
from dhtcrawl.export.links_jsonl import FIELDS
from dhtcrawl.export.pages_csv import COLUMNS
from dhtcrawl.fetch.links import TREE_TAGS_MAX, extract
from dhtcrawl.policy.registry import OURS
from dhtcrawl.sim.scenario import Scenario, ScenarioResult
from dhtcrawl.sim.scenario_file import read_scenario
from dhtcrawl.storage.outputs.outputs import OUTPUT_FILES
from dhtcrawl.storage.outputs.summary import NodeShare, Summary
from dhtcrawl.storage.outputs.verify import PAGE_FIELDS
from dhtcrawl.storage.store.records import SkipReason

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
MODULES = {path: path.read_text("utf-8") for path in (ROOT / "dhtcrawl").rglob("*.py")}
SOURCE = "\n".join(MODULES.values())
SETTINGS = set(all_settings())
OTHERS_NAMES = {
    "DIR.node",
    "args.get",
    "example.org",
    "offers.price",
    "dhtcrawl.policies",
    "urllib.parse",
    "urllib.robotparser",
    "www.example.org",
}
A_FILE = re.compile(r"\.(json|jsonl|md|py|sh|toml|txt|cdxj|lock|yml|gz|idx|csv|wacz|service)$")
# Figures are pictures: a fence with a language is a file or commands, one without is neither.
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def section(name: str, heading: str) -> str:
    """What stands below a heading, up to the next of its level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text(name), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name} has no section {heading}"
    return found[1]


def table(content: str, head: str) -> dict[str, list[str]]:
    """The rows of the tables whose first column is `head`: its first cell → the others."""
    found = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", content + "\n", re.MULTILINE)
    assert found, f"no table of {head}"
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for body in found for line in body.splitlines()]
    assert len({row[0] for row in rows}) == len(rows), "a row stands there twice"
    return {row[0].strip("` "): row[1:] for row in rows}


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


def blocks(name: str) -> list[list[str]]:
    """The words of each `dhtcrawl …` line of a shell example, without what the shell takes for itself."""
    lines = "\n".join(body for language, body in FENCE.findall(text(name)) if language == "sh").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("dhtcrawl ")]
    ours = [line[1 : line.index("|")] if "|" in line else line[1:] for line in words]
    return [[word for word in line if not re.match(r"[0-9]?>", word)] for line in ours]


def mentions(name: str) -> list[list[str]]:
    """The words of each `dhtcrawl …` within a sentence or a table."""
    prose = FENCE.sub("", text(name))
    return [found.split()[1:] for found in re.findall(r"`(dhtcrawl [^`]+)`", prose)]


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a line begins with, and the rest of the line."""
    for length in (2, 1):
        command = COMMANDS.get(tuple(words[:length]))
        if command is not None:
            return command, words[length:]
    raise AssertionError(f"dhtcrawl {' '.join(words)}: there is no such command")


def options_of(command: click.Command) -> set[str]:
    declared = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
    return declared | {"-h", "--help"}


@pytest.mark.parametrize("name", NAMES)
def test_every_shell_example_parses(name: str) -> None:
    for words in blocks(name):
        command, rest = found(words)
        try:
            # As the group would: a command keeps the help options of its first context.
            command.make_context("dhtcrawl", rest, **cli.context_settings)
        except click.UsageError as error:
            pytest.fail(f"dhtcrawl {' '.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_in_a_sentence_exists_with_its_options(name: str) -> None:
    groups = {path[0] for path in COMMANDS if len(path) > 1}
    for words in mentions(name):
        if words[0] in ("--version", "--help", "COMMAND") or (words[0] in groups and len(words) == 1):
            continue
        command, rest = found(words)
        unknown = {word for word in rest if word.startswith("-")} - options_of(command)
        assert not unknown, f"dhtcrawl {' '.join(words)}: no option {unknown}"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_every_option_is_mentioned(path: tuple[str, ...]) -> None:
    everything = "".join(text(name) for name in NAMES)
    assert f"dhtcrawl {' '.join(path)}" in everything
    missing = {option for option in options_of(COMMANDS[path]) if not re.search(rf"{option}(?![\w-])", everything)}
    assert missing == set()


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("name", NAMES)
def test_every_link_within_the_project_leads_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text(name))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} leads nowhere"
        assert linked.is_relative_to(ROOT), f"{target} leads out of the project"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", linked.read_text("utf-8")), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}: there is no such heading"


@pytest.mark.parametrize("name", NAMES)
def test_every_test_that_is_named_as_a_proof_exists(name: str) -> None:
    tests = set(re.findall(r"def (test_\w+)", "".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("*.py"))))
    named = set(re.findall(r"`(test_\w+)`", text(name)))
    assert named - tests == set()


def test_every_hole_has_tests_that_close_it() -> None:
    holes, *_ = text("docs/attacks.md").partition("\n## ")
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in holes.splitlines() if line.startswith("| ")]
    assert [hole for hole, *_ in rows] == ["hole", *map(str, range(1, 15)), "drip"]
    assert all(len(re.findall(r"`test_\w+`", now)) >= 2 for _, _, now in rows[1:])


@pytest.mark.parametrize("name", NAMES)
def test_every_source_file_that_is_named_exists(name: str) -> None:
    for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|md|sh)|(?:tests|scripts)/[\w/]*)`", text(name)):
        assert (ROOT / path).exists() or (ROOT / "dhtcrawl" / path).exists(), f"{path} is not there"


@pytest.mark.parametrize("name", NAMES)
def test_every_module_class_and_member_that_is_named_exists(name: str) -> None:
    quoted = re.findall(r"`([^`\n]+)`", FENCE.sub("", text(name)))
    dotted = {word for word in quoted if re.fullmatch(r"([A-Za-z_]\w*\.)+\w+", word) and not A_FILE.search(word)}
    classes = {word for word in quoted if re.fullmatch(r"([A-Z][a-z0-9]+){2,}", word)}
    assert [word for word in dotted - SETTINGS - OTHERS_NAMES if not is_defined(word)] == []
    assert [word for word in classes if not re.search(rf"^class {word}\b", SOURCE, re.MULTILINE)] == []


def is_defined(word: str) -> bool:
    """Whether `module.name`, `Class.member` or `dhtcrawl.room.module` is in the code."""
    owner, _, member = word.rpartition(".")
    path = word.replace(".", "/")
    if any((ROOT / each).exists() for each in (path, f"{path}.py")):
        return True
    stem = owner.rpartition(".")[2]
    files = [
        source for at, source in MODULES.items() if at.stem == stem or re.search(rf"^class {stem}\b", source, re.M)
    ]
    return any(re.search(rf"^\s*(async def|def|class|self\.|)\s*{member}\b", source, re.M) for source in files)


def test_a_module_class_or_member_that_is_not_there_is_noticed() -> None:
    for word in ("tasks.accept", "Syncer.hand_over", "dhtcrawl.crawl.single_node", "dhtcrawl.keyspace.placement"):
        assert is_defined(word)
        assert not is_defined(f"{word}_no_more")
        assert not is_defined(f"nowhere.{word.rpartition('.')[2]}")


def test_every_module_that_a_url_passes_on_its_way_exists() -> None:
    (picture,) = (body for _, body in FENCE.findall(section("docs/architecture.md", "A URL's way")))
    named = re.findall(r"(?<=[ ,] )(?:[a-z_]+/)+[a-z_]+(?=,|$)", picture, re.MULTILINE)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "dhtcrawl" / f"{name}.py").is_file()] == []


@pytest.mark.parametrize(("head", "package"), [("room", "dhtcrawl"), ("room of `swarm/`", "dhtcrawl/swarm")])
def test_every_room_is_described_and_no_other(head: str, package: str) -> None:
    described = re.findall(r"(\w+)(?:/|\.py)", " ".join(table(section("docs/architecture.md", "The rooms"), head)))
    files = [path for path in (ROOT / package).iterdir() if path.is_dir() or path.suffix == ".py"]
    assert sorted(described) == sorted(path.stem for path in files if not path.name.startswith("__"))


def test_the_glossary_is_in_order_and_has_no_word_that_the_code_does_not_use() -> None:
    words = list(table(section("docs/architecture.md", "Glossary"), "word"))
    assert words == sorted(words)
    code = " ".join(path.read_text("utf-8") for path in (ROOT / "dhtcrawl").rglob("*.py")).lower()
    assert [word for word in words if word not in code] == []


def test_every_page_and_every_decision_is_in_its_index() -> None:
    docs, decisions = text("docs/README.md"), text("docs/decisions/README.md")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "README.md" or f"]({path.name})" in docs
    for path in (ROOT / "docs" / "decisions").glob("*.md"):
        assert path.name == "README.md" or f"[{path.name[:4]}]({path.name})" in decisions


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md"])
def test_every_exit_code_is_explained_and_no_other(name: str) -> None:
    codes = re.findall(r"\| ([0-9]+) (?=\|)", section(name, "Exit codes"))
    assert sorted(map(int, codes)) == sorted(map(int, Exit))


def test_every_command_stands_in_the_readme() -> None:
    named = set(re.findall(r"[a-z-]+", " ".join(table(section("README.md", "Commands"), "command"))))
    assert {words[0] for words in COMMANDS} - named == set()


def test_every_output_file_is_explained_and_no_other() -> None:
    page = text("docs/outputs.md")
    listed = re.findall(r"^  ([a-z./]+) ", FENCE.findall(page)[0][1], re.MULTILINE)
    assert set(listed) == set(OUTPUT_FILES)


# Where HTML may name a URL.
URLS_IN_HTML = [
    *((element, "href") for element in ("a", "area", "base", "image", "link", "use")),
    *((element, "src") for element in ("audio", "embed", "frame", "iframe", "img", "input", "script", "source")),
    *((element, "cite") for element in ("blockquote", "del", "ins", "q")),
    ("a", "ping"), ("body", "background"), ("button", "formaction"), ("form", "action"), ("html", "manifest"),
    ("img", "longdesc"), ("img", "srcset"), ("input", "formaction"), ("object", "data"), ("source", "srcset"),
    ("track", "src"), ("video", "poster"), ("video", "src"),
]  # fmt: skip


def test_every_element_that_leads_on_is_explained_and_no_other() -> None:
    explained = {
        (element, cells[0].strip("`"))
        for element, cells in table(section("docs/outputs.md", "Links that are followed"), "element").items()
    }
    refresh = ('meta` with `http-equiv="refresh"', "the URL in `content")
    for before in ("", "<!--" + "<" * TREE_TAGS_MAX + "-->"):  # parsed, and scanned
        followed = {refresh} if extract(f'{before}<meta http-equiv="refresh" content="0; url=x">').refreshes else set()
        for element, attribute in URLS_IN_HTML:
            tag = f"<{element} {attribute}=x>"
            if extract(f"{before}<frameset>{tag}" if element == "frame" else before + tag).hrefs:
                followed.add((element, attribute))
        assert explained == followed


def test_every_reason_to_skip_is_explained_and_no_other() -> None:
    reasons = {value for name, value in vars(SkipReason).items() if name.isupper()}
    assert table(section("docs/outputs.md", "skipped.jsonl"), "reason").keys() == reasons


def test_every_field_of_a_page_is_explained_in_its_order() -> None:
    assert tuple(table(section("docs/outputs.md", "pages.jsonl"), "field")) == PAGE_FIELDS


def test_every_export_format_its_columns_and_fields_are_explained_in_their_order() -> None:
    page = section("docs/outputs.md", "Other formats")
    explained = {name: cells[0].strip("`") for name, cells in table(page, "format").items()}
    assert explained == {name: f"my-crawl{form.suffix}" for name, form in FORMATS.items()}
    assert tuple(table(page, "column")) == COLUMNS
    assert tuple(table(page, "name")) == FIELDS


@pytest.mark.parametrize(("head", "kind"), [("field", Summary), ("field of `per_node`", NodeShare)])
def test_every_figure_of_the_summary_is_explained_in_its_order(head: str, kind: type[Summary | NodeShare]) -> None:
    explained = table(section("docs/outputs.md", "summary.json"), head)
    assert list(explained) == list(kind._fields)


def test_every_policy_is_explained_and_no_other() -> None:
    page = text("docs/policies.md")
    assert list(table(page, "policy")) == list(OURS)
    assert re.findall(r"^- \*\*([a-z-]+)\*\*:", page, re.MULTILINE) == list(OURS)


def test_every_key_of_a_scenario_is_explained_with_its_default() -> None:
    explained = {key: cells[0].strip("`\"'") for key, cells in table(text("docs/simulation.md"), "key").items()}
    defaults = {field.name: field.default for field in dataclasses.fields(Scenario)}
    assert explained == {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in defaults.items()
    }


def test_every_field_of_a_simulations_result_is_explained_in_its_order() -> None:
    explained = table(section("docs/simulation.md", "Result"), "field")
    assert list(explained) == [field.name for field in dataclasses.fields(ScenarioResult)]


def test_the_example_of_a_scenario_is_one(tmp_path: Path) -> None:
    (example,) = [body for language, body in FENCE.findall(text("docs/simulation.md")) if language == "toml"]
    file = tmp_path / "scenario.toml"
    file.write_text(example, "utf-8")
    assert read_scenario(file) != Scenario()
