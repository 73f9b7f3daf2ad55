"""Which nodes an owner may ask for a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dhtcrawl.keyspace import host_key, placement
from dhtcrawl.policy.seam import Policy, Task
from dhtcrawl.rpc.peers import Peers
from dhtcrawl.rpc.view import MemberState


class Candidates:
    """Of one crawl. In a large swarm they are those near the key, or the host where the policy keeps hosts together."""

    def __init__(self, peers: Peers, policy: Policy) -> None:
        self._peers = peers
        self._policy = policy
        self._refuses: dict[bytes, float] = {}  # until when a node is not asked

    def avoid(self, node: bytes, until: float) -> None:
        """Ask it nothing before that time."""
        self._refuses[node] = until

    def willing(self, tasks: Iterable[Task], now: float) -> Callable[[Task], Sequence[bytes]]:
        """Of those near each of these tasks, whoever is not to be avoided."""
        near = self._near(tasks)
        self._refuses = {node: until for node, until in self._refuses.items() if until > now}
        if not self._refuses:
            return near
        refuses = frozenset(self._refuses)
        return lambda task: [node for node in near(task) if node not in refuses]

    def of(self, key: bytes, host: str) -> Sequence[bytes]:
        """Whoever may be asked for one task, be it to be avoided now."""
        task = Task(key, host)
        return self._near([task])(task)

    def _near(self, tasks: Iterable[Task]) -> Callable[[Task], Sequence[bytes]]:
        view, most = self._peers.view, self._policy.candidates_max
        nodes, by_host = view.answering, self._policy.pinned
        if len(nodes) <= most:
            return lambda task: nodes
        places = {task.key: host_key(task.host) if by_host else placement(task.key) for task in tasks}
        near = {place: view.closest(place, most) for place in dict.fromkeys(places.values())}
        there = MemberState.ACTIVE
        found = {place: [each.id for each in members if each.state is there] for place, members in near.items()}
        return lambda task: found[places[task.key]]
