"""Containers, bytes and arrays -> their items, or a copy to compare them with."""

from __future__ import annotations

import gc
import sys
import types
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.capture.guard_readers import (
    all_bytes,
    default_factory,
    elements,
    members,
    refill,
    sequence_reader,
    set_default_factory,
)
from tenon.capture.kept_state import KeptThing
from tenon.capture.pytree import table_type
from tenon.capture.reached_values import ReachedValues

LARGEST_ARRAY = 1 << 16         # bytes whose change is noticed by comparing them
MAX_KEPT = 1 << 26              # bytes of an array that are put back when the function changes it


class ReachedContainers(ReachedValues):
    """What containers lead to."""

    def _add_sequence(self, value: Any, path: str) -> None:
        if self._too_long(value, path):
            return
        labels = [f"[{k}]" for k in range(len(value))]
        if isinstance(value, (list, deque)):
            self._hold(value)
            read = sequence_reader(value)
            self._items(read, value, tuple(read(value)), path, labels, sized=True)
        else:
            for label, item in zip(labels, value, strict=True):
                self.add(item, path + label)
        self._own_attributes(value, path)

    def _add_dict(self, value: dict[Any, Any], path: str) -> None:
        if self._too_long(value, path):
            return
        self._hold(value)
        keys = table_type(type(value)).keys     # machine code knows no order but that of a `dict`
        self._items(keys, value, tuple(keys(value)), f"keys of {path}", sized=True)
        self._items(dict.values, value, tuple(dict.values(value)), path, [f"[{k!r}]" for k in dict.keys(value)],
                    sized=True)
        if isinstance(value, defaultdict):
            self._items(default_factory, value, default_factory(value), path, [".default_factory"])
            if self.codes is None:
                self.kept.append(KeptThing(value, default_factory, set_default_factory, f"{path}.default_factory"))
        self._own_attributes(value, path)

    def _add_stored(self, value: dict[Any, Any], keys: frozenset[Any], path: str) -> None:
        """A dictionary that the code only sets items of: what stood there matters only where it was not changed."""
        self._alive.append(value)
        self._entries(value, [k for k in keys.difference(self._stored[id(value)]) if k in value], path)
        if len(keys) > 1 and not keys.isdisjoint(value):        # in which order they stand
            self._items(dict.keys, value, tuple(dict.keys(value)), f"keys of {path}", sized=True)

    def _add_set(self, value: Any, path: str) -> None:
        if self._too_long(value, path):
            return
        if isinstance(value, set):
            self._hold(value)
            self._items(members, value, members(value), path, follow=False)
        for item in value:
            self.add(item, f"an item of {path}")

    def _add_view(self, view: types.MappingProxyType[Any, Any], path: str) -> None:
        for table in gc.get_referents(view):
            self.add(table, path)

    def _add_bytes(self, value: Any, path: str) -> None:
        size = memoryview(value).nbytes
        if self.codes is not None and size > LARGEST_ARRAY:
            self.opaque.append(f"{path} holds {size} bytes, too many to be compared at every call")
            return
        self._items(all_bytes, value, all_bytes(value), path, follow=False)
        if self.codes is None and size <= MAX_KEPT and not getattr(value, "readonly", False):
            self.kept.append(KeptThing(value, bytes, refill, path))

    def _add_array(self, value: np.ndarray, path: str) -> None:
        self.arrays.append((value, path))
        for item in value.flat if value.dtype == object else ():
            self.add(item, f"an item of {path}")
        if self.codes is None and value.nbytes <= MAX_KEPT and value.flags.writeable and value.dtype != object:
            self.kept.append(KeptThing(value, np.copy, np.copyto, path))

    def compare_arrays(self, used: Sequence[Any]) -> None:
        """Guard the elements of the arrays found, but for those that the graph reads at every call."""
        for value, path in self.arrays:
            if any(value is x or x.base is value for x in used if isinstance(x, np.ndarray)):
                continue
            if value.nbytes > LARGEST_ARRAY:
                self.opaque.append(f"{path} is a NumPy array of {value.nbytes} bytes, read outside the graph")
            else:
                self._items(elements, value, elements(value), path, follow=False)


def c_memory() -> tuple[type, ...]:
    """What is memory of its own, where it is loaded; a pointer says nothing of what it points to."""
    found, mapped = sys.modules.get("_ctypes"), sys.modules.get("mmap")
    return (*(() if found is None else (found._SimpleCData, found.Structure, found.Union, found.Array)),
            *(() if mapped is None else (mapped.mmap,)))
