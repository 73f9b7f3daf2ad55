"""The project's files agree with one another: lock files, Makefile, README, sizes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dhtcrawl

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
TARGETS = {"help", "setup", "crawl", "test", "one", "check", "bench", "sim", "lock", "clean"}


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


@pytest.mark.parametrize("data_is_there", [True, False])
def test_the_whole_check_runs_with_or_without_the_conformance_data(tmp_path: Path, data_is_there: bool) -> None:
    for name, body in {"dpkg-query": "printf 'ii '", "make": 'echo "make $* ${REQUIRE_ALL_TESTS-}"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "clone" / ".ci" / "run"
    script.parent.mkdir(parents=True)
    script.write_text(_read(".ci/run"))
    data = tmp_path / "shared" / "conformance"
    if data_is_there:
        data.mkdir(parents=True)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True).stdout
    *said_before, tested = said.splitlines()
    assert [line.strip() for line in said_before[:2]] == ["make setup", "make check"]
    if data_is_there:
        assert said_before[2:] == []
        assert tested.endswith(f"PYTEST_ARGS=--conformance-dir {data} 1")
    else:
        assert said_before[2:] == [
            ".ci/run: ../shared/conformance is not there: the tests that need the conformance data are skipped, "
            "all others run"
        ]
        assert tested.endswith(" but-conformance")


def test_one_test_runs_in_one_process_and_has_to_be_named() -> None:
    make = ["make", "--no-print-directory", "-C", str(ROOT), "-n", "one", f"VENV={sys.prefix}"]
    shown = subprocess.run([*make, "T=tests/test_keyspace.py"], capture_output=True, text=True, check=True).stdout
    (command,) = [line for line in shown.splitlines() if " -m pytest " in line]
    assert command.endswith("tests/test_keyspace.py")
    assert " -n " not in command


def test_another_python_than_the_environment_has_makes_it_anew(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    for stamp in (".ready", ".ready-dev"):
        (tmp_path / stamp).touch()

    def planned(python: str) -> str:
        make = ["make", "--no-print-directory", "-C", str(ROOT), "-n", "setup", f"VENV={tmp_path}"]
        return subprocess.run([*make, f"PYTHON={python}"], capture_output=True, text=True, check=True).stdout

    assert "scripts/setup.sh" not in planned(sys.executable)
    assert "scripts/setup.sh" in planned("python3.99")
