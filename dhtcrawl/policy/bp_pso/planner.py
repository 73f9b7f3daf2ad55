"""`bp_pso` at the coordinator: from what the nodes are and did, how the next tasks are split between them.

    report of a node    vector     cores, mhz, memory_bytes, net_bytes_per_s, disk_bytes_per_s, as it measured them
                        batches    (n, seconds) of the last ones that it finished
                        rate       pages a second while it had work
                        open       tasks that it owns and that no node has yet
                        finite     whether there will be no others
    table               shares     node → a positive number; with `finite` they are whole numbers of tasks, nearly

`mode` chooses how: `exact` (a net of logarithms, and bisection), `pso` (the
same net, particles with repair), `paper` (the paper's net and its particles).
Until there are enough batches to learn from, the measured rates serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dhtcrawl.errors import ConfigError
from dhtcrawl.policy.seam import Planner, number_in

if TYPE_CHECKING:
    import numpy as np

    from dhtcrawl.policy.bp_pso.split import Counts, Times

VECTOR = ("cores", "mhz", "memory_bytes", "net_bytes_per_s", "disk_bytes_per_s")
SAMPLES_MIN = 24
BATCHES_MAX = 50  # of each node, the latest
TASKS_A_NODE = 100  # where it is not known how many there are
# A plan that is not better by this is not worth the tasks that it moves.
BETTER = 1.1
SHARE_MIN = 0.01  # of the mean: who gets nothing is never measured again
MODES = ("exact", "pso", "paper")
EXTRA = 'needs numpy and scipy on the node that coordinates; there: pip install "dhtcrawl[policies]"'


class Split(Planner):
    """Needs numpy and scipy."""

    wants = ("vector", "batches", "rate", "open", "finite")

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        ids = sorted(nodes)
        rng, times = self._times(ids, nodes)
        if times is None:
            return {}
        known = sum(int(_number(nodes[node], "open")) for node in ids)
        total = known or TASKS_A_NODE * len(ids)
        counts = self._split(times, total, len(ids), rng)
        if self._is_good_enough(before, ids, times, counts, total):
            return dict(before)
        least = SHARE_MIN * total / len(ids)
        shares = {node: max(float(count), least) for node, count in zip(ids, counts, strict=True)}
        return {"shares": shares, "finite": bool(known) and all(nodes[node].get("finite") is True for node in ids)}

    def _times(
        self, ids: Sequence[bytes], nodes: Mapping[bytes, Mapping[str, Any]]
    ) -> tuple[np.random.Generator, Times | None]:
        try:
            import numpy as np

            from dhtcrawl.policy.bp_pso.nets import LogNet, PaperNet
        except ImportError as error:
            raise ConfigError(f"crawl.policy: bp-pso {EXTRA}") from error
        # By the nodes, so that the same reports bring the same plan.
        rng = np.random.default_rng(int.from_bytes(sha256(b"".join(ids)).digest()[:8], "big"))
        vectors = [[_number(_map(nodes[node], "vector"), name) for name in VECTOR] for node in ids]
        whole = all(all(vector) for vector in vectors)
        rows = [
            ([*vector, n], seconds)
            for node, vector in zip(ids, vectors, strict=True)
            if all(vector)
            for n, seconds in _batches(nodes[node])
        ]
        if whole and len(rows) >= SAMPLES_MIN:
            samples, seconds = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
            net = (PaperNet if self.options.get("mode") == "paper" else LogNet)(samples, seconds, rng)
            resources = np.array(vectors)

            def by_net(counts: Counts) -> Any:
                found = net.predict(np.column_stack([resources, np.maximum(counts, 1)]))
                return np.where(counts > 0, found, 0.0)

            return rng, by_net
        rates = [_number(nodes[node], "rate") for node in ids]
        if not any(rates):
            return rng, None
        # Of whom nothing is known yet, the slowest of the others is expected.
        slowest = min(rate for rate in rates if rate)
        per_page = 1 / np.array([rate or slowest for rate in rates])
        return rng, lambda counts: per_page * counts

    def _split(self, times: Times, total: int, count: int, rng: np.random.Generator) -> Counts:
        from dhtcrawl.policy.bp_pso.pso import paper_pso, repaired_pso
        from dhtcrawl.policy.bp_pso.split import exact_split

        mode = self.options.get("mode", "exact")
        if mode == "pso":
            return repaired_pso(times, total, count, rng)
        return paper_pso(times, total, count, rng) if mode == "paper" else exact_split(times, total, count)

    def _is_good_enough(
        self, before: Mapping[str, Any], ids: Sequence[bytes], times: Times, counts: Counts, total: int
    ) -> bool:
        """Whether the last plan, for the same nodes, would end not much later."""
        import numpy as np

        from dhtcrawl.policy.bp_pso.split import largest_remainder

        shares = np.array([number_in(before, "shares", node, 0.0) for node in ids])
        if not shares.all() or len(_map(before, "shares")) != len(ids):
            return False
        return float(times(largest_remainder(shares, total)).max()) <= BETTER * float(times(counts).max())


def _map(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(row: Mapping[str, Any], name: str) -> float:
    """A positive number, or 0."""
    value = row.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
    return float(value) if good else 0.0  # type: ignore[arg-type]


def _batches(report: Mapping[str, Any]) -> list[tuple[float, float]]:
    rows = report.get("batches")
    found = rows[-BATCHES_MAX:] if isinstance(rows, list | tuple) else ()
    numbers = (({"n": row[0], "s": row[1]}) for row in found if isinstance(row, list | tuple) and len(row) == 2)
    pairs = ((_number(each, "n"), _number(each, "s")) for each in numbers)
    return [(n, seconds) for n, seconds in pairs if n and seconds]
