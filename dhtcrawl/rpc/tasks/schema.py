"""Maps on the wire as frozen values whose fields say what they may hold; without I/O.

    class Lend(CallArgs[Done], name="lend"):
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

Type checkers take these classes for frozen dataclasses. The standard library's
compiles six functions for each class, which would be a tenth of the time that a
node takes to start. Annotations are read when a class is defined, so its module
has them evaluated: no `from __future__ import annotations`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import get_annotations
from operator import call, eq
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast, dataclass_transform, get_origin

from dhtcrawl.rpc.tasks.messages import Lane

REPLY_BYTES = 16 * 1024  # of an answer, where a call says nothing else
_ABSENT = object()  # fits no kind that a field may have


class BadArguments(ValueError):
    """A field of a map is not what the protocol allows; `field` is its name."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


# -- kinds of values --

_Test = Callable[[Any], bool]
_TestOfAll = Callable[[Sequence[Any]], bool]
_Reader = Callable[[Any], Any]


class FieldKind:
    """What a value may be: `fits` tests one, `all_fit` those of a list, `says` is it in words, `read` makes ours of it.

    The values of a list are tested together, their types first and then their bounds, and a list of rows column by
    column: so a function is called once for a list, and not for each of its values. There is at least one.
    """

    __slots__ = ("all_fit", "fits", "read", "says")

    def __init__(
        self,
        says: str,
        fits: _Test,
        all_fit: _TestOfAll | None = None,
        read: _Reader | None = None,
    ) -> None:
        self.says = says
        self.fits = fits
        self.all_fit = all_fit or (lambda values: all(map(fits, values)))
        self.read = read


def _are(values: Sequence[Any], kind: type) -> bool:
    return set(map(type, values)) == {kind}


def octets(*widths: int) -> FieldKind:
    """Bytes of one of these widths."""
    allowed = frozenset(widths)
    return FieldKind(
        f"{_either(widths)} bytes",
        lambda value: type(value) is bytes and len(value) in allowed,
        lambda values: _are(values, bytes) and allowed.issuperset(map(len, values)),
    )


def octets_up_to(most: int, least: int = 0, *, in_rows_of: int = 1) -> FieldKind:
    """Bytes, `least` to `most` of them; with `in_rows_of` a multiple of that."""
    said = f"{_range(least, most, _size)} bytes"
    if in_rows_of == 1:
        return FieldKind(
            said,
            lambda value: type(value) is bytes and least <= len(value) <= most,
            lambda values: _are(values, bytes) and _lengths_fit(values, least, most),
        )
    return FieldKind(
        f"{said}, in rows of {in_rows_of}",
        lambda value: type(value) is bytes and least <= len(value) <= most and not len(value) % in_rows_of,
    )


def _lengths_fit(values: Sequence[Any], least: int, most: int) -> bool:
    lengths = list(map(len, values))
    return least <= min(lengths) and max(lengths) <= most


def integer(low: int, high: int) -> FieldKind:
    """An integer, no truth value."""
    return FieldKind(
        f"int {low}" if low == high else f"int, {_range(low, high)}",
        lambda value: type(value) is int and low <= value <= high,
        lambda values: _are(values, int) and low <= min(values) and max(values) <= high,
    )


def number(low: float, high: float) -> FieldKind:
    """An integer or a float, not infinite."""
    return FieldKind(
        f"number, {_range(low, high)}",
        lambda value: type(value) in (int, float) and low <= value <= high,
        # What is no number does not equal itself, and would be lost on `min` and `max`.
        lambda values: (
            {int, float}.issuperset(map(type, values))
            and all(map(eq, values, values))
            and low <= min(values)
            and max(values) <= high
        ),
    )


def flag() -> FieldKind:
    """True or false."""
    return FieldKind("bool", lambda value: type(value) is bool)


def text(
    most: int,
    least: int = 0,
    *,
    where: Callable[[str], object] | None = None,
    made_of: Callable[[str], bool] | None = None,
    says: str = "",
) -> FieldKind:
    """Text of `least` to `most` characters for which `where` holds, which `says` puts in words.

    `made_of` is a test that a text passes where all its characters do; it is made once for all texts of a list.
    """

    def fits(value: Any) -> bool:
        return (
            type(value) is str
            and least <= len(value) <= most
            and (made_of is None or made_of(value))
            and (where is None or bool(where(value)))
        )

    def all_fit(values: Sequence[Any]) -> bool:
        return (
            _are(values, str)
            and _lengths_fit(values, least, most)
            and (made_of is None or made_of("".join(values)))
            and (where is None or all(map(where, values)))
        )

    return FieldKind(f"str, {_range(least, most)} characters" + (f": {says}" if says else ""), fits, all_fit)


def word(*allowed: str) -> FieldKind:
    """One of these texts."""
    said = ", ".join(f"`{each}`" if each else "empty" for each in allowed)
    return FieldKind(f"str: {said}", lambda value: type(value) is str and value in allowed)


