"""Guards on Python values -> conditions that machine code checks (`tenon.cpython.guard_table`).

What machine code can read: attributes and items of dictionaries with names for keys, items of lists, closure cells,
classes of objects, the parts of functions.  It compares by identity; where a value is another object that is equal,
`Guards.hold` finds that out, and new conditions are made, in which Python looks at that holder.
"""

from __future__ import annotations

import gc
import types
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from operator import is_not, itemgetter
from typing import Any

import numpy as np

from tenon.capture.argument_roots import direct
from tenon.capture.guard_readers import FUNCTION, bases, cell_contents, default_factory
from tenon.capture.guards import CLASS, MISSING, GuardGroup, Guards
from tenon.cpython import guard_table as native
from tenon.cpython import object_layout

CHANGES = -1        # in the place of the version of a dictionary that is another at every call


class GuardConditions:
    """The conditions of some guards; `rest` are the guards that stay with Python."""

    def __init__(self, guards: Guards):
        self.native = native.Conditions()
        # What they point to. The guards themselves take equal objects in the place of these, and let them go: another
        # text could be at the same address then.
        self.kept: list[Any] = [group.expected for group in guards.groups]
        self._known: set[tuple[int, int]] = set()
        self._versions: dict[int, int] = {}
        self._versions_before = guards.versions
        self._stored = {id(group.holder) for group in map(direct, guards.groups) if group.anew}
        rest = [group for group in guards.groups if group.anew or not self._add(group)]
        absent = [entry for entry in guards.absent if not self._add_absent(*entry)]
        self.rest = Guards(rest, absent) if rest or absent else None

    def _add(self, group: GuardGroup) -> bool:
        """Whether machine code checks this group; a root is an argument of the call, looked at before."""
        group = direct(group)
        if group.read is CLASS:
            return self._object(group.holder, *group.expected)
        if group.read is FUNCTION:
            return self._function(group.holder, group.expected)
        if group.read is cell_contents:
            return self._word(id(group.holder) + object_layout.CELL, _pointer(group.expected[0]))
        if group.read is bases:
            return self._part(group, _bases_offset())
        if group.read is default_factory:
            return group.expected[0] is not None and self._part(group, _factory_offset())
        if group.read is iter and isinstance(group.holder, list):
            return self._list(group.holder, group.expected)
        if group.read in (dict.keys, dict.values):
            return self._whole(group)
        if isinstance(group.read, itemgetter):
            return self._items(group.holder, dict(zip(group.read.__reduce__()[1], group.expected, strict=True)))
        return False

    def _add_absent(self, table: Any, names: frozenset[str], path: str) -> bool:
        return self._items(table, dict.fromkeys(names, MISSING))

    def _word(self, address: int, expected: int) -> bool:
        """The word at an address, where it is now as expected."""
        if object_layout.word_at(address) != expected:
            return False
        if (address, expected) not in self._known:
            self._known.add((address, expected))
            self.native.words.append((address, expected))
        return True

    def _version(self, table: Any, offset: int) -> int:
        """The place of a dictionary's version, which is read before what it stands for is looked at."""
        address = id(table) + offset
        if address not in self._versions:
            self._versions[address] = len(self._versions)
            self.native.versions.append((address, object_layout.word_at(address)))
        return self._versions[address]

    def _object(self, holder: Any, cls: Any, table: Any) -> bool:
        offset = object_layout.dict_offset(holder)
        return bool(offset) and self._word(id(holder) + object_layout.TYPE, id(cls)) and \
            self._word(id(holder) + offset, id(table))

    def _function(self, function: Any, expected: Sequence[Any]) -> bool:
        return all(offset > 0 and self._word(id(function) + offset, 0 if value is None else id(value))
                   for offset, value in zip(_function_offsets(), expected, strict=True))

    def _part(self, group: GuardGroup, offset: int) -> bool:
        """The one thing that a holder keeps at an offset."""
        return offset > 0 and self._word(id(group.holder) + offset, id(group.expected[0]))

    def _list(self, holder: list[Any], expected: Sequence[Any]) -> bool:
        pointers = np.array([id(x) for x in expected], np.int64)
        self.kept.append(pointers)
        if not self._word(id(holder) + object_layout.LENGTH, len(expected)):
            return False
        self.native.lists.append((id(holder) + object_layout.LIST_ITEMS, pointers.ctypes.data, len(expected)))
        return True

    def _whole(self, group: GuardGroup) -> bool:
        """All keys or values of a dictionary: right while it is unchanged; else `Guards.hold` has to look."""
        offset = object_layout.dict_version_offset()
        if not offset or id(group.holder) in self._stored or not self._steady(group.holder, offset):
            return False
        place = self._version(group.holder, offset)
        if group.failing() is not None:
            return False
        self.native.entries += (native.DICTIONARY, place, 1, 0), (native.WHOLE, 0, 0, 0)
        return True

    def _steady(self, table: Any, offset: int) -> bool:
        """Whether a dictionary is as it was when a table was made before, which did not hold since."""
        version = object_layout.word_at(id(table) + offset)
        if self._versions_before.setdefault(id(table), version) != version:
            self._versions_before[id(table)] = CHANGES
        return self._versions_before[id(table)] == version

    def _items(self, holder: Any, expected: dict[str, Any]) -> bool:
        table = _dictionary(holder)
        if table is None or not {str}.issuperset(map(type, expected)):
            return False
        offset = object_layout.dict_version_offset()
        place = self._version(table, offset) if offset else 0
        values = expected.values()
        if any(map(is_not, map(table.get, expected, repeat(MISSING)), values)):     # thousands, for a model: no loop
            return False
        self.kept += table, list(expected)
        entries = list(zip(repeat(native.ENTRY), repeat(id(table)), map(id, expected),
                           map(_pointer, values), strict=False))
        if offset:
            self.native.entries.append((native.DICTIONARY, place, len(entries), 0))
        self.native.entries += entries
        return True


def _pointer(value: Any) -> int:
    return 0 if value is MISSING else id(value)


def _dictionary(holder: Any) -> dict[str, Any] | None:
    """The dictionary behind a table of names, which is one itself or the view of a class's."""
    if isinstance(holder, types.MappingProxyType):
        found = gc.get_referents(holder)
        holder = found[0] if len(found) == 1 else None
    return holder if type(holder) is dict else None


@cache
def _function_offsets() -> tuple[int, ...]:
    """Where a function keeps its code, its defaults and its keyword defaults."""
    scope: dict[str, Any] = {}
    def probe(a: Any = scope, *, b: Any = None) -> None: ...
    return tuple(object_layout.field_offset(probe, part) for part in FUNCTION(probe))


@cache
def _bases_offset() -> int:
    """Where a class keeps the classes that it inherits from."""
    class Probe: ...
    return object_layout.field_offset(Probe, Probe.__mro__)


@cache
def _factory_offset() -> int:
    """Where a `defaultdict` keeps its factory."""
    def probe() -> None: ...
    return object_layout.field_offset(defaultdict(probe), probe)
