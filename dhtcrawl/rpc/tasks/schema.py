"""Maps on the wire as frozen dataclasses whose fields say what they may hold; without I/O.

    @dataclass(frozen=True, slots=True)
    class Lend(CallArgs[Done]):
        terms: ClassVar[CallTerms] = CallTerms("lend")
        crawl: Annotated[bytes, octets(16)]
        keys: Annotated[tuple[bytes, ...], items(octets(20, 40), most=500)]
        epoch: Annotated[int, integer(0, 2**53)] = 0

`parse` turns a map that came from a peer into a value, or raises `BadArguments`
with the name of the field that is wrong: code that gets a value need not check
it again. A field with a default may be missing, and is left out of the map when
it has that value. Fields that a class does not know are kept in `extra` and go
out again with `to_map`.

A string behind the kind says what the field is for; the tables of
`docs/protocol-calls.md` are made of it. Kinds test types exactly: a truth value
is no integer, and a list is a tuple, as the task plane delivers it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from dhtcrawl.rpc.tasks.messages import Lane

REPLY_BYTES = 16 * 1024  # of an answer, where a call says nothing else
_ABSENT = object()


class BadArguments(ValueError):
    """A field of a map is not what the protocol allows; `field` is its name."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


# -- kinds of values --


class FieldKind:
    """What a value may be: `all_fit` tests one value or more, `says` puts it into words, `read` makes ours of it.

    Values are tested together, their types first and then their bounds, and a list of rows column by column: so a
    function is called once for a list, and not for each of its values.
    """

    __slots__ = ("all_fit", "read", "says")

    def __init__(
        self, says: str, all_fit: Callable[[Sequence[Any]], bool], read: Callable[[Any], Any] | None = None
    ) -> None:
        self.says = says
        self.all_fit = all_fit
        self.read = read


def _are(values: Sequence[Any], kind: type) -> bool:
    return set(map(type, values)) == {kind}


def octets(*widths: int) -> FieldKind:
    """Bytes of one of these widths."""
    allowed = frozenset(widths)
    return FieldKind(
        f"{_either(widths)} bytes", lambda values: _are(values, bytes) and allowed.issuperset(map(len, values))
    )


def octets_up_to(most: int, least: int = 0, *, in_rows_of: int = 1) -> FieldKind:
    """Bytes, `least` to `most` of them; with `in_rows_of` a multiple of that."""
    says = f"{_range(least, most, _size)} bytes" + (f", in rows of {in_rows_of}" if in_rows_of > 1 else "")

    def all_fit(values: Sequence[Any]) -> bool:
        if not _are(values, bytes):
            return False
        lengths = list(map(len, values))
        if not least <= min(lengths) or max(lengths) > most:
            return False
        return in_rows_of == 1 or not any(length % in_rows_of for length in lengths)

    return FieldKind(says, all_fit)


def integer(low: int, high: int) -> FieldKind:
    """An integer, no truth value."""
    says = f"int {low}" if low == high else f"int, {_range(low, high)}"
    return FieldKind(says, lambda values: _are(values, int) and low <= min(values) and max(values) <= high)


def number(low: float, high: float) -> FieldKind:
    """An integer or a float, not infinite."""
    return FieldKind(
        f"number, {_range(low, high)}",
        # One by one: nothing is less or more than what is no number.
        lambda values: {int, float}.issuperset(map(type, values)) and all(low <= value <= high for value in values),
    )


def flag() -> FieldKind:
    """True or false."""
    return FieldKind("bool", lambda values: _are(values, bool))


