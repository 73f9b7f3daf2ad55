"""A debug mode: what the event loop changes is not read or written by a transaction.

Transactions run on the committer's thread, at any moment between two steps of
the loop. They are given values and return what they found; an object that the
loop changes is half changed when they look at it, or has gone on since they
were submitted. Classes of such objects are marked `@loop_state`. Once
`check_loop_state` was called, before they are defined, each use of one within a
transaction raises `LoopStateUsed` and is noted in `faults`; else the marks do
nothing.

    a method or property is called, an attribute set    within a transaction
    a transaction's function refers to such an object   before it runs

What is not seen: an attribute without a property that is read within a
transaction, of an object that its function reaches by two steps or more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

faults: Final[list[str]] = []  # what was used, since the mode is on

_MARK: Final = "_is_loop_state"
# They are needed to tell of an object, to compare and to make it.
_UNGUARDED: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__repr__", "__eq__", "__hash__", "__del__"}
)
_checks = False
_in_transaction: ContextVar[bool] = ContextVar("in_transaction", default=False)


class LoopStateUsed(AssertionError):
    """A transaction has used what the event loop changes."""


def check_loop_state() -> None:
    """Check the classes that are defined from now on."""
    global _checks
    _checks = True


def loop_state(cls: type[T]) -> type[T]:
    """Mark a class whose objects the event loop changes."""
    if not _checks:
        return cls
    for name, member in list(vars(cls).items()):
        guarded = None if name in _UNGUARDED else _guarded(f"{cls.__name__}.{name}", member)
        if guarded is not None:
            setattr(cls, name, guarded)
    write = cls.__setattr__

    def guarded_write(self: Any, name: str, value: Any) -> None:
        if _in_transaction.get():
            _refuse(f"{cls.__name__}.{name} is set")
        write(self, name, value)

    setattr(cls, "__setattr__", guarded_write)  # noqa: B010 - mypy takes no assignment to a method
    setattr(cls, _MARK, True)
    return cls


def run_transaction(function: Callable[[T], R], argument: T) -> R:
    """Call a transaction's function; with the mode on, what it must not use raises.

    Raises:
        LoopStateUsed: it refers to, reads or writes what the loop changes.
    """
    if not _checks:
        return function(argument)
    for found in _referred_to(function):
        _refuse(f"{type(found).__name__} is referred to by {_name(function)}")
    token = _in_transaction.set(True)
    try:
        return function(argument)
    finally:
        _in_transaction.reset(token)


def _guarded(name: str, member: Any) -> Any:
    if isinstance(member, FunctionType):
        return _guarded_function(name, member)
    if isinstance(member, property):
        read, write, delete = (
            None if part is None else _guarded_function(name, part) for part in (member.fget, member.fset, member.fdel)
        )
        return property(read, write, delete)
    if isinstance(member, MemberDescriptorType):  # a slot
        return property(_guarded_function(name, member.__get__), member.__set__, member.__delete__)
    return None


def _guarded_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if _in_transaction.get():
            _refuse(f"{name} is used")
        return function(*args, **kwargs)

    return guarded


def _refuse(what: str) -> None:
    fault = f"{what} in a transaction, though the event loop changes it"
    faults.append(fault)
    raise LoopStateUsed(fault)


def _referred_to(function: Any) -> Iterator[Any]:
    """What is marked among the objects that a function is bound to, or refers to from around it."""
    if isinstance(function, functools.partial):
        for value in (*function.args, *function.keywords.values()):
            yield from _marked(value)
        yield from _referred_to(function.func)
    elif isinstance(function, MethodType):
        yield from _marked(function.__self__)
    elif isinstance(function, FunctionType):
        for cell in function.__closure__ or ():
            try:
                yield from _marked(cell.cell_contents)
            except ValueError:  # it is empty
                continue


def _marked(value: Any) -> Iterator[Any]:
    if getattr(type(value), _MARK, False):
        yield value
    elif isinstance(value, MethodType | functools.partial):
        yield from _referred_to(value)


def _name(function: Any) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    return getattr(inner, "__qualname__", repr(inner))
