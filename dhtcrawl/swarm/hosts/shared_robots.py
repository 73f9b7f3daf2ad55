"""Asks the gatekeeper of a host for its robots.txt, and answers as a gatekeeper.

`dhtcrawl.swarm.hosts.robots_table` decides which node fetches and which wait.
"""

from __future__ import annotations

from dhtcrawl.clock import Clock
from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsWait
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.swarm.calls import hosts as calls
from dhtcrawl.swarm.hosts import wire
from dhtcrawl.swarm.hosts.gatekeeper_service import GatekeeperService
from dhtcrawl.swarm.hosts.robots_table import REASK_S, RobotsTable
from dhtcrawl.url import host_of

RETRY_S = 0.5
# Most robots.txt files are shorter; a longer one is asked for a second time, with room for it.
FIRST_BYTES = 14_000
_ASKED_MAX = 3


@loop_state
class SharedRobots:
    """Asks and tells for the fetchers of one node; serves `robots_ask` and `robots_tell`."""

    def __init__(
        self, peers: Peers, registry: CallRegistry, clock: Clock, office: GatekeeperService, ttl_s: float
    ) -> None:
        self.desk = RobotsTable(ttl_s)
        self._peers = peers
        self._clock = clock
        self._office = office
        registry.serve(calls.AskRobots, self._on_ask)
        registry.serve(calls.TellRobots, self._on_tell)

    async def ask(self, origin: str, agent: str) -> RobotsAnswer:
        """What to do about the robots.txt of `scheme://host[:port]`, for a product token."""
        host, room = host_of(f"{origin}/"), FIRST_BYTES
        for _ in range(_ASKED_MAX):
            node = self._office.of(host)
            if node is None:
                break
            if node == self._peers.node_id:
                return self.desk.ask(origin, agent, node, self._clock.monotonic())
            args = calls.AskRobots(origin, agent, room)
            reply = await self._peers.call(node, args, reply_bytes_max=room + calls.ROBOTS_HEAD_BYTES)
            answer = None if isinstance(reply, Failure) else wire.robots_answer_of(reply)
            if answer is None:
                break
            if isinstance(answer, RobotsWait):
                return RobotsWait(min(max(answer.after_s, RETRY_S), REASK_S))
            if not isinstance(answer, int):
                return answer
            room = answer
        return RobotsWait(RETRY_S)

    async def tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes) -> None:
        """Tell the verdict of a fetch; None: it failed. If the message is lost, another node fetches once more."""
        node, body = self._office.of(host_of(f"{origin}/")), body[: calls.ROBOTS_BYTES_MAX]
        if node == self._peers.node_id:
            self.desk.tell(origin, agent, node, verdict, body, self._clock.monotonic())
        elif node is not None:
            await self._peers.call(node, calls.TellRobots(origin, agent, verdict.value if verdict else "", body))

    def _on_ask(self, node: bytes, args: calls.AskRobots) -> calls.RobotsAnswered:
        if not self._office.is_ours(host_of(f"{args.origin}/")):
            return calls.RobotsAnswered(moved=True)
        if node not in self._peers.view:
            # It has no claim, nor keeps others from theirs. A newcomer that is not known here yet comes again.
            return wire.robots_answered(RobotsWait(REASK_S), args.body_bytes_max)
        answer = self.desk.ask(args.origin, args.agent, node, self._clock.monotonic())
        return wire.robots_answered(answer, args.body_bytes_max)

    def _on_tell(self, node: bytes, args: calls.TellRobots) -> calls.RobotsTold:
        if not self._office.is_ours(host_of(f"{args.origin}/")):
            return calls.RobotsTold(moved=True)
        verdict = wire.verdict_of(args.verdict)
        body = b"" if verdict is None else args.body
        self.desk.tell(args.origin, args.agent, node, verdict, body, self._clock.monotonic())
        return calls.RobotsTold()
