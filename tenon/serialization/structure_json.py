"""The structure of arguments and results <-> JSON: lists, tuples, dicts, and what has named fields.

    ["tuple", ["leaf"], ["dict", ["image", "mask"], ["leaf"], ["leaf"]]]

A file names no class: of a named tuple and of a dataclass it holds the names of their fields, so results come back as a
`Record`, which is a tuple, or as `Fields`, which has attributes; arguments may be any class with these fields.
"""

from __future__ import annotations

import keyword
from functools import lru_cache
from operator import itemgetter
from typing import Any

from tenon.capture.callable_parts import CALLABLES
from tenon.capture.pytree import LEAF, SeenContainer, Structure
from tenon.errors import ArgumentError
from tenon.tensor_file import DamagedFile

MAX_DEPTH = 100
PLAIN: dict[str, type] = {"list": list, "tuple": tuple, "dict": dict}


class Record(tuple[Any, ...]):
    """A tuple whose items have names."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, *items: Any) -> Record:
        return tuple.__new__(cls, items)

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={x!r}' for name, x in zip(self._fields, self, strict=True))})"


class Fields:
    """An object whose attributes are the fields of a dataclass."""

    def __repr__(self) -> str:
        return f"Fields({', '.join(f'{name}={x!r}' for name, x in vars(self).items())})"


@lru_cache(maxsize=256)
def record_of(fields: tuple[str, ...]) -> type[Record]:
    """The class of records with these fields."""
    found: dict[str, Any] = {name: property(itemgetter(k)) for k, name in enumerate(fields)}
    return type("Record", (Record,), {**found, "_fields": fields, "__slots__": ()})


def nameless(structure: Structure) -> Structure:
    """The structure without the classes of the user's program; raises ArgumentError for what no file holds."""
    kind, children = structure.kind, tuple(map(nameless, structure.children))
    if kind is None:
        return LEAF
    if issubclass(kind, CALLABLES):
        raise ArgumentError("save: a function is among the arguments, and no file holds one")
    if kind is SeenContainer:
        raise ArgumentError("save: one container stands in two places", hint="copy it: list(x), dict(x)")
    if structure.is_mapping and not all(type(key) in (str, int) for key in structure.labels):
        wrong = next(key for key in structure.labels if type(key) not in (str, int))
        raise ArgumentError(f"save: a key of a dict must be a string or an integer, not {wrong!r}")
    if structure.is_mapping or structure.is_sequence:
        return Structure(dict if structure.is_mapping else tuple if kind is tuple else list, structure.labels, children)
    return Structure(record_of(structure.labels) if issubclass(kind, tuple) else Fields, structure.labels, children)


def as_json(structure: Structure) -> list[Any]:
    """A structure as `nameless` gives it, in JSON."""
    kind, children = structure.kind, list(map(as_json, structure.children))
    if kind is None:
        return ["leaf"]
    if kind is dict:
        return ["dict", list(structure.labels), *children]
    if kind in (list, tuple):
        return [kind.__name__, *children]
    return ["fields" if kind is Fields else "record", list(structure.labels), *children]


def from_json(found: Any, depth: int = 0) -> Structure:
    """The structure that `as_json` wrote; raises DamagedFile for anything else."""
    if not isinstance(found, list) or not found or not isinstance(found[0], str) or depth > MAX_DEPTH:
        raise DamagedFile(f"{found!r:.100} is no structure of arguments or results")
    kind, *rest = found
    if kind == "leaf" and not rest:
        return LEAF
    if kind in ("list", "tuple"):
        return Structure(PLAIN[kind], (len(rest),), tuple(from_json(x, depth + 1) for x in rest))
    if kind in ("dict", "record", "fields") and rest and isinstance(rest[0], list):
        labels, children = tuple(rest[0]), tuple(from_json(x, depth + 1) for x in rest[1:])
        if len(labels) == len(children) and all(_is_label(x, kind) for x in labels) and len({*labels}) == len(labels):
            return Structure(dict if kind == "dict" else Fields if kind == "fields" else record_of(labels), labels,
                             children)
    raise DamagedFile(f"{found!r:.100} is no structure of arguments or results")


def _is_label(label: Any, kind: str) -> bool:
    if kind == "dict":
        return type(label) in (str, int)
    return isinstance(label, str) and label.isidentifier() and not keyword.iskeyword(label) and label[0] != "_"
