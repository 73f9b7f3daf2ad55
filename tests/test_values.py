"""Our data classes beside the standard library's: the same, but for when their methods are compiled."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from dhtcrawl import values

# To a type checker both are one.
ours: Any = values.dataclass
theirs: Any = dataclasses.dataclass


def pair(make: Callable[[Any], type]) -> tuple[Any, Any]:
    """What `make` makes of our decorator and of the standard library's."""
    made = make(ours), make(theirs)
    assert made[0] is not made[1]
    return made


def point(decorator: Any, **parameters: bool) -> type:
    @decorator(**parameters)
    class Point:
        """It has a default, a factory and fields that are left out of one thing each."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        seen: int = field(default=0, init=False)
        note: str = field(default="", compare=False)
        secret: str = field(default="s", repr=False)

    return Point


PARAMETERS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"eq": False, "slots": True},
]


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_objects_are_made_shown_compared_and_replaced_as_the_standard_librarys(parameters: dict[str, bool]) -> None:
    results = []
    for cls in pair(lambda decorator: point(decorator, **parameters)):
        first, second = cls(1), cls(x=1, y=2, tags=[], note="other")
        assert first.tags is not second.tags
        with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'x'"):
            cls()
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'seen'"):
            cls(1, seen=3)
        changed = dataclasses.replace(first, x=3)
        shown = [repr(first), repr(changed), cls.__match_args__, cls.kind, dataclasses.asdict(first)]
        same = [first == second, first == changed, first != second, first == 1]
        hashes = [cls.__hash__ is object.__hash__, cls.__hash__ is None]
        names = [each.name for each in dataclasses.fields(cls)]
        results.append((shown, same, hashes, names, hasattr(first, "__dict__"), copy.copy(first).x, changed.seen))
    assert results[0] == results[1]


@pytest.mark.parametrize("slots", [False, True])
def test_what_is_frozen_refuses_changes_and_hashes_by_its_fields(slots: bool) -> None:
    for cls in pair(lambda decorator: decorator(frozen=True, slots=slots)(type("Pair", (), _pair_of_fields()))):
        value = cls("a", 1)
        assert hash(value) == hash(("a", 1))
        assert {value: 1}[cls("a", 1)] == 1
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'left'"):
            value.left = "b"
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'left'"):
            del value.left


def _pair_of_fields() -> dict[str, Any]:
    return {"__annotations__": {"left": "str", "right": "int"}, "__module__": __name__, "__doc__": "Two fields."}


@values.dataclass(frozen=True, slots=True)
class Base:
    """A value with a slot, at the top of the module so that it can be pickled."""

    left: str


@values.dataclass(frozen=True, slots=True)
class Derived(Base):
    """A value that has its base's slot, too, and sees to a third field by itself."""

    right: int = 7
    both: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "both", f"{self.left}{self.right}")


def test_a_derived_value_has_the_fields_of_its_base_and_can_be_pickled() -> None:
    value = Derived("a")
    assert (value.left, value.right, value.both) == ("a", 7, "a7")
    assert value != Base("a")
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


def test_methods_that_a_class_has_itself_stay() -> None:
    @values.dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return "itself"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    assert (repr(Named("a")), Named("a") == Named("b"), hash(Named("a"))) == ("itself", True, 5)


def test_a_subclass_that_is_no_data_class_may_have_other_attributes() -> None:
    class Loose(Base):
        pass

    value: Any = Loose("a")
    value.more = 1
    with pytest.raises(FrozenInstanceError):
        value.left = "b"
    assert value != Base("a")
    assert value == Loose("a")


def test_a_value_that_has_itself_is_shown() -> None:
    @values.dataclass
    class Ring:
        next: Any

    ring = Ring(None)
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")


def test_a_method_is_compiled_at_its_first_call() -> None:
    @values.dataclass(frozen=True, slots=True)
    class Late:
        a: int

    def names() -> list[str]:
        return [vars(Late)[name].__code__.co_filename for name in ("__init__", "__eq__", "__hash__")]

    assert names() == [values.__file__] * 3
    assert Late(1) == Late(1)
    hash(Late(1))
    assert names() == ["<string>"] * 3
