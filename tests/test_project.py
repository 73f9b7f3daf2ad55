"""The project's files agree with one another: lock files, Makefile, README, sizes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import demo
import pytest

import dhtcrawl

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
TARGETS = {
    "help",
    "setup",
    "crawl",
    "test",
    "one",
    "check",
    "bench",
    "bench-smoke",
    "sim",
    "lock",
    "dist",
    "sbom",
    "clean",
}


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
    assert runtime | _needed(extras["dev"]) <= _locked("requirements-dev.lock")


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
    named = set(re.findall(r"^make ([a-z-]+)", _read("README.md"), re.MULTILINE))
    assert named == {"crawl", "test"}
    assert set(re.findall(r"\bmake ([a-z-]+)\b", _read("README.md") + _read("docs/development.md"))) <= TARGETS


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
    env.pop("REQUIRE_ALL_TESTS", None)  # the script sets it where it wants it
    said = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True).stdout
    *said_before, tested = said.splitlines()
    assert [line.strip() for line in said_before[:3]] == [
        "make setup",
        "make -j2 --output-sync=target check-tests check",
        "make bench-smoke",
    ]
    if data_is_there:
        assert said_before[3:] == []
        assert tested.endswith(f"PYTEST_ARGS=--conformance-dir {data} 1")
    else:
        assert said_before[3:] == [
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


def test_make_clean_leaves_nothing_of_the_demo_behind() -> None:
    make = ["make", "--no-print-directory", "-C", str(ROOT), "-n", "clean", "VENV=elsewhere"]
    removed = subprocess.run(make, capture_output=True, text=True, check=True).stdout.splitlines()[0].split()
    assert {"elsewhere", str(demo.OUT), f"{demo.OUT}.node"} <= set(removed)


def test_who_interrupts_make_bench_interrupts_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python, ran = tmp_path / "bin" / "python", tmp_path / "ran"
    # Like a benchmark that clears away and tells what it has measured so far.
    python.write_text(f"#!/bin/sh\ntrap 'exit 0' INT\necho \"$1\" >>{ran}\nkill -INT 0\n")
    python.chmod(0o755)
    (tmp_path / ".ready-dev").touch()
    make = ["make", "--no-print-directory", "-C", str(ROOT), "bench", f"VENV={tmp_path}"]
    subprocess.run(make, capture_output=True, start_new_session=True, check=False)
    assert len(ran.read_text().splitlines()) == 1


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


def _lines(name: str) -> list[str]:
    return [line.strip() for line in _read(name).splitlines() if not line.lstrip().startswith("#")]


def test_the_public_forge_tries_every_python_that_is_supported() -> None:
    project = tomllib.loads(_read("pyproject.toml"))["project"]
    (matrix,) = re.findall(r"^ +python: \[(.*)\]$", _read(".github/workflows/ci.yml"), re.MULTILINE)
    tried = [version.strip('" ') for version in matrix.split(",")]
    supported = [name.split(" :: ")[-1] for name in project["classifiers"] if "Python :: 3." in name]
    assert set(supported) <= set(tried)
    assert project["requires-python"] == f">={tried[0]}"


def test_the_public_forge_compiles_plyvel_where_it_has_no_wheel() -> None:
    steps = _read(".github/workflows/ci.yml")
    assert "matrix.python == '3.13'" in steps
    assert "libleveldb-dev" in steps
    assert "libleveldb-dev" in _read("scripts/setup.sh")


def test_the_hooks_download_nothing_and_run_what_make_check_runs() -> None:
    lines = _lines(".pre-commit-config.yaml")
    assert [line for line in lines if line.startswith("- repo:")] == ["- repo: local"]
    entries = [line.removeprefix("entry: ") for line in lines if line.startswith("entry: ")]
    assert [line for line in lines if line.startswith("language: ")] == ["language: system"] * len(entries)
    assert entries[-1] == "make check"
    checks = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "check"], capture_output=True, text=True, check=True
    ).stdout.replace(" --check", "")
    for entry in entries[:-1]:
        assert entry.removesuffix(" --force-exclude") in checks


def test_no_address_is_made_up() -> None:
    # The project has no address yet: neither its metadata nor its pages name one.
    assert "urls" not in tomllib.loads(_read("pyproject.toml"))["project"]
    pages = [".github/ISSUE_TEMPLATE/bug.md", ".github/pull_request_template.md", "SECURITY.md", "CONTRIBUTING.md"]
    for page in pages:
        assert re.findall(r"[\w.+-]+@[\w-]+\.\w+", _read(page)) == []


def test_a_source_distribution_has_what_a_checkout_has(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.split("/")[1] for name in packed.getnames()}
    tracked = {path.name for path in ROOT.iterdir()} & {
        *("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "Containerfile"),
        "pyproject.toml",
        *("dhtcrawl", "docs", "scripts", "tests", *LOCKS),
        *(".ci", ".github", ".editorconfig", ".gitignore", ".pre-commit-config.yaml"),
    }
    assert len(tracked) == 19
    assert names == {*tracked, "PKG-INFO"}


def test_the_wheel_has_all_that_the_package_has(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"dhtcrawl-{dhtcrawl.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("dhtcrawl/")}
        (commands,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt")]
    source = (path for path in (ROOT / "dhtcrawl").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {path.relative_to(ROOT).as_posix() for path in source}
    assert "dhtcrawl = dhtcrawl.__main__:main" in commands


def releases_are_right(changelog: str, version: str) -> bool:
    """Whether `version` is the newest release that has a heading, all have a date, and those before it their commit."""
    unreleased, *releases = changelog.split("\n## ")[1:]
    found = [re.match(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d\n", each) for each in releases]
    newest = not found or (found[0] is not None and found[0][1] == version)
    commits = all(re.search(r"^Released from commit [0-9a-f]{7,40}\.$", each, re.MULTILINE) for each in releases[1:])
    return unreleased.startswith("[Unreleased]\n") and all(found) and newest and commits


def test_the_changelog_has_the_releases_with_date_and_commit() -> None:
    first = "\n## [0.1.0] - 2026-01-01\n\nReleased from commit 1234567.\n"
    for good in (
        first,
        "\n## [0.1.0] - 2026-01-01\n",
        "\n## [0.1.0] - 2026-02-01\n" + first.replace("0.1.0", "0.0.9"),
        "",
    ):
        assert releases_are_right("# Changelog\n\n## [Unreleased]\n" + good, "0.1.0")
    for bad in ("\n## [0.1.0]\n", first.replace("0.1.0", "0.2.0"), first + "\n## [0.0.9] - 2025-01-01\n"):
        assert not releases_are_right("# Changelog\n\n## [Unreleased]\n" + bad, "0.1.0")
    assert releases_are_right(_read("CHANGELOG.md"), dhtcrawl.__version__)


def test_the_image_is_built_from_what_the_locks_pin() -> None:
    lines = _lines("Containerfile")
    copied = [word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    (base,) = {line.split()[1] for line in lines if line.startswith("FROM")}
    assert base.split(":")[1].startswith("3.12-"), "of a version that every dependency has a wheel for"
    assert any("--require-hashes -r requirements.lock" in line for line in lines)
    assert "USER dhtcrawl" in lines
