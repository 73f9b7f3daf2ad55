"""The commands of docs/development.md run, and its table of typical changes names what is there.

What takes long or changes the checkout is run in a short form, by the first
rule of `SHORT_FORMS` that fits. A command that fits none fails here: give it
a rule.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_docs import FENCE, section, table, text

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PAGE = "docs/development.md"
COMMANDS = [
    line for language, body in FENCE.findall(text(PAGE)) if language == "sh" for line in body.splitlines() if line
]


def run(command: list[str], **variables: str) -> str:
    """What the command says; it has to succeed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE", "MFLAGS"))}
    env |= variables
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make(words: list[str], *options: str) -> str:
    """`make`, with the environment that this test runs in, which it may not install anew."""
    as_it_is = [f"--assume-old={BIN.parent / stamp}" for stamp in (".ready", ".ready-dev")]
    return run(["make", "--no-print-directory", *as_it_is, *options, *words[1:], f"VENV={BIN.parent}"])


def planned(words: list[str]) -> None:
    """What `make` would run has what was given on the command line in it."""
    plan = make(words, "-n")
    for word in words[2:]:
        value = word.partition("=")[2]
        assert value in plan, f"{value} is lost: {plan}"


def one(words: list[str]) -> None:
    """The tests are run, and there are some."""
    assert re.search(r"\b\d+ passed\b|^\.+ +\[100%\]$", make(words), re.MULTILINE)


def ruff(words: list[str]) -> None:
    """The same over one file, without changing it."""
    dry = {"format": ["--check"], "check": []}[words[1]]
    options = [word for word in words[2:] if word != "--fix"]
    run([str(BIN / "ruff"), words[1], *dry, *options, "tests/test_development_doc.py"])


def script(words: list[str]) -> None:
    """The script is there and has these options."""
    assert (ROOT / words[1]).is_file()
    known = run([sys.executable, words[1], "--help"])
    for option in [word for word in words[2:] if word.startswith("-")]:
        assert re.search(rf"{option}\b", known), f"{words[1]} has no {option}"


def sim(words: list[str]) -> None:
    """The first virtual second of it."""
    start = words.index("dhtcrawl")
    variables = dict(word.split("=", 1) for word in words[:start])
    few = ["--seeds", "1", "--jobs", "1", "--duration", "1"]
    assert run([str(BIN / "dhtcrawl"), *words[start + 1 :], *few], **variables)


SHORT_FORMS: list[tuple[str, Callable[[list[str]], None]]] = [
    (r"make one ", one),
    (r"make (setup|check|test|bench|crawl|sim)\b", planned),
    (r"\.venv/bin/ruff (format|check)\b", ruff),
    (r"\.venv/bin/python scripts/\w+\.py", script),
    (r"(\w+=\S+ )?dhtcrawl sim\b", sim),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_runs(command: str) -> None:
    fits = [short for pattern, short in SHORT_FORMS if re.match(pattern, command)]
    assert fits, f"no rule says how to run this quickly: {command}"
    fits[0](shlex.split(command))


def test_a_command_that_is_wrong_is_noticed() -> None:
    for command, short in [
        ("make one T=tests/no_such_test.py", one),
        ("make no-such-target", planned),
        ("python scripts/chaos.py --no-such-option", script),
        ("dhtcrawl sim --no-such-option", sim),
    ]:
        with pytest.raises(AssertionError):
            short(shlex.split(command))


A_FILE_AND_ITS_NOTE = re.compile(r"`([^`]+)`(?: \(([^)]*)\))?")


def there(file: str, note: str) -> str:
    """The file's or folder's name; it is there, and what its note names stands in it."""
    (path,) = [path for path in (ROOT / "dhtcrawl" / file, ROOT / file) if path.exists()]
    for name in re.findall(r"`([^`]+)`", note):
        assert re.search(rf"\b{name}\b", path.read_text("utf-8")), f"{file} has no {name}"
    return file


def test_each_typical_change_has_a_room_files_and_a_test() -> None:
    changes = table(section(PAGE, "Where to change what"), "to")
    assert len(changes) >= 12
    for change, (rooms, begin, tests) in changes.items():
        files = [there(file, note) for file, note in A_FILE_AND_ITS_NOTE.findall(begin)]
        for room in re.findall(r"`([^`]+)`", rooms):
            assert any(file == room or file.startswith(f"{room}/") for file in files), f"{change}: nothing in {room}"
        named = [there(file, note) for file, note in A_FILE_AND_ITS_NOTE.findall(tests)]
        assert named
        assert all(file.startswith("tests/") for file in named), named
