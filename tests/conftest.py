"""What all tests share: the place of the standards' own vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from requirements_plugin import NO_CONFORMANCE_DATA


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` a file's tests share a process, and what it has set up, unless they are shared out."""
    for item in items:
        if item.get_closest_marker("shared_out") is None:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
