"""Asks many nodes at once and keeps the answers, so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap

AT_ONCE: Final = 256  # a wave over a thousand members opens no thousand connections
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
R = TypeVar("R", bound=WireMap)


async def ask_all(
    asked: Iterable[Asked], ask: Callable[[Asked], Awaitable[Answer]], at_once: int = AT_ONCE
) -> list[Answer]:
    """The answers of `ask` for all of `asked`, in their order; up to `at_once` are under way."""
    turn = asyncio.Semaphore(at_once)

    async def one(item: Asked) -> Answer:
        async with turn:
            return await ask(item)

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(one(item)) for item in asked]
    return [task.result() for task in asking]


async def call_all(
    peers: Peers, calls: Iterable[tuple[bytes, CallArgs[R]]], *, timeout_s: float | None = None, at_once: int = AT_ONCE
) -> list[R | None]:
    """The answers to calls of nodes, in their order; None where a node fails or does not answer.

    Each call has `timeout_s`, or the time of its terms, from when it is made.
    """

    async def call(made: tuple[bytes, CallArgs[R]]) -> R | None:
        node, args = made
        answer: Any = await peers.call(node, args, timeout_s=timeout_s)
        return None if isinstance(answer, Failure) else answer

    return await ask_all(calls, call, at_once)


async def answers_of(
    peers: Peers, nodes: Iterable[bytes], args: CallArgs[R], *, timeout_s: float | None = None
) -> dict[bytes, R]:
    """The answers of the nodes that gave one to the same call, in the order of `nodes`."""
    asked = list(nodes)
    answers = await call_all(peers, ((node, args) for node in asked), timeout_s=timeout_s)
    return {node: answer for node, answer in zip(asked, answers, strict=True) if answer is not None}
