"""Which models made the plans of a crawl, among the counters of the nodes that made them: they add up. Pure.

    plans_net          plans that the model `net` made
    judged_plans_net   of these, those whose model was judged on batches that it had not seen
    plan_error_net     the sum of their errors

A plan says what made it in `made` of its table; a table without it, or with
nonsense in it, counts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_PLANS: Final = re.compile(r"plans_([a-z][a-z-]{0,15})")
_MODEL: Final = re.compile(r"[a-z][a-z-]{0,15}")
_PREFIXES: Final = ("plans_", "judged_plans_", "plan_error_")
MODELS_MAX: Final = 3  # at one node: all counters of a node have to fit into one message


class MadeBy(NamedTuple):
    """What a plan says of itself."""

    model: str
    error: float | None  # the mean of |predicted − taken| / taken on batches that it had not seen; None: not judged
    samples: int


def made_by(table: Mapping[str, Any]) -> MadeBy | None:
    """What a plan's table, which may have come over the wire, says of what made it; None where it says nothing."""
    made = table.get("made")
    model = made.get("model") if isinstance(made, Mapping) else None
    if not isinstance(made, Mapping) or not isinstance(model, str) or not _MODEL.fullmatch(model):
        return None
    samples = made.get("samples")
    known = samples if isinstance(samples, int) and not isinstance(samples, bool) else 0
    return MadeBy(model, _error(made.get("error")), max(known, 0))


def count_plan(counters: dict[str, float], made: MadeBy) -> None:
    """Count a plan; one of a fourth model is left out."""
    if f"plans_{made.model}" not in counters and len(by_model(counters)) >= MODELS_MAX:
        return
    told = {"plans_": 1} if made.error is None else {"plans_": 1, "judged_plans_": 1, "plan_error_": made.error}
    for prefix, more in told.items():
        name = prefix + made.model
        counters[name] = counters.get(name, 0) + more


def counts_plans(name: str) -> bool:
    """Whether a counter with this name is one of these."""
    return name.startswith(_PREFIXES)


def by_model(counters: Mapping[str, int | float]) -> dict[str, dict[str, float | None]]:
    """Of each model `plans`, how many it made, and `error`, the mean of those that were judged; None where none was."""
    found: dict[str, dict[str, float | None]] = {}
    for name, count in sorted(counters.items()):
        model = _PLANS.fullmatch(name)
        if model is not None and count > 0:
            judged = counters.get(f"judged_plans_{model[1]}", 0)
            error = round(counters.get(f"plan_error_{model[1]}", 0.0) / judged, 4) if judged else None
            found[model[1]] = {"plans": int(count), "error": error}
    return found


def in_words(models: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """For people: `net 3 (3.2 % off)`, `rates 2`."""
    return [
        f"{model} {told['plans']}" + ("" if (error := told["error"]) is None else f" ({100 * error:.1f} % off)")
        for model, told in models.items()
    ]


def _error(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if good else None  # type: ignore[arg-type]