def text(
    most: int,
    least: int = 0,
    *,
    where: Callable[[str], bool] | None = None,
    made_of: Callable[[str], bool] | None = None,
    says: str = "",
) -> FieldKind:
    """Text of `least` to `most` characters for which `where` holds, which `says` puts in words.

    `made_of` is a test that a text passes where all its characters do; it is made once for all texts of a list.
    """

    def all_fit(values: Sequence[Any]) -> bool:
        if not _are(values, str):
            return False
        lengths = list(map(len, values))
        if not least <= min(lengths) or max(lengths) > most:
            return False
        return (made_of is None or made_of("".join(values))) and (where is None or all(map(where, values)))

    return FieldKind(f"str, {_range(least, most)} characters" + (f": {says}" if says else ""), all_fit)


def word(*allowed: str) -> FieldKind:
    """One of these texts."""
    known = frozenset(allowed)
    said = ", ".join(f"`{each}`" if each else "empty" for each in allowed)
    return FieldKind(f"str: {said}", lambda values: _are(values, str) and known.issuperset(values))


def anything(says: str) -> FieldKind:
    """Whatever the wire can carry; its reader looks at it."""
    return FieldKind(says, lambda values: True)


def or_nil(kind: FieldKind) -> FieldKind:
    """The kind, or None."""
    all_fit, read = kind.all_fit, kind.read

    def some_fit(values: Sequence[Any]) -> bool:
        some = [value for value in values if value is not None]
        return not some or all_fit(some)

    some = None if read is None else lambda value: None if value is None else read(value)
    return FieldKind(f"nil, or {kind.says}", some_fit, some)


def items(kind: FieldKind, most: int, least: int = 0, *, distinct: bool = False) -> FieldKind:
    """A tuple of `least` to `most` items; no two alike where they are to be `distinct`."""
    all_fit, read = kind.all_fit, kind.read

    def fits(value: Any) -> bool:
        if type(value) is not tuple or not least <= len(value) <= most:
            return False
        return not value or (all_fit(value) and (not distinct or len(frozenset(value)) == len(value)))

    some = None if read is None else lambda value: tuple(map(read, value))
    said = f"{_range(least, most)} × {kind.says}" if kind.says[0] != "(" else f"{_range(least, most)} rows {kind.says}"
    return FieldKind(said + (", all different" if distinct else ""), lambda values: all(map(fits, values)), some)


def row(of: type[tuple[Any, ...]], *, where: Callable[[tuple[Any, ...]], bool] | None = None) -> FieldKind:
    """A list with the fields of a NamedTuple whose annotations are kinds; `where` holds for the list of fields."""
    names, kinds = _kinds_of_row(of)
    columns, widths = [kind.all_fit for kind in kinds], {len(kinds)}
    make = _maker(of, kinds)

    def all_fit(values: Sequence[Any]) -> bool:
        if not _are(values, tuple) or set(map(len, values)) != widths:
            return False
        for fit, column in zip(columns, zip(*values, strict=True), strict=True):
            if not fit(column):
                return False
        return where is None or all(map(where, values))

    said = f"({', '.join(f'{name}: {kind.says}' for name, kind in zip(names, kinds, strict=True))})"
    return FieldKind(said, all_fit, make)


def rows(
    of: type[tuple[Any, ...]], most: int, least: int = 0, *, where: Callable[[tuple[Any, ...]], bool] | None = None
) -> FieldKind:
    """A list of such lists."""
    return items(row(of, where=where), most, least)


def variants(*rows_of: type[tuple[Any, ...]]) -> FieldKind:
    """A list with the fields of one of these NamedTuples, told apart by the integer that is their first field."""
    known = {_tag_of(each): row(each) for each in rows_of}

    def all_fit(values: Sequence[Any]) -> bool:
        if not _are(values, tuple) or not all(values):
            return False
        by_tag: dict[Any, list[Any]] = {}
        for value in values:
            if type(value[0]) is not int or value[0] not in known:
                return False
            by_tag.setdefault(value[0], []).append(value)
        return all(known[tag].all_fit(some) for tag, some in by_tag.items())

    readers = {tag: kind.read for tag, kind in known.items() if kind.read is not None}
    said = " or ".join(kind.says for kind in known.values())
    return FieldKind(said, all_fit, lambda value: readers[value[0]](value))


