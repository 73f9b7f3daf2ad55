"""One fetch of a robots.txt for the swarm: asking the gatekeeper of its host, and answering as one.

See `dhtcrawl.swarm.hosts.robots_table` for who fetches and who waits.
"""

from __future__ import annotations

from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsWait
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.rpc.peers.port import BAD_ARGUMENTS, CallRegistry, CallValue, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.swarm.hosts import wire
from dhtcrawl.swarm.hosts.gatekeeper_service import GatekeeperService
from dhtcrawl.swarm.hosts.robots_table import RobotsTable
from dhtcrawl.url import host_of

TIMEOUT_S = 10.0
RETRY_S = 0.5
# Most robots.txt files are shorter; a longer one is asked for a second time, with room for it.
FIRST_BYTES = 14_000
_HEAD_BYTES = 1024  # what an answer has besides the body
_ASKED_MAX = 3


class SharedRobots:
    """Serves `robots_ask` and `robots_tell`, and asks."""

    def __init__(
        self, peers: Peers, registry: CallRegistry, clock: Clock, office: GatekeeperService, ttl_s: float
    ) -> None:
        self.desk = RobotsTable(ttl_s)
        self._peers = peers
        self._clock = clock
        self._office = office
        registry.register("robots_ask", self._on_ask)
        registry.register("robots_tell", self._on_tell)

    async def ask(self, origin: str, agent: str) -> RobotsAnswer:
        """What to do about the robots.txt of `scheme://host[:port]`, for a product token."""
        host, room = host_of(f"{origin}/"), FIRST_BYTES
        for _ in range(_ASKED_MAX):
            node = self._office.of(host)
            if node is None:
                break
            if node == self._peers.node_id:
                return self.desk.ask(origin, agent, node, self._clock.monotonic())
            args = {"origin": origin, "agent": agent, "body_bytes_max": room}
            value = await self._peers.call(
                node, "robots_ask", args, timeout_s=TIMEOUT_S, reply_bytes_max=room + _HEAD_BYTES
            )
            answer = None if isinstance(value, Failure) else wire.read_robots_answer(value)
            if answer is None:
                break
            if not isinstance(answer, int):
                return answer
            room = answer
        return RobotsWait(RETRY_S)

    async def tell(self, origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes) -> None:
        """What came of a fetch; None: nothing. What gets lost is fetched once more, by another node."""
        node, body = self._office.of(host_of(f"{origin}/")), body[: wire.ROBOTS_BYTES_MAX]
        if node == self._peers.node_id:
            self.desk.tell(origin, agent, node, verdict, body, self._clock.monotonic())
        elif node is not None:
            args = wire.robots_told(origin, agent, verdict, body)
            await self._peers.call(node, "robots_tell", args, timeout_s=TIMEOUT_S)

    def _on_ask(self, node: bytes, args: dict[str, Any]) -> CallValue:
        subject, room = wire.robots_subject(args), args.get("body_bytes_max")
        if subject is None or not isinstance(room, int):
            return BAD_ARGUMENTS
        if not self._office.is_ours(host_of(f"{subject[0]}/")):
            return wire.MOVED
        return wire.robots_answer(self.desk.ask(*subject, node, self._clock.monotonic()), room)

    def _on_tell(self, node: bytes, args: dict[str, Any]) -> CallValue:
        subject, told = wire.robots_subject(args), wire.read_robots_told(args)
        if subject is None or told is None:
            return BAD_ARGUMENTS
        if not self._office.is_ours(host_of(f"{subject[0]}/")):
            return wire.MOVED
        self.desk.tell(*subject, node, *told, self._clock.monotonic())
        return {}
