"""`dhtcrawl crawl --template FILE`: pages of results are seeds, and each page says which search led to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from e2e.outputs import Outputs
from e2e.stub import Answer, StubServer

from dhtcrawl.cli.main import run
from dhtcrawl.errors import Exit

from .conftest import spawn, spawn_anew

FILE = """
[engines.first]
url = "{url}/s?q={{query}}&p={{page}}"
pages = 2
delay = "10ms"
[engines.second]
url = "{url}/find?q={{query}}"
[[tasks]]
name = "milk"
sites = ["a.example"]
[[tasks]]
name = "dairy"
keywords = ["milk"]
engines = ["second"]
sites = ["a.example"]
"""
QUERY = "q=milk+site%3Aa.example"
FIRST, SECOND, FOUND = f"/s?{QUERY}&p=1", f"/s?{QUERY}&p=2", f"/find?{QUERY}"
ENGINES, _, _ = FILE.partition("[[tasks]]")
HERE = ENGINES.format(url="http://e.example")
LONG = ", ".join(f'"{letter * 490}"' for letter in "abcdefghijklmnopqrst")


def template(tmp_path: Path, text: str) -> str:
    file = tmp_path / "t.toml"
    file.write_text(text)
    return str(file)


def test_pages_of_results_are_fetched_and_what_they_lead_to_names_the_search(tmp_path: Path) -> None:
    with StubServer() as server:
        server.page(FIRST, "/hit/1", "/s?q=other")
        server.page(SECOND, "/hit/1")
        server.page(FOUND, "/hit/2")
        server.page("/hit/2", "/hit/3")
        for path in ("/hit/1", "/hit/3", "/seed", "/s?q=other"):
            server.page(path)
        file, out = template(tmp_path, FILE.format(url=server.url)), tmp_path / "out"
        options = [f"{server.url}/seed", "--allow-private", "--delay", "10ms", "--template", file, "--out", "out"]
        options += ["--scope", "host", "--include", "/hit/", "--depth"]
        ended = spawn(
            tmp_path, "crawl", f"{server.url}/seed", *options, "--scope", "host", "--include", "/hit/", "--depth", "2"
        )
        assert ended.code == 0, ended
        why = spawn(tmp_path, "why", server.url + FOUND, "--out", "out")
        for task in ("milk", "dairy"):
            assert f"search     page 1 of '{task}' at engine second, about a.example" in why.stdout, why
        again = spawn(
            tmp_path,
            "crawl",
            f"{server.url}/seed",
            *options,
            "--scope",
            "host",
            "--include",
            "/hit/",
            "--depth",
            "2",
            "--key",
            "host",
        )
        assert (again.code, "--key was search, not host" in again.stderr) == (Exit.USAGE, True), again
        assert sorted(set(server.paths())) == sorted(server.paths())
    said = {row["url"].removeprefix(server.url): row["searches"] for row in Outputs(out).pages()}
    first = {"task": "milk", "engine": "first", "site": "a.example", "page": 1}
    both = [{"task": task, "engine": "second", "site": "a.example", "page": 1} for task in ("milk", "dairy")]
    assert said == {
        "/seed": [], FIRST: [first], SECOND: [first | {"page": 2}], FOUND: both,
        "/hit/1": [first], "/hit/2": both, "/hit/3": both,
    }  # fmt: skip


def test_without_another_word_pages_of_results_are_all_that_is_fetched(tmp_path: Path) -> None:
    with StubServer() as server:
        for path in (FIRST, SECOND, FOUND):
            server.page(path, "/hit/1")
        file, out = template(tmp_path, FILE.format(url=server.url)), tmp_path / "out"
        ended = spawn(tmp_path, "crawl", "--allow-private", "--template", file, "--out", str(out), "--delay", "10ms")
        assert ended.code == 0, ended
        assert sorted(server.paths()) == sorted([FIRST, SECOND, FOUND])
        file = template(
            tmp_path, FILE.format(url=server.url).replace('"milk"\nsites', '"milk"\nengines=["first"]\nsites')
        )
        other = spawn(tmp_path, "crawl", "--allow-private", "--template", file, "--out", str(out), "--delay", "10ms")
    assert other.code == Exit.USAGE
    assert "--template says other tasks or engines" in other.stderr


def test_several_nodes_of_a_command_are_of_the_type_that_it_says_and_import_the_policy_that_it_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "as_xor.py").write_text("from dhtcrawl.policy.xor import Xor\nclass AsXor(Xor):\n    name = 'as-xor'\n")
    with StubServer() as server:
        for path in (FIRST, SECOND):
            server.page(path)
        typed = FILE.format(url=server.url).replace(
            "[engines.second]", 'type = "meta"\n[engines.second]\ntype = "meta"'
        )
        file = template(tmp_path, typed.partition("[[tasks]]")[0] + '[[tasks]]\nname="milk"\nsites=["a.example"]\n')
        server.page(FOUND)
        words = ["--template", file, "--nodes", "2", "--set", "node.labels=type=meta", "--policy", "as_xor:AsXor"]
        ended = spawn(tmp_path, "crawl", "--allow-private", "--out", "out", "--delay", "10ms", "--json", *words)
        assert ended.code == 0, ended
        assert sorted(server.paths()) == sorted([FIRST, SECOND, FOUND])
    assert Outputs(tmp_path / "out").summary()["policy"] == "as_xor:AsXor"


def test_an_engine_that_says_not_now_is_asked_again(tmp_path: Path) -> None:
    with StubServer() as server:
        server.page(FOUND)
        server.answers[FOUND] = [Answer(status=503, headers={"Retry-After": "0"}), Answer(b"<p>found")]
        text = FILE.format(url=server.url).partition("[[tasks]]")[0] + '[[tasks]]\nname="milk"\nengines=["second"]\n'
        file = template(tmp_path, text + 'sites=["a.example"]')
        ended = spawn(tmp_path, "crawl", "--allow-private", "--template", file, "--out", "out", "--delay", "10ms")
        assert ended.code == 0, ended
        assert server.paths() == [FOUND, FOUND]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, Exit.USAGE, "--template missing.toml: cannot be read"),
        ("chunk = 0", Exit.CONFIG, "t.toml:1: chunk is 0; use a whole number"),
        (HERE + 'type = "meta"', Exit.CONFIG, "t.toml:8: engines.second.type is not the type of engine first"),
        (
            HERE.replace("[engines.second]", 'type = "meta"\n[engines.second]') + 'type = "meta"\n[[tasks]]\nname="a"',
            Exit.CONFIG,
            "e.example is asked by nodes of type 'meta' only, and these are of none; add --set node.labels=type=meta",
        ),
        (
            HERE + f'[[tasks]]\nname = "a"\nengines = ["second"]\nkeywords = [{LONG}]',
            Exit.CONFIG,
            "tasks without a URL, as it would be too long or another page's: 1; change their keywords",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    text: str | None, code: Exit, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = "missing.toml" if text is None else template(tmp_path, text)
    assert run(["crawl", "--template", file, "--out", str(tmp_path / "out")]) == code
    err = capsys.readouterr().err
    assert said in err, err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_tasks_are_json_whatever_standard_output_has_characters_for(encoding: str, tmp_path: Path) -> None:
    name = "日本 \N{GRINNING FACE} café"
    file = template(
        tmp_path, f'{ENGINES.format(url="http://e.example")}[[tasks]]\nname = "{name}"\nsites = ["a.example"]'
    )
    printed = spawn_anew(tmp_path, "expand", file, env={"PYTHONIOENCODING": encoding}).stdout
    assert all(name in json.loads(line).values() for line in printed.splitlines())
    assert ("é" in printed) == (encoding == "utf-8")


def test_only_pages_of_results_are_placed_by_their_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crawl", "http://e.example/", "--key", "search"]) == Exit.USAGE
    assert "places pages of results; add --template FILE, or use url or host" in capsys.readouterr().err
