"""Nodes of a swarm on a virtual loop, and a network between them that is slow, loses and parts.

    world = World()
    nodes = [Node(world, bytes([number]) * 20) for number in range(3)]
    world.join(*world.nodes)
    nodes[1].registry.serve(ReportCrawl, board.on_report)
    answer = await nodes[0].call(nodes[1].node_id, ReportCrawl(crawl_id))

A `Node` is what a part of a node needs of the rest: a store in memory with its
committer, a clock, a registry of calls, and `Peers`. What it asks crosses the
network as the bytes that it would be, and is answered by the other node's
registry, by `handlers` where a test says so, or by `on_request` for messages
that are no calls. Subclasses make the parts that a test is about.

A `World` has the members' view, one for all nodes, and says what the network
does: `latency_s` or `delay_s`, `down`, `closed`, `loses_request`,
`loses_answer`. `said` lists what was sent. Nothing is drawn by chance unless a
test draws it, so a test is the same each time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import CallRegistry, call_of, refused, reply_to
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.frame import HEADER
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Call, Message, Refused, Reply, Request, Result, decode, encode
from dhtcrawl.rpc.tasks.schema import BadArguments, CallArgs, WireMap
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.txn import Txn

T = TypeVar("T")
R = TypeVar("R", bound=WireMap)
N = TypeVar("N", bound="Node")

# The asker's id and the arguments → a map, its class, a refusal, or an awaitable of one.
Handler = Callable[[bytes, dict[str, Any]], Any]

LATENCY_S = 0.01
TIMEOUT_S = 30.0  # of whoever asks without a time
GONE = Failure(FailureKind.TIMEOUT, "no answer")
CLOSED = Failure(FailureKind.CONNECT, "connection refused", sent=False)


def across(message: Message) -> Message:
    """A message as it comes out at the other end."""
    frame = encode(1, message)
    _, back = decode(frame[HEADER.size - 1], frame[HEADER.size :])
    assert back is not None
    return back


class Said(NamedTuple):
    """What one node sent another; `number` counts from 1."""

    asker: bytes
    asked: bytes
    message: Request
    number: int

    @property
    def name(self) -> str:
        """The name of a call; "" for other messages."""
        return self.message.name if isinstance(self.message, Call) else ""


class World(Generic[N]):
    """The nodes in the order of their making, who is a member, and the network."""

    def __init__(self, *, latency_s: float = LATENCY_S) -> None:
        self.nodes: dict[bytes, N] = {}
        self.view = View([])
        self.said: list[Said] = []
        self.delay_s: Callable[[], float] = lambda: latency_s  # of the next message, one way
        self.down: set[bytes] = set()  # from whom and to whom nothing comes
        self.closed: set[bytes] = set()  # to whom no connection comes about
        self.loses_request: Callable[[Said], bool] = lambda said: False
        self.loses_answer: Callable[[Said], bool] = lambda said: False
        self.after: Callable[[], None] = lambda: None  # called when a message was handled
        self.failures = 0  # requests without an answer
        self.group: asyncio.TaskGroup | None = None  # where handlers run

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    # Members

    def join(self, *ids: bytes, state: MemberState = MemberState.ACTIVE) -> None:
        """They are members from now on, in this state."""
        others = [member for member in self.view.members if member.id not in ids]
        self.view = View([*others, *(Member(each, ("10.0.0.1", 1), state) for each in ids)])

    def become(self, node: bytes, state: MemberState) -> None:
        """A member has another state."""
        self.view = View(replace(each, state=state) if each.id == node else each for each in self.view.members)

    def leave(self, node: bytes) -> None:
        """It is no member any more."""
        self.view = View(member for member in self.view.members if member.id != node)

    # What was said

    def calls(self, name: str) -> list[Said]:
        """The calls of this name, in order."""
        return [said for said in self.said if said.name == name]

    def args(self, name: str) -> list[dict[str, Any]]:
        """The arguments of the calls of this name, in order."""
        return [said.message.args for said in self.said if isinstance(said.message, Call) and said.name == name]

    # The network

    async def carry(self, asker: bytes, asked: bytes, message: Request, timeout_s: float | None) -> Answer | Failure:
        """What comes back of a request, as the asker's transport reports it."""
        request = across(message)
        assert isinstance(request, Request)
        said = Said(asker, asked, request, len(self.said) + 1)
        self.said.append(said)
        reply = await self.trip(said, TIMEOUT_S if timeout_s is None else timeout_s, self._answer)
        if isinstance(reply, Failure):
            return reply
        if not isinstance(reply, Refused | Ack):
            assert len(encode(1, reply)) <= getattr(message, "reply_bytes_max", 1 << 20)
        back = across(reply)
        if isinstance(back, Refused):
            return refused(back)
        assert isinstance(back, Answer)
        return back

    async def trip(self, said: Said, timeout_s: float, answer: Callable[[Said], Awaitable[T]]) -> T | Failure:
        """There and back: what `answer` says, or why nothing came."""
        if said.asker == said.asked:
            return await answer(said)
        ends_at = self.now + timeout_s
        await asyncio.sleep(self.delay_s())
        if said.asked in self.closed:
            return CLOSED
        if {said.asker, said.asked} & self.down or self.loses_request(said):
            return await self._nothing(ends_at)
        try:
            async with asyncio.timeout_at(ends_at):
                reply = await self._handled(answer(said))
        except TimeoutError:
            return await self._nothing(ends_at)
        self.after()
        await asyncio.sleep(self.delay_s())
        return await self._nothing(ends_at) if self.loses_answer(said) else reply

    async def _answer(self, said: Said) -> Reply:
        return await self.nodes[said.asked].answer(said.asker, said.message)

    async def _handled(self, answering: Awaitable[T]) -> T:
        """A handler's answer; with a group it goes on when the asker has given up, as in the real thing."""
        if self.group is None:
            return await answering
        return await asyncio.shield(self.group.create_task(_as_coroutine(answering)))

    async def _nothing(self, ends_at: float) -> Failure:
        await asyncio.sleep(ends_at - self.now)
        self.failures += 1
        return GONE

    async def until(self, condition: Callable[[], bool], within_s: float = 300.0) -> None:
        """Let time pass until something is so; fail if it is not in time."""
        ends_at = self.now + within_s
        while not condition():
            assert self.now < ends_at, f"not within {within_s} s"
            await asyncio.sleep(0.01)