def anything(says: str) -> FieldKind:
    """Whatever the wire can carry; its reader looks at it. Only for items of a list."""
    return FieldKind(says, lambda value: True)


def or_nil(kind: FieldKind) -> FieldKind:
    """The kind, or None."""
    fits, all_fit, read = kind.fits, kind.all_fit, kind.read

    def some_fit(values: Sequence[Any]) -> bool:
        some = [value for value in values if value is not None]
        return not some or all_fit(some)

    some = None if read is None else lambda value: None if value is None else read(value)
    return FieldKind(f"nil, or {kind.says}", lambda value: value is None or fits(value), some_fit, some)


def items(kind: FieldKind, most: int, least: int = 0, *, distinct: bool = False) -> FieldKind:
    """A tuple of `least` to `most` items; no two alike where they are to be `distinct`."""
    all_fit, read = _test_of_all(kind), kind.read

    def fits(value: Any) -> bool:
        if type(value) is not tuple or not least <= len(value) <= most:
            return False
        return all_fit(value) and (not distinct or len(frozenset(value)) == len(value))

    some = None if read is None else lambda value: tuple(map(read, value))
    said = f"{_range(least, most)} × {kind.says}" if kind.says[0] != "(" else f"{_range(least, most)} rows {kind.says}"
    return FieldKind(said + (", all different" if distinct else ""), fits, read=some)


def _test_of_all(kind: FieldKind) -> _TestOfAll:
    """For any number of values: a few are tested sooner one by one."""
    fits, all_fit = kind.fits, kind.all_fit
    return lambda values: all_fit(values) if len(values) > 3 else all(map(fits, values))


def row(of: type[tuple[Any, ...]], *, where: Callable[[tuple[Any, ...]], bool] | None = None) -> FieldKind:
    """A list with the fields of a NamedTuple whose annotations are kinds; `where` holds for the list of fields."""
    kinds = _kinds_of_row(of)
    tests, columns, widths = (
        [kind.fits for kind in kinds.values()],
        [kind.all_fit for kind in kinds.values()],
        {len(kinds)},
    )

    def fits(value: Any) -> bool:
        if type(value) is not tuple or len(value) != len(tests):
            return False
        return all(map(call, tests, value)) and (where is None or where(value))

    def all_fit(values: Sequence[Any]) -> bool:
        if not _are(values, tuple) or set(map(len, values)) != widths:
            return False
        for fit, column in zip(columns, zip(*values, strict=True), strict=True):
            if not fit(column):
                return False
        return where is None or all(map(where, values))

    said = f"({', '.join(f'{name}: {kind.says}' for name, kind in kinds.items())})"
    return FieldKind(said, fits, all_fit, _maker(of, kinds.values()))


def rows(
    of: type[tuple[Any, ...]], most: int, least: int = 0, *, where: Callable[[tuple[Any, ...]], bool] | None = None
) -> FieldKind:
    """A list of such lists."""
    return items(row(of, where=where), most, least)


def variants(*rows_of: type[tuple[Any, ...]]) -> FieldKind:
    """A list with the fields of one of these NamedTuples, told apart by the integer that is their first field."""
    known = {tag: row(each) for tag, each in enumerate(rows_of)}

    def fits(value: Any) -> bool:
        if type(value) is not tuple or not value or type(value[0]) is not int:
            return False
        kind = known.get(value[0])
        return kind is not None and kind.fits(value)

    readers = {tag: cast(_Reader, kind.read) for tag, kind in known.items()}
    said = " or ".join(kind.says for kind in known.values())
    return FieldKind(said, fits, read=lambda value: readers[value[0]](value))


def mapping(key: FieldKind, value: FieldKind, most: int) -> FieldKind:
    """A map of at most so many entries."""
    assert key.read is None
    assert value.read is None
    keys_fit, values_fit = _test_of_all(key), _test_of_all(value)

    def fits(found: Any) -> bool:
        if type(found) is not dict or len(found) > most:
            return False
        return keys_fit(tuple(found)) and values_fit(tuple(found.values()))

    return FieldKind(f"map of up to {most:,}: {key.says} → {value.says}", fits)


# -- maps --


class WireField(NamedTuple):
    """A field of a map."""

    name: str
    kind: FieldKind
    note: str  # what it is for; empty where its name says so
    default: Any

    @property
    def required(self) -> bool:
        """Whether it may not be missing."""
        return self.default is _ABSENT


