"""What a captured function read from Python -> conditions that a later call checks before it reuses the capture.

A `GuardGroup` is a holder (an object's attributes, a list, the closure of a function), what reads it, and what was
read: immutable values are compared by equality, everything else by identity.  `Guards` checks all groups in one pass of
C code and looks at them one by one only where that fails.  `tenon.capture.guard_discovery` finds the groups.
"""

from __future__ import annotations

import datetime
import enum
import pathlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, call, is_
from typing import Any

import numpy as np

from tenon.graph.op import OPS
from tenon.graph.structural_key import exactly
from tenon.records import dataclass
from tenon.types import DType

DATES = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
SCALARS = (np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16,
           np.uint8)
ATOMS = (bool, int, float, complex, str, bytes, type(None), np.dtype, range, type(Ellipsis), slice, *DATES, *PATHS)
OBVIOUS = (".__code__", ".__class__", ".__dict__")      # compared, but not told: they hardly ever change
DEFAULTS = (".__defaults__", ".__kwdefaults__")
CLASS, DICT = attrgetter("__class__", "__dict__"), attrgetter("__dict__")       # of an object
MISSING = object()


def is_atom(value: Any) -> bool:
    """Whether equality says everything about this value: it cannot change, and holds nothing that can."""
    return type(value) in ATOMS or isinstance(value, (np.generic, enum.Enum, DType, np.dtype))


def is_value(x: Any) -> bool:
    """The same, of a frozen set of such values too."""
    return is_atom(x) or (type(x) is frozenset and all(map(is_atom, x)))


def same_atom(value: Any, expected: Any) -> bool:
    """Equality of immutable values: same type, same value, NaN equal to itself, 0.0 apart from -0.0."""
    if value is expected:
        return True
    if type(value) is not type(expected):
        return False
    if type(expected) is tuple:
        return len(value) == len(expected) and all(map(same_atom, value, expected))
    known = all(map(is_atom, expected)) if isinstance(expected, frozenset) else is_atom(expected)
    return known and exactly(value) == exactly(expected)


@dataclass(eq=False)
class GuardGroup:
    """`read(holder)` must give `expected`, item by item."""

    read: Callable[[Any], Iterable[Any]]
    holder: Any
    expected: Sequence[Any]
    path: str
    labels: Sequence[Any] = ()
    sized: bool = False         # the holder has a length, which may change
    owner: Any = None           # the class whose attributes the holder shows
    anew: bool = False          # values were equal, and other objects: they may be made for each call

    def holds(self) -> bool:
        """Whether every value is what it was."""
        try:
            now = tuple(self.read(self.holder))
        except Exception:
            return False
        if len(now) != len(self.expected) or not all(map(same_atom, now, self.expected)):
            return False
        self.anew = self.anew or not all(map(is_, now, self.expected))
        self.expected = now     # equal, but other objects: let the next check find them by identity
        return True

    def failing(self) -> str | None:
        """The first value that is not what it was, in words; None where all are."""
        if self.holds():
            return None
        try:
            now = tuple(self.read(self.holder))
        except Exception as error:
            return f"{self.path}: {error}"
        if len(now) != len(self.expected):
            return f"{self.path} has {len(now)} items, and had {len(self.expected)}"
        if (found := self.differing(now)) is not None:
            k, value, expected = found
            label = self.path + (str(self.labels[k]) if k < len(self.labels) else "")
            return f"{label} is {short(value)}, and was {short(expected)}"
        return None

    def differing(self, now: Sequence[Any]) -> tuple[int, Any, Any] | None:
        """The first item that is not what it was: its place, and both values."""
        return next(((k, value, expected) for k, (value, expected) in enumerate(zip(now, self.expected, strict=False))
                     if not same_atom(value, expected)), None)


def short(value: Any) -> str:
    """A value in a line."""
    return "absent" if value is MISSING else f"{value!r:.60}"


def _of_operators() -> Iterator[int]:
    """The identities of what Tenon's own operators are made of, which nobody changes."""
    for op in OPS.values():
        yield from map(id, (op, vars(op), op.examples, op.signature, vars(op.signature)))


class Guards:
    """All conditions of a capture on Python values."""

    def __init__(self, groups: Sequence[GuardGroup], absent: Sequence[tuple[Any, frozenset[str], str]] = ()):
        self.groups, self.absent = list(groups), list(absent)
        self.versions: dict[int, int] = {}      # that whole dictionaries had when machine code last looked at them
        self._objects = [g for g in self.groups if g.read is CLASS]
        self._others = [g for g in self.groups if g.read is not CLASS and (g.expected or not g.sized)]
        sized = [g for g in self.groups if g.sized]
        self._sized = [g for g in sized if not isinstance(g.holder, weakref.ref)]
        self._containers = [g.holder for g in self._sized]
        self._referred = [g for g in sized if isinstance(g.holder, weakref.ref)]
        self._names, self._tables = [names for _, names, _ in absent], [table for table, _, _ in absent]
        self._refresh()

    def __len__(self) -> int:
        return sum(len(g.expected) for g in self.groups) + len(self.absent)

    def values(self) -> Iterator[str]:
        """The conditions on plain values, in words; functions, modules and objects are compared by identity."""
        operators = set(_of_operators())
        for g in self.groups:
            if g.path.startswith(("keys of", "the attributes of")) or id(g.holder) in operators:
                continue
            for label, value in zip(g.labels or [""] * len(g.expected), g.expected, strict=False):
                plain = is_atom(value) or (type(value) is tuple and all(map(is_atom, value)))
                if plain and label not in OBVIOUS and not (value is None and label in DEFAULTS):
                    yield f"{(g.path + label).lstrip('.')} is {short(value)}"

    def _refresh(self) -> None:
        self._users, self._classes, self._dicts = [], [], []
        for g in self._objects:
            self._users.append(g.holder)
            self._classes.append(g.expected[0])
            self._dicts.append(g.expected[1])
        self._reads, self._holders = [g.read for g in self._others], [g.holder for g in self._others]
        self._expected = [value for g in self._others for value in g.expected]
        self._lengths = [len(g.expected) for g in self._sized]

    def hold(self) -> bool:
        """Whether every value is what it was."""
        try:
            if (list(map(len, self._containers)) == self._lengths
                    and all(len(g.holder()) == len(g.expected) for g in self._referred)
                    and all(map(is_, chain.from_iterable(map(call, self._reads, self._holders)), self._expected))
                    and all(map(is_, map(type, self._users), self._classes))
                    and all(map(is_, map(DICT, self._users), self._dicts))
                    and all(map(frozenset.isdisjoint, self._names, self._tables))):
                return True
        except Exception:       # an attribute, item or cell that is gone
            return False
        if not all(g.holds() for g in self.groups) or not all(map(frozenset.isdisjoint, self._names, self._tables)):
            return False
        self._refresh()
        return True

    def failing(self) -> str | None:
        """The first condition that does not hold, in words."""
        found = next((failure for g in self.groups if (failure := g.failing()) is not None), None)
        return found or next((f"{path}.{next(iter(names & set(table)))} was absent"
                              for table, names, path in self.absent if not names.isdisjoint(table)), None)

    def differing(self) -> tuple[Any, Any] | None:
        """The first value that is not what it was, and what it was, where there is one in its place."""
        for g in self.groups:
            try:
                now = tuple(g.read(g.holder))
            except Exception:
                return None
            if (found := g.differing(now)) is not None:
                return found[1:]
        return None
