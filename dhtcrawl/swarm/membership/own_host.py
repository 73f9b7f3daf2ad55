"""Which of its addresses a node tells the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def own_host(current: str, candidates: Sequence[str], others: Sequence[str]) -> str:
    """The IP address to be told: `current` for as long as it will do.

    `candidates` are the node's own addresses as of now, the best first; `others` those of the other members. A member
    has one address, of one family, and whoever has no address of that family cannot reach it: so the family that most
    of the others have counts first.
    """
    families = [":" in host for host in others]
    usable = [host for host in candidates if (":" in host) in families] or list(candidates)
    if not usable or current in usable:
        return current
    return max(usable, key=lambda host: families.count(":" in host))  # of several the first