def mapping(key: FieldKind, value: FieldKind, most: int) -> FieldKind:
    """A map of at most so many entries."""
    assert key.read is None
    assert value.read is None
    keys_fit, values_fit = key.all_fit, value.all_fit

    def fits(found: Any) -> bool:
        if type(found) is not dict or len(found) > most:
            return False
        return not found or (keys_fit(tuple(found)) and values_fit(tuple(found.values())))

    said = f"map of up to {most:,}: {key.says} → {value.says}"
    return FieldKind(said, lambda values: all(map(fits, values)))


# -- maps --


@dataclass(frozen=True, slots=True)
class WireMap:
    """A map with known fields. What a subclass annotates without a kind cannot be parsed."""

    extra: Mapping[str, Any] = field(default_factory=dict, kw_only=True)  # fields of later versions, kept

    def wrong(self) -> str:
        """The name of a field that does not go with the others; empty where all do."""
        return ""

    @classmethod
    def parse(cls, fields: Any) -> Self:
        """The value of a map that came over the wire.

        Raises:
            BadArguments: it is no map with text as names, or a field is missing or not what it may be.
        """
        if type(fields) is not dict:
            raise BadArguments("a map")
        values: dict[str, Any] = {}
        plan = _PLANS.get(cls) or _compiled(cls)
        for name, all_fit, read, required in plan.reads:
            value = fields.get(name, _ABSENT)
            if value is _ABSENT:
                if required:
                    raise BadArguments(name)
            elif all_fit((value,)):
                values[name] = value if read is None else read(value)
            else:
                raise BadArguments(name)
        if len(values) < len(fields):
            values["extra"] = {name: value for name, value in fields.items() if name not in plan.names}
            if not all(type(name) is str for name in values["extra"]):
                raise BadArguments("a map")
        parsed = cls(**values)
        wrong = parsed.wrong()
        if wrong:
            raise BadArguments(wrong)
        return parsed

    def to_map(self) -> dict[str, Any]:
        """For the wire: `parse` of it is this value."""
        plan = _PLANS.get(type(self)) or _compiled(type(self))
        made = dict(self.extra)
        made.update(zip(plan.required, plan.get_required(self), strict=True))
        for name, default in plan.optional:
            value = getattr(self, name)
            if value != default:
                made[name] = value
        return made


R = TypeVar("R", bound=WireMap)


class CallTerms(NamedTuple):
    """A call's name on the wire, and what it is asked with unless its caller says otherwise."""

    name: str
    timeout_s: float | None = None  # None: that of the transport
    reply_bytes_max: int = REPLY_BYTES
    lane: Lane = Lane.CALLS


@dataclass(frozen=True, slots=True)
class CallArgs(WireMap, Generic[R]):
    """The arguments of a call whose answer is an `R`; the docstring says who asks, and what it does."""

    terms: ClassVar[CallTerms]

    @classmethod
    def reply(cls) -> type[R]:
        """The class of the answer."""
        return cast("type[R]", _reply_of(cast(Any, cls)))

    def misfit(self, reply: Any) -> str:
        """The name of a field with which a reply does not answer this; empty where it does."""
        return ""

    def answered(self, value: Any) -> R:
        """The reply that a map is.

        Raises:
            BadArguments: it is none, or not one to this.
        """
        reply = self.reply().parse(value)
        misfit = self.misfit(reply)
        if misfit:
            raise BadArguments(misfit)
        return reply


class FieldDoc(NamedTuple):
    """A field as the documentation has it."""

    name: str
    says: str
    optional: bool
    note: str


def fields_of(kind: type[WireMap]) -> list[FieldDoc]:
    """The fields of a map, `extra` aside, in the order of their definition."""
    docs = []
    for each in _own_fields(kind):
        hint = _hints(cast(Any, kind))[each.name]
        note = next((str(part) for part in get_args(hint)[1:] if type(part) is str), "")
        docs.append(FieldDoc(each.name, _kind_of(hint).says, not _is_required(each), note))
    return docs


