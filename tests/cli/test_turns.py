"""How long nodes that share a core use it in turn. A thread's turns are its own, so each test has one."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from dhtcrawl.cli.turns import TURN_NS, take_long_turns

T = TypeVar("T")
_GETATTR = {"x86_64": 315, "aarch64": 275}[os.uname().machine]  # sched_getattr(2)


def in_a_thread(function: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def turn() -> tuple[int, int]:
    """The policy of this thread, and how long a turn it asks for, in nanoseconds."""
    found = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(_GETATTR, 0, found, len(found), 0) == 0
    _, policy, _, _, _, length, _, _ = struct.unpack("=IIQiIQQQ", found.raw)
    return policy, length


def test_long_turns_are_asked_for_and_threads_that_follow_have_them_too() -> None:
    def taken() -> tuple[bool, tuple[int, int], tuple[int, int]]:
        return take_long_turns(), turn(), in_a_thread(turn)

    known, own, followed = in_a_thread(taken)
    assert known
    assert own == followed
    assert own[0] == os.SCHED_BATCH
    assert own[1] in (TURN_NS, 0), "kernels before Linux 6.12 ignore the length"
    assert turn()[0] == os.SCHED_OTHER, "no other thread's are changed"


def test_the_usual_turns_do_where_the_system_allows_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not in_a_thread(take_long_turns)
    monkeypatch.setattr("sys.platform", "darwin")
    assert not in_a_thread(take_long_turns)


def test_a_machine_whose_number_of_the_call_is_not_known_has_batch_turns_of_the_usual_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dhtcrawl.cli.turns._SETATTR", {})
    assert in_a_thread(lambda: (take_long_turns(), turn()[0])) == (False, os.SCHED_BATCH)
