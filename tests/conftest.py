"""What all tests share: the place of the standards' own vectors."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from harness.order import in_order
from harness.policies import Install
from hypothesis import HealthCheck, settings
from requirements_plugin import NO_CONFORMANCE_DATA

from dhtcrawl.cli.main import NEW_OBJECTS_A_COLLECTION
from dhtcrawl.loop_state import check_loop_state, faults
from dhtcrawl.policy.registry import GROUP
from dhtcrawl.sim.loop import VirtualLoop

# Before the marked classes are imported, and for the processes that tests start.
if os.environ.setdefault("DHTCRAWL_CHECK_THREADS", "1") == "1":
    check_loop_state()

# What is ignored here, as under nohup and in the background of a shell, would be by all processes that tests start.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect seldom, as the commands do, and never among modules and tests: it would find nothing there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_A_COLLECTION)


@pytest.fixture(autouse=True)
def _transactions_use_values_only() -> Iterator[None]:
    """No transaction of a test uses what the event loop changes, not even where the error is taken for another."""
    faults.clear()
    yield
    assert faults == []


@pytest.fixture(scope="session")
def conformance_dir(pytestconfig: pytest.Config) -> Path:
    """The directory given by `--conformance-dir`; without it the test skips.

    Raises:
        pytest.UsageError: what is given is not a directory.
    """
    given = pytestconfig.getoption("--conformance-dir")
    if given is None:
        pytest.skip(NO_CONFORMANCE_DATA)
    directory = Path(given)
    if not directory.is_dir():
        raise pytest.UsageError(f"--conformance-dir: {directory} is not a directory")
    return directory


@pytest.fixture(scope="session")
def mutants(pytestconfig: pytest.Config) -> int:
    """How many mutants a test of hostile input tries: `--mutants`; the seed is the test's own."""
    return int(pytestconfig.getoption("--mutants"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` a file's tests share a process, and what it has set up, unless they are shared out."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        alone = item.get_closest_marker("shared_out") is not None
        if not alone:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
        units.setdefault(item.nodeid if alone else item.location[0], []).append(item)
    if hasattr(config, "workerinput"):  # of xdist, whose workers take units in the order in which they stand here
        items[:] = [item for unit in in_order(list(units)) for item in units[unit]]


# The loops a test may run on. Time on the virtual one jumps to the next timer; it has no sockets and no threads.
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "virtual": VirtualLoop,
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A new virtual loop for each test, or those that its marker `loops` names."""
    marker = item.get_closest_marker("loops")
    return {name: LOOPS[name] for name in (marker.args if marker else ["virtual"])}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A package with a module and entry points for policies, as an installer leaves it."""

    def install(module: str, source: str, **points: str) -> None:
        (tmp_path / f"{module}.py").write_text(source, "utf-8")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", "utf-8")
        lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install
