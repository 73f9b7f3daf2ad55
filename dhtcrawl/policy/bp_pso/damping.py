"""From one plan to the next, a node's share changes by a quarter of itself at most, unless the node changed. Pure.

What is predicted of a node comes from few noisy batches; what it is comes from
its machine. So a plan goes towards what is predicted in steps, and one that was
misled by a few batches is set right by the next before many tasks followed it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

STEP = 0.25
# A machine that differs by less than this from what it was is the same: free memory and disks are measured anew.
SAME = 1.25
_HALVINGS = 60


def damped(before: Mapping[bytes, float], wanted: Mapping[bytes, float], free: Collection[bytes]) -> dict[bytes, float]:
    """The next shares, which sum up to 1, as near to `wanted` as the last ones allow; all shares are positive.

    Nodes that are `free`, or were not there before, have what is wanted. The
    others share the rest: none has more than a quarter more or less of it than
    it had of what they had together.
    """
    total = sum(wanted.values())
    shares = {node: share / total for node, share in wanted.items()}
    bound = [node for node in shares if node in before and node not in free]
    rest, was = sum(shares[node] for node in bound), sum(before[node] for node in bound)
    limits = {node: ((1 - STEP) * rest * before[node] / was, (1 + STEP) * rest * before[node] / was) for node in bound}

    def scaled(by: float) -> dict[bytes, float]:
        return {node: min(max(by * shares[node], low), high) for node, (low, high) in limits.items()}

    # Scaled by the least, all are at their lower limits, and short of the rest; by the most, at their upper ones.
    least, most = 0.0, max((high / shares[node] for node, (_, high) in limits.items()), default=0.0)
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if sum(scaled(middle).values()) < rest:
            least = middle
        else:
            most = middle
    return shares | scaled(most)


def is_other(vector: Mapping[str, float], earlier: Mapping[str, float]) -> bool:
    """Whether a machine changed: a trait is known of both times and differs by more than a quarter."""
    known = [(vector[name], earlier[name]) for name in vector.keys() & earlier.keys()]
    return any(max(one, other) > SAME * min(one, other) for one, other in known)
