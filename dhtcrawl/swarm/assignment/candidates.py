"""Which nodes an owner may ask to fetch a task. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from heapq import nsmallest

from dhtcrawl.keyspace import distance, host_key, placement
from dhtcrawl.policy.seam import Policy, PolicyTask
from dhtcrawl.rpc.membership.view import View

# A node that refused is not asked for so long: it does not run the crawl yet, lacks its policy, or is full. Of one that
# has taken nothing yet the first is the likeliest and soon over: it is not asked for as long as it has refused already.
REFUSED_LEAST_S, REFUSED_MOST_S = 0.25, 5.0
# How long a node that refuses is waited for where all others have failed; an older refusal does not count.
PATIENCE_S = 60.0
# Of the candidates for a task in a large swarm at most one in so many is a node that no other can reach.
OUTBOUND_PART = 4


class Candidates:
    """Finds the nodes that may fetch a task of a crawl, by a view.

    In a large swarm these are the ones near the key, or near the host where the
    policy keeps hosts together; of those that own nothing a quarter at most. A node
    that did not answer lately, or refused, is not asked now. Where all others have
    failed it is waited for: it may be the one that reaches the host. A host that one
    type of nodes alone may ask has no other candidates, and none before it is known
    who is of that type.
    """

    def __init__(self, policy: Policy, types: Mapping[str, str]) -> None:
        """`types`, by host: which type of nodes alone may ask it."""
        self._policy = policy
        self._wanted = types
        self._types: Mapping[bytes, object] = {}  # of nodes
        self._refuses: dict[bytes, float] = {}  # until when a node is not asked
        self._took: set[bytes] = set()  # at any time
        self._refused: dict[bytes, tuple[float, float]] = {}  # since when, and when last, without a pause

    def know(self, types: Mapping[bytes, object]) -> None:
        """Learn which node is of which type."""
        self._types = types

    def avoid(self, node: bytes, until: float) -> None:
        """Do not ask a node before `until`."""
        self._refuses[node] = until

    def refused(self, node: bytes, now: float) -> None:
        """Note that a node did not take tasks."""
        since, last = self._refused.get(node, (now, now))
        if now >= last + PATIENCE_S:
            since = now
        self._refused[node] = (since, now)
        new = node not in self._took
        pause_s = min(max(now - since, REFUSED_LEAST_S), REFUSED_MOST_S) if new else REFUSED_MOST_S
        self._refuses[node] = max(now + pause_s, self._refuses.get(node, now))

    def took(self, node: bytes) -> None:
        """Note that a node took tasks."""
        self._took.add(node)
        self._refused.pop(node, None)

    def willing(self, tasks: Iterable[PolicyTask], view: View, now: float) -> Callable[[PolicyTask], Sequence[bytes]]:
        """For each of these tasks, the nodes near it that may be asked now; none where another is to be waited for."""
        near = self._near(tasks, view)
        self._refuses = {node: until for node, until in self._refuses.items() if until > now}
        self._refused = {node: times for node, times in self._refused.items() if now < times[1] + PATIENCE_S}
        if not self._refuses and view.active == len(view):
            return near
        away = view.owning.difference(view.answering).union(self._refuses)

        def there(task: PolicyTask) -> Sequence[bytes]:
            nodes = near(task)
            found = [node for node in nodes if node not in away]
            if all(node in task.failed for node in found) and any(
                node in away and node not in task.failed and self._waited_for(node, now) for node in nodes
            ):
                return ()
            return found

        return there

    def of(self, key: bytes, host: str, view: View, now: float) -> Sequence[bytes]:
        """The nodes that may be asked for one task, now or later."""
        task = PolicyTask(key, host)
        return [node for node in self._near([task], view)(task) if self._waited_for(node, now)]

    def _waited_for(self, node: bytes, now: float) -> bool:
        since, last = self._refused.get(node, (now, now))
        return last < since + PATIENCE_S or now >= last + PATIENCE_S

    def _near(self, tasks: Iterable[PolicyTask], view: View) -> Callable[[PolicyTask], Sequence[bytes]]:
        if not self._wanted:
            return self._near_of_any_type(tasks, view)
        by_type: dict[str, list[PolicyTask]] = {}
        others: list[PolicyTask] = []
        for task in tasks:
            kind = self._wanted.get(task.host)
            (others if kind is None else by_type.setdefault(kind, [])).append(task)
        found = {kind: self._of_type(kind, theirs, view) for kind, theirs in by_type.items()}
        near = self._near_of_any_type(others, view)
        return lambda task: found[self._wanted[task.host]](task) if task.host in self._wanted else near(task)

    def _of_type(self, kind: str, tasks: Iterable[PolicyTask], view: View) -> Callable[[PolicyTask], Sequence[bytes]]:
        nodes = [node for node in (*view.owner_ids, *view.outbound) if self._types.get(node) == kind]
        most = self._policy.candidates_max
        if len(nodes) <= most:
            return lambda task: nodes
        places = self._places(tasks)
        found = {place: nsmallest(most, nodes, key=partial(distance, place)) for place in {*places.values()}}
        return lambda task: found[places[task.key]]

    def _near_of_any_type(self, tasks: Iterable[PolicyTask], view: View) -> Callable[[PolicyTask], Sequence[bytes]]:
        nodes, most = (*view.owner_ids, *view.outbound), self._policy.candidates_max
        if len(nodes) <= most:
            return lambda task: nodes
        places = self._places(tasks)
        few = min(len(view.outbound), most // OUTBOUND_PART)
        found: dict[bytes, list[bytes]] = {}
        for place in dict.fromkeys(places.values()):
            outbound = nsmallest(few, view.outbound, key=partial(distance, place)) if few else []
            found[place] = [each.id for each in view.closest(place, most - few)] + outbound
        return lambda task: found[places[task.key]]

    def _places(self, tasks: Iterable[PolicyTask]) -> dict[bytes, bytes]:
        """Where the nodes of each task lie, by its key."""
        by_host = self._policy.pinned
        return {task.key: host_key(task.host) if by_host else placement(task.key) for task in tasks}
