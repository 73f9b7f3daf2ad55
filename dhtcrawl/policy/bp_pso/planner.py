"""`bp_pso` at the coordinator: from what the nodes are and did, how the next tasks are split between them.

    report of a node    vector     cores, mhz, memory_bytes, net_bytes_per_s, disk_bytes_per_s, as it measured them
                        batches    (n, seconds) of the last ones that it finished
                        rate       pages a second while it had work
                        open       tasks that it owns and that no node has yet
                        finite     whether there will be no others
    table               shares     node → a positive number; with `finite` they are whole numbers of tasks, nearly
                        machines   node → its vector, but for what came over the network
                        made       model      rates, net or paper: what predicted how long each node takes
                                   samples    batches that it was made from
                                   error      of that model on batches that it had not seen, if there are any
                                   errors     model → the same, of all that were tried
                                   plans      model → how many plans of this crawl it has made

`mode` chooses the model: `rates`; `net`; `paper` (the paper's net, and its
particles); `auto`: the net where its error is clearly less than that of rates,
otherwise rates. Until there are enough batches to learn from, and where a node
has no vector, rates serve in every mode, and `made` says so. `exact` is an older
name of `net`; `pso` splits by particles with repair what the net predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from dhtcrawl.errors import ConfigError
from dhtcrawl.policy.bp_pso.damping import damped, is_other
from dhtcrawl.policy.seam import Planner, number_in

if TYPE_CHECKING:
    import numpy as np

    from dhtcrawl.policy.bp_pso.models import Batches, Model
    from dhtcrawl.policy.bp_pso.split import Array, Counts, Times

VECTOR = ("cores", "mhz", "memory_bytes", "net_bytes_per_s", "disk_bytes_per_s")
# The most that came over the network grows while a crawl goes on: it is no trait of the machine.
MACHINE = tuple(name for name in VECTOR if name != "net_bytes_per_s")
SAMPLES_MIN = 24  # to train a net
BATCHES_MAX = 50  # of each node, the latest
# What is beyond these no node has done; a net that learned from it would predict what is no number.
PAGES_MAX, SECONDS_MIN, SECONDS_MAX = 1e7, 1e-3, 1e5
TASKS_A_NODE = 100  # where it is not known how many there are
# A plan that is not better by this is not worth the tasks that it moves.
BETTER = 1.1
SHARE_MIN = 0.01  # of the mean: who gets nothing is never measured again
# A net has to be better than rates by a tenth, on at least so many batches: otherwise chance would choose.
BEATS, HELD_MIN = 0.9, 8
MODES = ("auto", "rates", "net", "paper", "exact", "pso")
NET_MODES = ("net", "exact", "pso")
MODELS = ("rates", "net", "paper")
EXTRA = "needs numpy and scipy on the node that coordinates; there: pip install numpy scipy"


class Made(NamedTuple):
    """A model of all nodes, and what is known of it."""

    model: Model
    name: str  # one of MODELS
    samples: int
    errors: Mapping[str, float]  # model → its error on held-out batches

    def told(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """As the table has it; `before` is the last table."""
        earlier = _map(_map(before, "made"), "plans")
        plans = {name: int(_number(earlier, name)) for name in MODELS if _number(earlier, name)}
        plans[self.name] = plans.get(self.name, 0) + 1
        errors = {name: round(error, 4) for name, error in self.errors.items()}
        told = {"model": self.name, "samples": self.samples, "errors": errors, "plans": plans}
        return told | ({"error": errors[self.name]} if self.name in errors else {})


class Split(Planner):
    """Needs numpy and scipy."""

    wants = ("vector", "batches", "rate", "open", "finite")

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        ids = sorted(nodes)
        try:
            import numpy as np

            from dhtcrawl.policy.bp_pso.models import times_of
        except ImportError as error:
            raise ConfigError(f"crawl.policy: bp-pso {EXTRA}") from error
        # By the nodes, so that the same reports bring the same plan.
        rng = np.random.default_rng(int.from_bytes(sha256(b"".join(ids)).digest()[:8], "big"))
        made = self._made(ids, nodes, rng)
        if made is None:
            return {}
        known = sum(int(_number(nodes[node], "open")) for node in ids)
        total = known or TASKS_A_NODE * len(ids)
        times = times_of(made.model, len(ids))
        counts = self._split(times, total, len(ids), rng)
        if not self._replaces(before, made.name) and _is_good_enough(before, ids, times, counts, total):
            return dict(before)
        least = SHARE_MIN * total / len(ids)
        shares = {node: max(float(count), least) for node, count in zip(ids, counts, strict=True)}
        machines = {node: _machine(nodes[node]) for node in ids}
        if self._mode != "paper":
            shares = _in_steps(before, shares, machines, total)
        return {
            "shares": shares,
            "finite": bool(known) and all(nodes[node].get("finite") is True for node in ids),
            "machines": machines,
            "made": made.told(before),
        }

    @property
    def _mode(self) -> str:
        return self.options.get("mode", "auto")

    def _replaces(self, before: Mapping[str, Any], model: str) -> bool:
        """Whether the last plan was made while the model that was asked for could not make one, and now it can."""
        wanted = "paper" if self._mode == "paper" else "net"
        return self._mode in (*NET_MODES, "paper") and model == wanted != _map(before, "made").get("model")

    def _made(
        self, ids: Sequence[bytes], nodes: Mapping[bytes, Mapping[str, Any]], rng: np.random.Generator
    ) -> Made | None:
        """The model that this plan is to be made by; None where nothing is known of any node."""
        import numpy as np

        from dhtcrawl.policy.bp_pso import models

        rates = np.array([_number(nodes[node], "rate") for node in ids])
        if not rates.any():
            return None
        vectors = np.array([[_number(_map(nodes[node], "vector"), name) for name in VECTOR] for node in ids])
        batches = _all_batches([nodes[node] for node in ids]).latest(models.SAMPLES_MAX)
        learn, held = batches.parted()
        errors = {"rates": models.error_of(models.RatesModel.of(learn, len(ids)), held)} if len(held) else {}
        name = "paper" if self._mode == "paper" else "net"
        if self._mode == "rates" or len(batches) < SAMPLES_MIN or not vectors.all():
            return Made(models.RatesModel(rates), "rates", len(batches), errors)
        if len(held):
            errors[name] = models.error_of(models.learned(name, vectors, learn, rng), held)
        if self._mode == "auto" and (len(held) < HELD_MIN or errors[name] > BEATS * errors["rates"]):
            return Made(models.RatesModel(rates), "rates", len(batches), errors)
        return Made(models.learned(name, vectors, batches, rng), name, len(batches), errors)

    def _split(self, times: Times, total: int, count: int, rng: np.random.Generator) -> Counts:
        from dhtcrawl.policy.bp_pso.pso import paper_pso, repaired_pso
        from dhtcrawl.policy.bp_pso.split import exact_split

        if self._mode == "pso":
            return repaired_pso(times, total, count, rng)
        return paper_pso(times, total, count, rng) if self._mode == "paper" else exact_split(times, total, count)


def _is_good_enough(before: Mapping[str, Any], ids: Sequence[bytes], times: Times, counts: Counts, total: int) -> bool:
    """Whether the last plan, for the same nodes, would end not much later."""
    import numpy as np

    from dhtcrawl.policy.bp_pso.split import largest_remainder

    shares: Array = np.array([number_in(before, "shares", node, 0.0) for node in ids])
    if not shares.all() or len(_map(before, "shares")) != len(ids):
        return False
    return float(times(largest_remainder(shares, total)).max()) <= BETTER * float(times(counts).max())


def _in_steps(
    before: Mapping[str, Any], shares: Mapping[bytes, float], machines: Mapping[bytes, Mapping[str, float]], total: int
) -> dict[bytes, float]:
    """The shares, of `total` tasks, that the last plan allows."""
    earlier = {node: share for node in _map(before, "shares") if (share := number_in(before, "shares", node, 0.0))}
    if not earlier.keys() & shares.keys():
        return dict(shares)
    were = _map(before, "machines")
    changed = [node for node, vector in machines.items() if is_other(vector, _machine({"vector": were.get(node)}))]
    whole = sum(earlier.values())
    found = damped({node: share / whole for node, share in earlier.items()}, shares, changed)
    return {node: share * total for node, share in found.items()}


def _machine(report: Mapping[str, Any]) -> dict[str, float]:
    """What is known of the machine, by name."""
    vector = _map(report, "vector")
    return {name: value for name in MACHINE if (value := _number(vector, name))}


def _map(row: Mapping[str, Any], name: str) -> Mapping[Any, Any]:
    found = row.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(row: Mapping[str, Any], name: str) -> float:
    """A positive number, or 0."""
    value = row.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15
    return float(value) if good else 0.0  # type: ignore[arg-type]


def _all_batches(reports: Sequence[Mapping[str, Any]]) -> Batches:
    import numpy as np

    from dhtcrawl.policy.bp_pso.models import Batches

    rows = [(place, n, seconds) for place, report in enumerate(reports) for n, seconds in _batches(report)]
    whose, pages, seconds = zip(*rows, strict=True) if rows else ((), (), ())
    return Batches(np.array(whose, np.int64), np.array(pages, float), np.array(seconds, float))


def _batches(report: Mapping[str, Any]) -> list[tuple[float, float]]:
    rows = report.get("batches")
    found = rows[-BATCHES_MAX:] if isinstance(rows, list | tuple) else ()
    numbers = (({"n": row[0], "s": row[1]}) for row in found if isinstance(row, list | tuple) and len(row) == 2)
    pairs = ((_number(each, "n"), _number(each, "s")) for each in numbers)
    return [(n, seconds) for n, seconds in pairs if 1 <= n <= PAGES_MAX and SECONDS_MIN <= seconds <= SECONDS_MAX]
