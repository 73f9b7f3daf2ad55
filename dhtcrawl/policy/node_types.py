"""Which node is of which type, by the label `type` that it was started with: owners learn it with the plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dhtcrawl.policy.seam import Planner

TABLE = "types"  # where the table has them, by node
_LABELS = "labels"


class Types(Planner):
    """The types of all nodes, beside what another planner has to say."""

    def __init__(self, options: Mapping[str, str] | None = None, beside: Planner | None = None) -> None:
        super().__init__(options)
        self._beside = beside
        wanted = () if beside is None else beside.wants
        self.wants = (_LABELS, *(name for name in wanted if name != _LABELS))

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        table = {} if self._beside is None else self._beside.plan(nodes, before, now)
        known = types_in(before)
        labels = {node: report.get(_LABELS) for node, report in nodes.items()}
        # Who has not reported to a new coordinator yet is what the one before knew.
        said = {node: row.get("type") if isinstance(row, Mapping) else known.get(node) for node, row in labels.items()}
        types = {node: kind for node, kind in said.items() if isinstance(kind, str)}
        # Where there is no new plan beside the types, the last one serves.
        return {**(table or before), TABLE: types}


def types_in(table: Mapping[str, Any]) -> Mapping[bytes, object]:
    """The types in a table that came over the wire, where anything may be missing or wrong; by node."""
    types = table.get(TABLE)
    return types if isinstance(types, Mapping) else {}
