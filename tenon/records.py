"""Classes with annotated fields -> classes that hold them, as Python's `records` do, at a twentieth of the time.

    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0
        names: list[str] = field(default_factory=list)

Python's own writes and compiles up to six functions for every class, which took a fifth of `import tenon`.  Here the
methods of all classes are the same few functions over the names of their fields, and `__init__`, which has to be quick,
is written when a class is first called: most are not, in most programs.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

C = TypeVar("C", bound=type[Any])
T = TypeVar("T")
FIELDS = "__tenon_fields__"
MISSING: Any = object()         # in the place of a default


class Field:
    """What is known of an attribute: its default, or what makes one, and whether `__init__` and `repr` have it."""

    __slots__ = ("default", "default_factory", "init", "name", "repr")

    def __init__(self, default: Any, default_factory: Any, init: bool, repr: bool):
        self.name = ""
        self.default, self.default_factory, self.init, self.repr = default, default_factory, init, repr


def field(*, default: Any = MISSING, default_factory: Any = MISSING, init: bool = True, repr: bool = True) -> Any:
    """A field that is more than its annotation and a default."""
    return Field(default, default_factory, init, repr)


@overload
def dataclass(cls: C) -> C: ...
@overload
def dataclass(*, eq: bool = True, repr: bool = True, frozen: bool = False, slots: bool = False
              ) -> Callable[[C], C]: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Any = None, **options: bool) -> Any:
    """A class that is made of its fields, compared and shown by them; where it is frozen, they never change.

    >>> from tenon.records import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(x=1, y=0), Point(2) in {Point(2): "two"}
    (Point(x=1, y=0), True, True)
    """
    return (lambda cls: _made(cls, **options)) if cls is None else _made(cls)


def _made(cls: type[Any], eq: bool = True, repr: bool = True, frozen: bool = False, slots: bool = False) -> type[Any]:
    listed = _fields_of(cls)
    names = tuple(listed)
    cls = _with_slots(cls, names) if slots else cls
    methods = {FIELDS: tuple(listed.values()), "__match_args__": tuple(x.name for x in listed.values() if x.init),
               "__init__": _when_first_called(cls, frozen)}
    if repr:
        methods["__repr__"] = _repr_of([x.name for x in listed.values() if x.repr])
    if eq:
        methods["__eq__"], hashed = _compared_by(names)
        if cls.__dict__.get("__hash__") is None:        # as Python sets it where a class says what is equal
            cls.__hash__ = hashed if frozen else None   # type: ignore[assignment]
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refuse_to_assign, _refuse_to_delete
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _fields_of(cls: type[Any]) -> dict[str, Field]:
    """By name, those of the classes above first.  What stands in the class is the default from then on, or nothing."""
    listed = {x.name: x for above in reversed(cls.__mro__[1:]) for x in above.__dict__.get(FIELDS, ())}
    for name, annotation in get_annotations(cls).items():
        if "ClassVar" in str(annotation):
            continue
        given = cls.__dict__.get(name, MISSING)
        made = given if isinstance(given, Field) else Field(given, MISSING, True, True)
        made.name = name
        listed[name] = made
        if made is given and made.default is MISSING:
            delattr(cls, name)
        elif made is given:
            setattr(cls, name, made.default)
    return listed


def _with_slots(cls: type[Any], names: tuple[str, ...]) -> type[Any]:
    """The same class, whose objects have a place for each of these names, and no dictionary."""
    contents = {name: x for name, x in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}
    return type(cls.__name__, cls.__bases__, {**contents, "__slots__": names})


# ---------------------------------------------------------------- the methods

def _when_first_called(cls: Any, frozen: bool) -> Callable[..., None]:
    """An `__init__` that puts the right one in its place."""
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        cls.__init__ = _init_of(cls, frozen)
        cls.__init__(self, *args, **keywords)
    return __init__


def _init_of(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """`__init__` of a class, as one would write it."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": MISSING}
    parameters, lines = ["self"], []
    for x in fields(cls):
        made = x.default_factory is not MISSING
        scope[f"_default_{x.name}"] = x.default_factory if made else x.default
        value = x.name
        if made:
            value = f"_default_{x.name}()" + (f" if {x.name} is _MISSING else {x.name}" if x.init else "")
        if x.init:
            given = "=_MISSING" if made else f"=_default_{x.name}" if x.default is not MISSING else ""
            parameters.append(x.name + given)
        if x.init or made:
            lines.append(f"_set(self, {x.name!r}, {value})" if frozen else f"self.{x.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(lines or ["pass"])
    exec(compile(source, f"{__file__} for {cls.__qualname__}", "exec"), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({shown})"
    return __repr__


def _compared_by(names: tuple[str, ...]) -> tuple[Callable[[Any, Any], Any], Callable[[Any], int]]:
    """`__eq__` and `__hash__`."""
    values = _values_of(names)

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))
    return __eq__, __hash__


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes these attributes out of an object, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple([getattr(x, name) for name in names])


def _refuse_to_assign(self: Any, name: str, value: Any) -> NoReturn:
    from dataclasses import FrozenInstanceError  # local: Python's own are slow to load
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError  # local, as above
    raise FrozenInstanceError(f"cannot delete field {name!r}")


# ---------------------------------------------------------------- functions of all of them

def fields(x: Any) -> tuple[Field, ...]:
    """The fields of a class, or of an object, in order."""
    listed: tuple[Field, ...] = getattr(x, FIELDS)
    return listed


def replace(x: T, /, **changes: Any) -> T:
    """The same but for these fields, made anew."""
    return type(x)(**{f.name: getattr(x, f.name) for f in fields(x) if f.init} | changes)


def astuple(x: Any) -> tuple[Any, ...]:
    """The values of all fields, in order."""
    return tuple([getattr(x, f.name) for f in fields(x)])


def is_dataclass(x: Any) -> bool:
    """Whether this is such a class, or an object of one, of Tenon's or of Python's."""
    return hasattr(x, FIELDS) or hasattr(x, "__dataclass_fields__")
