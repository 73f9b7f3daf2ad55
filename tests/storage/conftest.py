"""A store of one node, and what is gathered of several, new for each test."""

from __future__ import annotations

import pytest
from storage.stores import Store
from storage.swarm_stores import Collection


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def collection() -> Collection:
    return Collection()
