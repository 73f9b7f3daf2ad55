"""`dataclass` as the standard library has it, with methods that are compiled when they are first called.

The standard library compiles up to six functions for each class, whether or not anything calls them: for the classes
that a crawl by one node imports, an eighth of its start (decision 0077). Here fields, defaults, slots, `replace` and
all else that is asked of a data class are the standard library's, too. `__init__`, `==` and `hash` are compiled when
an object is first made, compared or hashed; `repr` and refusing a change are closures over the names of the fields.

Of the parameters there are those that we use: `eq`, `frozen` and `slots`. To a type checker this is the original. A
frozen class is not known as such to the standard library's decorator, so what derives from one is made by this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from collections.abc import Callable, Iterable
    from dataclasses import MISSING, Field, FrozenInstanceError
    from reprlib import recursive_repr
    from types import MemberDescriptorType
    from typing import Any, Final

    _FACTORY: Final = object()  # the default of a parameter whose field has a factory

    def dataclass(cls: type | None = None, /, *, eq: bool = True, frozen: bool = False, slots: bool = False) -> Any:
        """Make a data class of `cls`, or return what does so with these parameters."""
        if cls is None:
            return lambda cls: _data_class(cls, eq=eq, frozen=frozen, slots=slots)
        return _data_class(cls, eq=eq, frozen=frozen, slots=slots)

    def _data_class(cls: type, *, eq: bool, frozen: bool, slots: bool) -> type:
        own = vars(cls)
        hashes = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        fields = dataclasses.fields(cls)
        methods = {"__init__": _init_at_first_call(cls, fields, frozen=frozen), "__repr__": _repr_of(fields)}
        if eq:
            methods["__eq__"] = _eq_at_first_call(cls, fields)
            if not hashes:
                cls.__hash__ = _hash_at_first_call(cls, fields) if frozen else None
        if frozen:
            methods |= _refusals(cls, frozenset(field.name for field in fields))
            if slots:
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if name not in vars(cls):
                setattr(cls, name, method)
        return cls

    # -- what is compiled at the first call, which puts it in the place of what was called --

    def _init_at_first_call(cls: type, fields: tuple[Field, ...], *, frozen: bool) -> Callable[..., None]:
        def __init__(self: Any, /, *values: Any, **named: Any) -> None:
            init = cls.__init__ = _init_of(cls, fields, frozen=frozen)
            init(self, *values, **named)

        return __init__

    def _eq_at_first_call(cls: type, fields: tuple[Field, ...]) -> Callable[[Any, Any], bool]:
        def __eq__(self: Any, other: Any) -> bool:
            names = [field.name for field in fields if field.compare]
            both = f"{_tuple_of('self', names)} == {_tuple_of('other', names)}"
            lines = [f"return {both} if other.__class__ is self.__class__ else __not__"]
            eq = cls.__eq__ = _compiled(cls, "__eq__", ["self", "other"], lines, {"__not__": NotImplemented})
            return eq(self, other)

        return __eq__

    def _hash_at_first_call(cls: type, fields: tuple[Field, ...]) -> Callable[[Any], int]:
        def __hash__(self: Any) -> int:
            names = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
            lines = [f"return __hash__({_tuple_of('self', names)})"]
            compiled = cls.__hash__ = _compiled(cls, "__hash__", ["self"], lines, {"__hash__": hash})
            return compiled(self)

        return __hash__

    def _init_of(cls: type, fields: tuple[Field, ...], *, frozen: bool) -> Callable[..., None]:
        known: dict[str, Any] = {"__factory__": _FACTORY, "__set__": object.__setattr__}
        parameters, lines = ["self"], []
        for field in fields:
            name = value = field.name
            default = ""
            if field.default is not MISSING:
                default = f"__default_{name}__"
                known[default] = field.default
            elif field.default_factory is not MISSING:
                default, value = "__factory__", f"__make_{name}__() if {name} is __factory__ else {name}"
                known[f"__make_{name}__"] = field.default_factory
            if field.init:
                parameters.append(f"{name}={default}" if default else name)
            elif not default:
                continue
            else:
                value = f"__make_{name}__()" if default == "__factory__" else default
            slot = getattr(cls, name, None) if frozen else None
            if isinstance(slot, MemberDescriptorType):
                known[f"__set_{name}__"] = slot.__set__  # a fifth quicker than to look for it in each object
                lines.append(f"__set_{name}__(self, {value})")
            else:
                lines.append(f"__set__(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        return _compiled(cls, "__init__", parameters, lines or ["pass"], known)

    def _compiled(cls: type, name: str, parameters: Iterable[str], lines: Iterable[str], known: dict[str, Any]) -> Any:
        names = {"__builtins__": {}, **known}
        method: dict[str, Any] = {}
        exec(f"def {name}({', '.join(parameters)}):\n " + "\n ".join(lines), names, method)
        method[name].__qualname__, method[name].__module__ = f"{cls.__qualname__}.{name}", cls.__module__
        return method[name]

    def _tuple_of(value: str, names: Iterable[str]) -> str:
        return f"({''.join(f'{value}.{name},' for name in names)})"

    # -- what is not called often --

    def _repr_of(fields: tuple[Field, ...]) -> Callable[[Any], str]:
        @recursive_repr("...")
        def __repr__(self: Any) -> str:
            parts = (f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
            return f"{self.__class__.__qualname__}({', '.join(parts)})"

        return __repr__

    def _refusals(cls: type, names: frozenset[str]) -> dict[str, Callable[..., None]]:
        """Methods that refuse to set or delete a field; a subclass that is no data class may have other attributes."""

        def __setattr__(self: Any, name: str, value: Any) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def __delattr__(self: Any, name: str) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return {"__setattr__": __setattr__, "__delattr__": __delattr__}

    def _state(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _set_state(self: Any, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