_PLANS: dict[Any, _Plan] = {}  # by class


class _Plan(NamedTuple):
    """How a class is read and written, worked out once."""

    reads: tuple[tuple[str, Callable[[Sequence[Any]], bool], Callable[[Any], Any] | None, bool], ...]
    names: frozenset[str]
    required: tuple[str, ...]
    get_required: Callable[[Any], tuple[Any, ...]]
    optional: tuple[tuple[str, Any], ...]


def _compiled(cls: Any) -> _Plan:
    own = _own_fields(cls)
    kinds = {each.name: _kind_of(_hints(cls)[each.name]) for each in own}
    required = tuple(each.name for each in own if _is_required(each))
    plan = _PLANS[cls] = _Plan(
        tuple((each.name, kinds[each.name].all_fit, kinds[each.name].read, _is_required(each)) for each in own),
        frozenset(kinds),
        required,
        _getter(required),
        tuple((each.name, each.default) for each in own if not _is_required(each)),
    )
    return plan


@cache
def _reply_of(cls: Any) -> Any:
    (reply,) = (get_args(base)[0] for base in cls.__orig_bases__ if get_origin(base) is CallArgs)
    return reply


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _own_fields(cls: type[WireMap]) -> list[dataclasses.Field[Any]]:
    return [each for each in dataclasses.fields(cls) if each.name != "extra"]


def _is_required(each: dataclasses.Field[Any]) -> bool:
    return each.default is dataclasses.MISSING


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _kind_of(hint: Any) -> FieldKind:
    parts = (
        [part for part in get_args(hint)[1:] if isinstance(part, FieldKind)] if get_origin(hint) is Annotated else []
    )
    assert parts, f"{hint} has no kind"
    return parts[-1]


def _kinds_of_row(of: type[tuple[Any, ...]]) -> tuple[list[str], list[FieldKind]]:
    hints = _hints(of)
    names = list(cast(Any, of)._fields)
    return names, [_kind_of(hints[name]) for name in names]


def _maker(of: type[tuple[Any, ...]], kinds: list[FieldKind]) -> Callable[[Any], Any]:
    # A call of `_make` costs more than all the tests of a short row.
    make = partial(tuple.__new__, of)
    reads = [kind.read for kind in kinds]
    if not any(reads):
        return make
    return lambda value: make(item if read is None else read(item) for read, item in zip(reads, value, strict=True))


def _tag_of(of: type[tuple[Any, ...]]) -> int:
    _, kinds = _kinds_of_row(of)
    word, number = kinds[0].says.split(" ")
    assert word == "int", f"{of.__name__} has no tag"
    return int(number)


def _either(widths: tuple[int, ...]) -> str:
    *first, last = map(str, widths)
    return f"{', '.join(first)} or {last}" if first else last


def _range(low: float, high: float, say: Callable[[float], str] = lambda value: _bound(value)) -> str:
    if low == high:
        return say(low)
    return f"up to {say(high)}" if low == 0 else f"{say(low)} to {say(high)}"


def _bound(value: float) -> str:
    """A bound for people."""
    sign, size = ("−", -value) if value < 0 else ("", value)
    for top in (53, 62, 63):
        if size in (2**top, 2**top - 1):
            return f"{sign}2^{top}" if size == 2**top else f"{sign}(2^{top} − 1)" if sign else f"2^{top} − 1"
    return f"{'−' if value < 0 else ''}{abs(value):,}"


def _size(value: float) -> str:
    for unit, bits in (("Mi", 20), ("Ki", 10)):
        if value >= 4 << bits or (value >= 1 << bits and bits == 20):
            whole, rest = divmod(int(value), 1 << bits)
            if not rest:
                return f"{whole} {unit}"
    return f"{value:,}"
