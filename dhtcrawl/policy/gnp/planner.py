"""`gnp` at the coordinator: coordinates of nodes and sites from the times that the nodes measured.

report of a node    rtts     node → seconds, of the members that it talks to
                    probes   host → seconds to the first byte of a small request, of sites that it was to time
table               nodes    node → a point, of those that were measured from more than one other
                    sites    host → a point, of those that `SIGHTS_MIN` nodes with a point have measured
                    landmarks  nodes that time each site, where landmarks place
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from hashlib import sha256
from heapq import nsmallest
from itertools import islice
from math import dist
from typing import Any

from dhtcrawl.errors import ConfigError
from dhtcrawl.policy.seam import PLAN_TABLE_BYTES_MAX, Planner

TOP = 3  # of the nodes nearest to a site
Place = tuple[float, ...]

SIGHTS_MIN = 3  # measurements of a site: with fewer its place is a guess
PAIRS_MAX = 100_000
# Vivaldi goes through the pairs again and again, fewer times where there are more: of 90 nodes and of 1,000 in some
# seconds. A node has moved a few hundred times then, after which its place is hardly off by less.
SAMPLES_MAX = 500_000
FARTHER = 1.25  # so many times as far as another, the first node of a site is not its nearest any more
# Of a table, packed: a point has a float of nine bytes for each dimension.
NODE_BYTES, SITE_BYTES, OTHER_BYTES = 72, 52, 1024
SPACES = ("vivaldi", "landmarks")
TOGETHER = 500  # sites whose places are found at once
EXTRA = "needs numpy on the node that coordinates; there: pip install numpy"


class Atlas(Planner):
    """Needs numpy."""

    wants = ("rtts", "probes")

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        try:
            import numpy as np

            from dhtcrawl.policy.gnp.landmarks import by_landmarks
            from dhtcrawl.policy.gnp.space import ROUNDS, embed, vivaldi
        except ImportError as error:
            raise ConfigError(f"crawl.policy: gnp {EXTRA}") from error
        ids = sorted(nodes)
        index = {node: number for number, node in enumerate(ids)}
        pairs, rtts = _between(nodes, index)
        if not pairs:
            return {}
        rng = np.random.default_rng(int.from_bytes(sha256(b"".join(ids)).digest()[:8], "big"))
        found = by_landmarks(pairs, rtts, len(ids), rng) if self.options.get("space") == "landmarks" else None
        if found is None:
            rounds = min(ROUNDS, max(SAMPLES_MAX // len(pairs), 1))
            spread = vivaldi(np.array(pairs), np.array(rtts), len(ids), rng, rounds=rounds)
            found = spread, _measured(pairs, len(ids)), []
        points, placed, marks = found
        sights = _sights(nodes, index, placed)
        sites: dict[str, list[float]] = {}
        for hosts in _alike(sights, PLAN_TABLE_BYTES_MAX - OTHER_BYTES - NODE_BYTES * len(placed)):
            who = np.array([[number for number, _ in sights[host]] for host in hosts])
            took = np.array([[seconds for _, seconds in sights[host]] for host in hosts])
            sites |= zip(hosts, embed(points[who], took, rng).tolist(), strict=True)
        places = {node: points[index[node]].tolist() for node in ids if index[node] in placed}
        if _serves(before, places, sites):
            return dict(before)
        return {"nodes": places, "sites": sites, "landmarks": [ids[mark] for mark in marks]}


def _between(
    nodes: Mapping[bytes, Mapping[str, Any]], index: Mapping[bytes, int]
) -> tuple[list[tuple[int, int]], list[float]]:
    """Pairs of nodes by their numbers, and the seconds that each pair measured.

    Of `PAIRS_MAX` that nodes have measured, each node has as many. They are the first by their ids, at every node:
    landmarks are to be measured from each other.

    Where only one of two has measured the other, as while not all have reported, it counts for both: a sample moves the
    first of its pair, and who is the first of none would stay anywhere.
    """
    found: dict[tuple[int, int], float] = {}
    most = max(PAIRS_MAX // max(len(index), 1), 2)
    for node, number in index.items():
        known = sorted(_times(nodes[node], "rtts", bytes).items())
        there = ((index[other], seconds) for other, seconds in known if other in index and other != node)
        found |= {(number, other): seconds for other, seconds in islice(there, most)}
    for (one, other), seconds in list(found.items()):
        found.setdefault((other, one), seconds)
    return list(found), list(found.values())


def _measured(pairs: Sequence[tuple[int, int]], count: int) -> set[int]:
    """Those of `count` nodes that were measured from more than one other, where there are more."""
    others: dict[int, set[int]] = {}
    for one, other in pairs:
        others.setdefault(one, set()).add(other)
        others.setdefault(other, set()).add(one)
    return {node for node, seen in others.items() if len(seen) >= min(2, count - 1)}


def _sights(
    nodes: Mapping[bytes, Mapping[str, Any]], index: Mapping[bytes, int], placed: Container[int]
) -> dict[str, list[tuple[int, float]]]:
    """For each site the nodes that have a place and measured it, by their numbers, and the seconds it took."""
    sights: dict[str, list[tuple[int, float]]] = {}
    for node, number in index.items():
        for host, seconds in _times(nodes[node], "probes", str).items():
            if number in placed:
                sights.setdefault(host, []).append((number, seconds))
    return sights


def _alike(sights: Mapping[str, Sequence[object]], room: int) -> list[list[str]]:
    """Sites in groups that were measured equally often, so that a group makes an array; those with a place, that is.

    No more than there is `room` for in a table: which they are is the same as long as the same sites are measured.
    """
    groups: dict[int, list[list[str]]] = {}
    for host, seen in sorted(sights.items()):
        if len(seen) < SIGHTS_MIN:
            continue
        room -= SITE_BYTES + len(host.encode())
        if room < 0:
            break
        of_size = groups.setdefault(len(seen), [[]])
        if len(of_size[-1]) == TOGETHER:
            of_size.append([])
        of_size[-1].append(host)
    return [group for of_size in groups.values() for group in of_size]


def _serves(before: Mapping[str, Any], nodes: Mapping[bytes, Any], sites: Mapping[str, Any]) -> bool:
    """Whether the last table knows the same nodes and sites, and sends each site to the nodes that a new one would."""
    known, placed = places_in(before)
    if known.keys() != nodes.keys() or placed.keys() != sites.keys():
        return False
    return all(_goes_alike(known, placed[host], nodes, place) for host, place in sites.items())


def _goes_alike(known: Mapping[bytes, Any], before: Any, nodes: Mapping[bytes, Any], place: Any) -> bool:
    """Whether a site has the same nearest nodes as before, and the first of them is still about the nearest."""
    one, other = _nearest(known, before), _nearest(nodes, place)
    if set(one) != set(other) or not one:
        return set(one) == set(other)
    return dist(nodes[one[0]], place) <= FARTHER * dist(nodes[other[0]], place)


def places_in(table: Mapping[str, Any]) -> tuple[dict[bytes, Place], dict[str, Place]]:
    """The points of nodes and sites in a table that came over the wire, where they are points of one space."""
    nodes, sites = _places(table.get("nodes"), bytes), _places(table.get("sites"), str)
    sizes = {len(place) for place in [*nodes.values(), *sites.values()]}
    return ({}, {}) if len(sizes) > 1 else (nodes, sites)


def landmarks_in(table: Mapping[str, Any]) -> Sequence[bytes]:
    """The nodes that time each site, in a table that came over the wire."""
    rows = table.get("landmarks")
    return [node for node in rows if isinstance(node, bytes)] if isinstance(rows, list | tuple) else []


def _places(rows: Any, kind: type) -> Any:
    """Points by name, those that are points."""
    found = rows.items() if isinstance(rows, Mapping) else ()
    return {name: tuple(place) for name, place in found if isinstance(name, kind) and _is_place(place)}


def _is_place(place: Any) -> bool:
    return (
        isinstance(place, list | tuple)
        and 0 < len(place) <= 16
        and all(isinstance(each, int | float) and not isinstance(each, bool) and abs(each) < 1e6 for each in place)
    )


def _nearest(nodes: Mapping[bytes, Any], place: Any) -> list[bytes]:
    return nsmallest(TOP, nodes, key=lambda node: (dist(nodes[node], place), node))


def _times(report: Mapping[str, Any], name: str, kind: type) -> dict[Any, float]:
    rows = report.get(name)
    found = rows.items() if isinstance(rows, Mapping) else ()
    return {
        key: float(value)
        for key, value in found
        if isinstance(key, kind) and isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 3600
    }