async def _as_coroutine(answering: Awaitable[T]) -> T:
    return await answering


async def answered(handler: Handler, asker: bytes, args: dict[str, Any]) -> Reply:
    """What a handler of maps comes to, as a registry has it."""
    try:
        value = handler(asker, args)
        value = await value if inspect.isawaitable(value) else value
    except BadArguments as error:
        return Refused("bad-args", error.field)
    if isinstance(value, Refused):
        return value
    return Result(value.to_map() if isinstance(value, WireMap) else value)


class CountingCommitter(LoopCommitter):
    """Counts what is submitted."""

    submitted = 0

    def submit(self, function: Callable[[Txn], T]) -> asyncio.Future[T]:
        self.submitted += 1
        return super().submit(function)


class Node:
    """One node of a world: its store, its clock, the calls that it answers, and the others as `Peers`."""

    def __init__(self, world: World[Any], node: bytes) -> None:
        self.node_id = node
        self.world = world
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.engine = MemoryEngine()
        self.runner = GroupRunner(self.engine, sync=False)
        self.committer = CountingCommitter(self.runner)
        self.registry = CallRegistry()
        self.handlers: dict[str, Handler] = {}  # what it answers to calls of a name, whatever is registered
        self.own_view: View | None = None  # the members as this node sees them; None: as they are
        world.nodes[node] = self

    @property
    def view(self) -> View:
        return self.world.view if self.own_view is None else self.own_view

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        """As `Peers` has it."""
        answer: Answer | Failure = await self.world.carry(self.node_id, node, message, timeout_s)
        return answer

    async def call(
        self, node: bytes, args: CallArgs[R], *, timeout_s: float | None = None, reply_bytes_max: int | None = None
    ) -> R | Failure:
        """As `Peers` has it."""
        timeout_s = args.terms.timeout_s if timeout_s is None else timeout_s
        return reply_to(args, await self.world.carry(self.node_id, node, call_of(args, reply_bytes_max), timeout_s))

    async def answer(self, asker: bytes, message: Message) -> Reply:
        """What this node says to a request."""
        if not isinstance(message, Call):
            return await self.on_request(asker, message)
        if message.name in self.handlers:
            return await answered(self.handlers[message.name], asker, message.args)
        async with asyncio.TaskGroup() as group:
            reply = self.registry.answer(asker, message, group)
        return await reply if isinstance(reply, asyncio.Future) else reply

    async def on_request(self, asker: bytes, message: Message) -> Reply:
        """What it says to what is no call."""
        raise AssertionError(f"nobody expects {message!r}")
