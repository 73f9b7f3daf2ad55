"""How much an object remembers, without naming where it keeps it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

_CONTAINERS = (dict, list, set, deque)


def entries(thing: object) -> int:
    """How many entries all dicts, lists, sets and deques have that `thing` holds, itself or in objects of dhtcrawl.

    What it reaches through functions, such as a clock that it was given, does
    not count, nor do entries of tuples: those are values.
    """
    count, seen, todo = 0, set(), [thing]
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, _CONTAINERS):
            count += len(each)
        todo.extend(_held(each))
    return count


def _held(thing: Any) -> Iterator[object]:
    if isinstance(thing, dict):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, list | set | deque | tuple):
        yield from thing
    elif type(thing).__module__.startswith("dhtcrawl") and not isinstance(thing, type | FunctionType | MethodType):
        yield from getattr(thing, "__dict__", {}).values()
        for kind in type(thing).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if hasattr(thing, name):
                    yield getattr(thing, name)
