"""Code and the values it starts from -> everything that the code can read by name, as guards.

From a function, the walk follows globals, closure cells, defaults, attributes, items of containers.  Of an object it
looks at the attributes whose names occur in the code that ran; at all of them where that code makes up names
(`getattr(x, "w" + k)`, `vars(x)`).  Attributes of library modules are compared, and not followed.  What can be neither
compared nor described, such as the position of an iterator, is `opaque`, and the function runs with graph breaks.
"""

from __future__ import annotations

import array
import contextlib
import contextvars
import decimal
import functools
import operator
import queue
import random
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState

from tenon.capture.argument_roots import Roots, weakly
from tenon.capture.c_function_purity import keeps_a_state
from tenon.capture.class_inspection import StandsFor, has_own
from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.guard_places import without
from tenon.capture.guard_readers import length
from tenon.capture.guards import Guards, is_atom
from tenon.capture.reached_containers import ReachedContainers, c_memory
from tenon.capture.reached_functions import ReachedFunctions
from tenon.capture.reached_objects import ReachedObjects
from tenon.capture.reached_state import ReachedState
from tenon.capture.symbolic_numbers import SYMBOLIC, SymNumber
from tenon.capture.text_streams import is_told
from tenon.tensor import Tensor

BYTES = (bytearray, memoryview, array.array)
SYNCHRONIZED = (queue.Queue, threading.Condition, threading.Thread)


class Reach(ReachedFunctions, ReachedContainers, ReachedState, ReachedObjects):
    """Everything that a set of code can read from given roots by name."""

    def cached(self) -> frozenset[types.CodeType]:
        """The code of the functions whose results a cache keeps."""
        return frozenset(f.__wrapped__.__code__ for f in self.caches)

    def guards(self, roots: Roots) -> Guards:
        """What was found, as conditions; arguments that are `roots` are not kept alive."""
        groups = without(self.groups, self._moved) if self._moved else self.groups
        if any(type(x) in SYMBOLIC for group in groups for x in group.expected):
            raise UnsafeCall("a number that changes stands where it cannot be read anew")
        return Guards(weakly(groups, roots), self.absent)

    def add(self, value: Any, path: str) -> None:
        """Follow a value that needs no guard of its own, such as an argument."""
        if isinstance(value, (SymNumber, OfCapture)):
            return
        if is_atom(value):
            self._add_atom(value, path)
            return
        if isinstance(value, Tensor):
            if id(value) not in self.tensors and has_own(value):
                self._add_object(value, path)
            self.tensors.add(id(value))
            return
        if (id(value) in self._appended or isinstance(value, (list, deque))) and self._only_appended(path):
            self._alive.append(value)           # what it holds does not matter
            return
        if type(value) is list and self._only_counted(path):
            self._alive.append(value)
            self._items(length, value, length(value), f"length of {path}", follow=False)
            return
        if id(value) in self._stored and (keys := self._only_stored(path)) is not None:
            self._add_stored(value, keys, path)
            return
        if id(value) in self._visited:
            return
        self._visited.add(id(value))
        self._alive.append(value)
        for classes, follow in kinds():
            if isinstance(value, classes):
                follow(self, value, path)
                return
        if is_told(value):
            self._add_stream(value, path)
            return
        if keeps_a_state(value):
            self.iterators.append(value)
            self.opaque.append(f"{path} keeps what it was given ({type(value).__name__})")
            return
        if hasattr(type(value), "__next__") and not isinstance(type(value).__next__, types.FunctionType):
            self.iterators.append(value)
            self.opaque.append(f"{path} is an iterator ({type(value).__name__}), whose position is no part of a graph")
            return
        self._add_object(value, path)

    def add_argument(self, tensor: Tensor, path: str) -> None:
        """A tensor among the arguments, which is another one in every call: so may be what it has attributes for."""
        if has_own(tensor):
            self.add(type(tensor), type(tensor).__name__)
            named = self._wanted(vars(tensor))
            if named:
                self.opaque.append(f"{path}, a tensor, has an attribute {named[0]!r}, which another one may have not")


@cache
def kinds() -> tuple[tuple[Any, Callable[[Reach, Any, str], None]], ...]:
    """What is looked at in which way; made at first use, since NumPy's generators take long to load."""
    return (
        (types.FunctionType, Reach._add_function),
        (types.MethodType, Reach._add_method),
        (types.CellType, Reach._add_cell),
        (partial, Reach._add_partial),
        (StandsFor, Reach._add_stand_in),
        (functools._lru_cache_wrapper, Reach._add_cached),
        ((operator.attrgetter, operator.methodcaller), Reach._add_getter),
        (types.MappingProxyType, Reach._add_view),
        (contextlib._GeneratorContextManagerBase, Reach._add_context),
        (SYNCHRONIZED, Reach._add_synchronized),
        (type, Reach._add_class),
        (types.ModuleType, Reach._add_module),
        ((list, tuple, deque), Reach._add_sequence),
        (dict, Reach._add_dict),
        ((set, frozenset), Reach._add_set),
        ((*BYTES, *c_memory()), Reach._add_bytes),
        (np.ndarray, Reach._add_array),
        ((random.Random, Generator, RandomState), Reach._add_random),
        (weakref.ref, Reach._add_reference),
        (contextvars.ContextVar, Reach._add_variable),
        (decimal.Decimal, Reach._add_decimal),
    )
