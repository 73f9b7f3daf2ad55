"""The project's files agree with one another: lock files, Makefile, README, sizes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import dhtcrawl

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
TARGETS = {"help", "setup", "crawl", "test", "check", "bench", "sim", "lock", "clean"}


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _locked(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", _read(name), re.MULTILINE))


def _needed(requirements: list[str]) -> set[str]:
    names = (re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in names if name is not None}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_holds_versions_and_hashes_and_no_address(lock: str) -> None:
    pinned = r"[a-z0-9-]+==[0-9][\w.+!]*( ; [\w \"'.<>=]+)?( \\)?"
    hashed = r"    --hash=sha256:[0-9a-f]{64}( \\)?"
    odd = [line for line in _read(lock).splitlines() if not re.fullmatch(f"{pinned}|{hashed}|#[^/]*", line)]
    assert odd == []


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads(_read("pyproject.toml"))
    runtime = _needed(project["project"]["dependencies"]) | _needed(project["build-system"]["requires"])
    extras = project["project"]["optional-dependencies"]
    assert runtime - _locked("requirements.lock") == set()
    assert runtime | _needed(extras["dev"]) | _needed(extras["bench"]) <= _locked("requirements-dev.lock")


def test_both_lock_files_pin_the_same_versions() -> None:
    pins = [dict(re.findall(r"^([a-z0-9-]+)==(\S+)", _read(lock), re.MULTILINE)) for lock in LOCKS]
    assert pins[0].items() <= pins[1].items()


def test_every_target_is_explained_by_make_help() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT)], capture_output=True, text=True, check=True
    )
    phony = re.search(r"^\.PHONY: (.*)$", _read("Makefile"), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == TARGETS
    assert {line.split()[1] for line in shown.stdout.splitlines()} == TARGETS


def test_the_commands_of_the_readme_are_targets() -> None:
    named = set(re.findall(r"^make ([a-z]+)", _read("README.md"), re.MULTILINE))
    assert named == {"crawl", "test"}
    assert set(re.findall(r"\bmake ([a-z]+)\b", _read("README.md") + _read("docs/development.md"))) <= TARGETS


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## [Unreleased]" in _read("CHANGELOG.md")
    assert re.fullmatch(r"\d+\.\d+\.\d+", dhtcrawl.__version__)


def test_the_scripts_of_the_project_are_valid_shell() -> None:
    for script in [ROOT / ".ci" / "run", *sorted((ROOT / "scripts").glob("*.sh"))]:
        subprocess.run(["bash", "-n", str(script)], check=True)
