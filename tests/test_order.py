"""In which order a parallel run takes files and tests."""

from __future__ import annotations

from harness.order import LONGEST, in_order


def test_the_longest_comes_first_then_processes_and_simulations_take_turns_and_quick_ones_come_last() -> None:
    e2e, sim, quick = (
        ["tests/e2e/a.py", "tests/e2e/b.py"],
        ["tests/sim/c.py::d", "tests/sim/e.py", "tests/sim/f.py"],
        "tests/g.py",
    )
    assert in_order([quick, *e2e, LONGEST, *sim]) == [LONGEST, e2e[0], sim[0], e2e[1], sim[1], sim[2], quick]


def test_every_unit_is_taken_once_and_quick_ones_stay_as_they_were() -> None:
    units = [f"tests/{room}/{name}.py" for room in ("cli", "e2e", "sim", "web") for name in "zyx"]
    ordered = in_order(units)
    assert sorted(ordered) == sorted(units)
    assert [unit for unit in ordered if "cli" in unit or "web" in unit] == [*units[:3], *units[-3:]]