@dataclass_transform(frozen_default=True)
class WireMap:
    """A map with known fields: those of a subclass, in the order of their definition.

    The instance's dictionary is the map itself: a field that has its default value is only on the class.
    """

    wire_fields: ClassVar[tuple[WireField, ...]] = ()
    extra: Mapping[str, Any] = MappingProxyType({})  # fields of later versions, kept
    _names: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[tuple[tuple[str, _Test, _Reader | None], ...]] = ()
    _optional: ClassVar[tuple[tuple[str, _Test, _Reader | None, Any], ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hints = get_annotations(cls).items()
        own = [_field(name, hint, cls.__dict__) for name, hint in hints if cast(Any, get_origin(hint)) is not ClassVar]
        cls.wire_fields = (*cls.wire_fields, *own)
        cls._names = tuple(field.name for field in cls.wire_fields)
        cls._required = tuple(
            (name, kind.fits, kind.read) for name, kind, _, default in cls.wire_fields if default is _ABSENT
        )
        cls._optional = tuple(
            (name, kind.fits, kind.read, default)
            for name, kind, _, default in cls.wire_fields
            if default is not _ABSENT
        )

    def __init__(self, *values: Any, **named: Any) -> None:
        held = self.__dict__
        held.update(zip(self._names, values, strict=False), **named)
        left = len(values) + len(named) - len(self._required)
        for name, _, _, default in self._optional:
            if name in held:
                left -= 1
                if held[name] == default:
                    del held[name]
        if left or not all(name in held for name, _, _ in self._required):
            raise TypeError(f"{type(self).__name__} is made of {', '.join(self._names)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

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
        parsed = cls.__new__(cls)
        held = parsed.__dict__
        for name, fits, read in cls._required:
            value = fields.get(name, _ABSENT)
            if not fits(value):
                raise BadArguments(name)
            held[name] = value if read is None else read(value)
        if len(held) < len(fields):
            cls._read_others(fields, held)
        wrong = parsed.wrong()
        if wrong:
            raise BadArguments(wrong)
        return parsed

    @classmethod
    def _read_others(cls, fields: Mapping[str, Any], held: dict[str, Any]) -> None:
        unknown = len(fields) - len(held)
        for name, fits, read, default in cls._optional:
            if name in fields:
                value = fields[name]
                if not fits(value):
                    raise BadArguments(name)
                if value != default:
                    held[name] = value if read is None else read(value)
                unknown -= 1
        if unknown:
            held["extra"] = extra = {name: value for name, value in fields.items() if name not in cls._names}
            if set(map(type, extra)) != {str}:
                raise BadArguments("a map")

    def to_map(self) -> dict[str, Any]:
        """For the wire: `parse` of it is this value."""
        made = self.__dict__.copy()
        extra = made.pop("extra", None)
        return made if extra is None else {**extra, **made}


def _field(name: str, hint: Any, defaults: Mapping[str, Any]) -> WireField:
    kind, note = _kind_of(hint)
    return WireField(name, kind, note, defaults.get(name, _ABSENT))


R = TypeVar("R", bound=WireMap)


class CallTerms(NamedTuple):
    """A call's name on the wire, and what it is asked with unless its caller says otherwise."""

    name: str
    timeout_s: float | None  # None: that of the transport
    reply_bytes_max: int
    lane: Lane


class CallArgs(WireMap, Generic[R]):
    """The arguments of a call whose answer is an `R`; the docstring says who asks, and what it does."""

    terms: ClassVar[CallTerms]
    reply: ClassVar[type[WireMap]]

    def __init_subclass__(
        cls,
        name: str,
        timeout_s: float | None = None,
        reply_bytes_max: int = REPLY_BYTES,
        lane: Lane = Lane.CALLS,
    ) -> None:
        super().__init_subclass__()
        cls.terms = CallTerms(name, timeout_s, reply_bytes_max, lane)
        (cls.reply,) = cast(Any, cls).__orig_bases__[0].__args__

    def misfit(self, reply: Any) -> str:
        """The name of a field with which a reply does not answer this; empty where it does."""
        return ""

    def answered(self, value: Any) -> R:
        """The reply that a map is.

        Raises:
            BadArguments: it is none, or not one to this.
        """
        reply = self.reply.parse(value)
        misfit = self.misfit(reply)
        if misfit:
            raise BadArguments(misfit)
        return cast(R, reply)


def _kind_of(hint: Any) -> tuple[FieldKind, str]:
    """The kind that an annotation names last, and what it says the field is for."""
    parts = hint.__metadata__ if get_origin(hint) is Annotated else ()
    kinds = [part for part in parts if isinstance(part, FieldKind)]
    assert kinds, f"{hint} has no kind"
    return kinds[-1], next((part for part in parts if type(part) is str), "")


def _kinds_of_row(of: type[tuple[Any, ...]]) -> dict[str, FieldKind]:
    return {name: _kind_of(hint)[0] for name, hint in of.__annotations__.items()}


def _maker(of: type[tuple[Any, ...]], kinds: Iterable[FieldKind]) -> _Reader:
    # A call of `_make` costs more than all the tests of a short row.
    make = partial(tuple.__new__, of)
    reads = [kind.read for kind in kinds]
    if not any(reads):
        return make
    return lambda value: make(item if read is None else read(item) for read, item in zip(reads, value, strict=True))


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
