"""Which nodes an owner may ask for a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from dhtcrawl.keyspace import host_key, placement
from dhtcrawl.policy.seam import Policy, Task
from dhtcrawl.rpc.peers import Peers

# Whoever refuses is asked again every few seconds: for a minute it is waited for, where everybody else has failed.
REFUSALS_MAX = 12


class Candidates:
    """Of one crawl. In a large swarm they are those near the key, or the host where the policy keeps hosts together.

    Whoever did not answer lately, or refused, is not asked now. It is waited
    for where all others have failed: it may be the one that reaches the host.
    """

    def __init__(self, peers: Peers, policy: Policy) -> None:
        self._peers = peers
        self._policy = policy
        self._refuses: dict[bytes, float] = {}  # until when a node is not asked
        self._refusals: Counter[bytes] = Counter()  # in a row

    def avoid(self, node: bytes, until: float) -> None:
        """Ask it nothing before that time."""
        self._refuses[node] = until
        self._refusals[node] += 1

    def took(self, node: bytes) -> None:
        """It takes what it is given."""
        self._refusals.pop(node, None)

    def willing(self, tasks: Iterable[Task], now: float) -> Callable[[Task], Sequence[bytes]]:
        """Of those near each of these tasks, whoever may be asked now; nobody, where somebody is to be waited for."""
        near, view = self._near(tasks), self._peers.view
        self._refuses = {node: until for node, until in self._refuses.items() if until > now}
        if not self._refuses and view.active == len(view):
            return near
        away = view.owning.difference(view.answering).union(self._refuses)

        def there(task: Task) -> Sequence[bytes]:
            nodes = near(task)
            found = [node for node in nodes if node not in away]
            if all(node in task.failed for node in found) and any(
                node in away and node not in task.failed and self._waited_for(node) for node in nodes
            ):
                return ()
            return found

        return there

    def of(self, key: bytes, host: str) -> Sequence[bytes]:
        """Whoever may be asked for one task, be it not now."""
        task = Task(key, host)
        return [node for node in self._near([task])(task) if self._waited_for(node)]

    def _waited_for(self, node: bytes) -> bool:
        return self._refusals[node] < REFUSALS_MAX

    def _near(self, tasks: Iterable[Task]) -> Callable[[Task], Sequence[bytes]]:
        view, most = self._peers.view, self._policy.candidates_max
        nodes, by_host = view.owner_ids, self._policy.pinned
        if len(nodes) <= most:
            return lambda task: nodes
        places = {task.key: host_key(task.host) if by_host else placement(task.key) for task in tasks}
        near = {place: view.closest(place, most) for place in dict.fromkeys(places.values())}
        found = {place: [each.id for each in members] for place, members in near.items()}
        return lambda task: found[places[task.key]]
