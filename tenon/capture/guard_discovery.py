"""Code and the values it starts from -> everything that the code can read by name, as guards.

From a function, the walk follows globals, closure cells, defaults, attributes, items of containers.  Of an object it
looks at the attributes whose names occur in the code that ran; at all of them where that code makes up names
(`getattr(x, "w" + k)`, `vars(x)`).  Attributes of library modules are compared, and not followed.  What can be neither
compared nor described, such as the position of an iterator, is `opaque`, and the function runs by part.
"""

from __future__ import annotations

import array
import contextlib
import contextvars
import enum
import functools
import gc
import importlib.util
import operator
import queue
import random
import sys
import threading
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState

from tenon.capture.acts import keeps_a_state
from tenon.capture.argument_roots import Roots, weakly
from tenon.capture.class_hooks import LOOKING_UP, hidden_calls, registrations, takes_registrations
from tenon.capture.classes import (
    StandsFor,
    functions_of,
    has_own,
    hidden_attributes,
    inherited_names,
    is_fixed,
    is_library,
    looks_at_its_own,
)
from tenon.capture.code_monitor import LIBRARIES, PACKAGE, KeptThing, UnsafeCall, follows
from tenon.capture.code_names import formatted, module_of, names_of, only_appends, only_counts, stored_keys
from tenon.capture.convert.reachable import OfCapture
from tenon.capture.guard_places import ENTRY, OF_A_LIBRARY, Key, places_of, without
from tenon.capture.guard_readers import (
    BUILTINS,
    FUNCTION,
    PARTIAL,
    all_bytes,
    bases,
    cell_contents,
    default_factory,
    defaults_with_lists,
    elements,
    entry_reader,
    frozen,
    generator_state,
    kept_by,
    length,
    misses,
    read_slots,
    referent,
    refill,
    sequence_reader,
    set_default_factory,
    set_generator_state,
    slot_names,
    value_of,
)
from tenon.capture.guards import CLASS, GuardGroup, Guards, is_atom
from tenon.capture.symbolic_numbers import SYMBOLIC, SymNumber
from tenon.capture.text_streams import is_closed, is_told, position, set_position
from tenon.tensor import Tensor

LARGEST_CONTAINER = 100_000
LARGEST_ARRAY = 1 << 16         # bytes whose change is noticed by comparing them
MOST_KEPT = 1 << 26             # bytes of an array that are put back when the function changes it
BYTES = (bytearray, memoryview, array.array)
OTHERS_NAMES = frozenset(("args", "keywords", "__defaults__", "__kwdefaults__"))    # parameters have their own
SYNCHRONIZED = (queue.Queue, threading.Condition, threading.Thread)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
# Methods that operators, `bool` and loops ask for, and do without where a class has none.
ASKED_FOR = frozenset(("__bool__", "__len__", "__iter__", "__contains__", "__getattr__", "__getattribute__",
                       "__setattr__", "__delattr__", "__eq__", "__hash__", "__call__", "__index__", "__float__"))
STREAM_NAMES = ("stdout", "stderr")
ABOUT_STREAMS = frozenset(("encoding", "errors", "newlines", "closed", "name", "mode", "buffer", "line_buffering"))


class Reach:
    """Everything that a set of code can read from given roots by name."""

    def __init__(self, codes: set[types.CodeType] | None, appended: Iterable[int] = (),
                 stored: Mapping[int, Collection[Any]] | None = None, moved: Collection[Key] = (),
                 library: Iterable[types.CodeType] = (), named: frozenset[str] = frozenset(),
                 changed: Collection[tuple[int, Any]] = ()):
        self.codes = codes                      # None: whatever code the roots lead to, and every attribute
        self._appended = frozenset(appended)    # identities of lists and queues that got longer
        self._stored = stored or {}             # identity of a dictionary -> the keys that were set, and nothing else
        self._moved = moved                     # places that are read anew in every call
        self._changed = changed                 # identities of objects, and attributes that are others by now
        self._assigned: frozenset[str] = frozenset()        # globals and attributes that users' code sets
        self.groups: list[GuardGroup] = []
        self.absent: list[tuple[Any, frozenset[str], str]] = []
        self.holders: dict[int, Any] = {}       # mutable containers and objects found, for effects
        self.cells: list[types.CellType] = []
        self.kept: list[KeptThing] = []              # what only copies of can tell whether the function changed it
        self.tensors: set[int] = set()          # identities of the tensors found
        self.arrays: list[tuple[np.ndarray, str]] = []
        self.opaque: list[str] = []
        self.iterators: list[Any] = []
        self.ending: list[str] = []             # why making objects of a class is an act
        self.passed: list[types.CodeType] = []      # of functions that were found, and did not run
        self.caches: list[Any] = []             # functions of `functools.lru_cache`
        self.named = named                      # attributes that objects look up, as `operator.attrgetter` does
        self._builtins: dict[int, set[str]] = {}
        self._own_names: frozenset[str] = frozenset()       # those of the users' code
        self._loaded: frozenset[str] = frozenset()          # globals and cells that it reads
        self._references: list[tuple[Any, str]] = []
        self._visited: set[int] = set()
        self._alive: list[Any] = []
        self._names: frozenset[str] | None = None
        self._everything_of_layers = codes is None
        if codes is not None:
            found = {code: names_of(code) for code in codes}
            self._everything_of_layers = any(n.computed for n in found.values())
            libraries = {code: names_of(code) for code in library}
            if not any(n.computed and not code.co_filename.startswith(PACKAGE) for code, n in found.items()) \
                    and not any(n.computed and not looks_at_its_own(code) for code, n in libraries.items()):
                self._names = named.union(*(n.attributes for n in (*found.values(), *libraries.values())))
            own = [n for code, n in found.items() if not code.co_filename.startswith(PACKAGE)]
            self._own_names = named.union(*(n.attributes for n in own))
            self._assigned = frozenset().union(*(n.stored for n in own))
            self._loaded = frozenset().union(*(n.global_names.union(code.co_freevars, code.co_cellvars)
                                               for code, n in found.items() if n in own))

    def cached(self) -> frozenset[types.CodeType]:
        """The code of the functions whose results a cache keeps."""
        return frozenset(f.__wrapped__.__code__ for f in self.caches)

    def known(self) -> set[int]:
        """The identities of all that was found."""
        return self._visited | self.tensors

    def guards(self, roots: Roots) -> Guards:
        """What was found, as conditions; arguments that are `roots` are not kept alive."""
        groups = without(self.groups, self._moved) if self._moved else self.groups
        if any(type(x) in SYMBOLIC for group in groups for x in group.expected):
            raise UnsafeCall("a number that changes stands where it cannot be read anew")
        return Guards(weakly(groups, roots), self.absent)

    # ------------------------------------------------------------ one value

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

    def _add_atom(self, value: Any, path: str) -> None:
        """A value that equality says everything about, but for the attributes of a member of a user's enumeration."""
        if type(value) is str:
            self.named = self.named.union(formatted(value)) if "{" in value else self.named
        elif isinstance(value, enum.Enum) and id(value) not in self._visited and not is_library(type(value)):
            self._visited.add(id(value))
            self._alive.append(value)
            self._add_object(value, path)

    def _only_appended(self, path: str) -> bool:
        """Whether the code does nothing with what it finds under the last name of a path, or its items, but append."""
        items = path.endswith("]")
        name = self._last_name(path[:path.rindex("[")] if items else path)
        return bool(name) and all(only_appends(c, name, items) for c in self.codes or ())

    def _only_counted(self, path: str) -> bool:
        """Whether the code does nothing with what it finds under the last name of a path but append, and ask for its
        length, all in one function: another one's appends would not be seen."""
        name = self._last_name(path)
        using = [c for c in self.codes or () if name in (*c.co_names, *c.co_freevars, *c.co_cellvars, *c.co_varnames)]
        return bool(name) and len(using) == 1 and only_counts(using[0], name)

    def _only_stored(self, path: str) -> frozenset[Any] | None:
        """The keys that the code sets, where it does nothing else with what it finds under the last name of a path."""
        name = self._last_name(path)
        found = [stored_keys(c, name) for c in self.codes or ()] if name else [None]
        return None if None in found else frozenset().union(*(keys for keys in found if keys is not None))

    def _last_name(self, path: str) -> str:
        """"" where the last part of a path is none that code uses for it, or code makes up names."""
        name = path.rpartition(".")[2].strip("<>")
        used = any(name in names for c in self.codes or ()
                   for names in (c.co_names, c.co_freevars, c.co_cellvars, c.co_varnames))
        return name if used and name not in OTHERS_NAMES and self._names is not None else ""

    def _items(self, read: Callable[[Any], Iterable[Any]], holder: Any, values: Sequence[Any], path: str,
               labels: Sequence[Any] = (), sized: bool = False, follow: bool = True, owner: Any = None) -> None:
        """Guard what `read(holder)` gives, and follow it, but for what stands there only now."""
        group = GuardGroup(read, holder, tuple(values), path, labels, sized, owner)
        self.groups.append(group)
        if follow:
            moved = {k for k, place in enumerate(places_of(group)) if place.name in self._moved} if self._moved else ()
            for k, value in enumerate(values):
                if k in moved:
                    continue
                self.add(value, path + (labels[min(k, len(labels) - 1)] if labels else ""))    # one name is read twice

    def _entries(self, table: Any, names: Sequence[str], path: str, follow: bool = True,
                 owner: Any = None) -> None:
        """Guard some entries of a dictionary of names, or of the view of a class's."""
        if names:
            read = entry_reader(table, names)
            self._items(read, table, read(table), path, [f".{n}" for n in names], follow=follow,
                        owner=owner)

    def _hold(self, value: Any) -> None:
        self.holders[id(value)] = value

    def _runs(self, code: types.CodeType) -> bool:
        return code in self.codes if self.codes is not None else follows(code)

    def _wanted(self, table: Any, everything: bool = False, private: bool = False) -> list[str]:
        """The names in a table that the code can read."""
        if self._names is None or everything:
            return [n for n in list(table) if isinstance(n, str)]
        return [n for n in list(table)
                if n in self._names or (private and n.startswith("_") and n != "__doc__")]

    def _add_assigned(self, table: Any, holder: Any, path: str) -> None:
        """Guard what code set to what it was before: that this changes nothing is so where it is that again."""
        if self._names is not None:
            self._entries(table, sorted(n for n in self._assigned - self._names if n in table
                                        and (id(holder), n) not in self._changed), path, follow=False)

    def add_argument(self, tensor: Tensor, path: str) -> None:
        """A tensor among the arguments, which is another one in every call: so may be what it has attributes for."""
        if has_own(tensor):
            self.add(type(tensor), type(tensor).__name__)
            named = self._wanted(vars(tensor))
            if named:
                self.opaque.append(f"{path}, a tensor, has an attribute {named[0]!r}, which another one may have not")

    # ------------------------------------------------------------ functions

    def _add_function(self, function: types.FunctionType, path: str) -> None:
        if not self._runs(function.__code__):
            # A library's wrapper, such as tn.grad(f), of the user's function; attributes that code may read.
            wanted = {"__wrapped__", *(n for n in self._wanted(vars(function)) if not n.startswith("__"))}
            self._entries(vars(function), [n for n in vars(function) if n in wanted], path)
            self._add_cells_of_library(function, path)
            if "__closure__" in self._own_names:
                for cell in function.__closure__ or ():
                    self._add_cell(cell, path)
            self.passed.append(function.__code__)
            return
        self._hold(function)
        self._hold(function.__globals__)
        named = defaults_with_lists(function)
        for name, default in named:
            self.add(default, f"{path}.<{name}>")
        self._items(FUNCTION, function, FUNCTION(function), path, [".__code__", ".__defaults__", ".__kwdefaults__"],
                    follow=not named)
        if named:
            self.add(function.__kwdefaults__, f"{path}.__kwdefaults__")
        table, names = function.__globals__, self._global_names(function.__code__)
        self._entries(table, sorted(n for n in names if n in table), "")
        self._add_assigned(table, table, "")
        self._add_builtins(BUILTINS(function), {n for n in names if n not in table})
        self._lacks(table, frozenset(n for n in names if n not in table), "globals")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.cells.append(cell)
            self._items(cell_contents, cell, cell_contents(cell), f"{path}.<{name}>")
        own = [n for n in self._wanted(vars(function)) if not n.startswith("__")]
        self._entries(vars(function), own, path)
        self._lacks(vars(function), frozenset(self._names or ()) - frozenset(vars(function)), path)
        for name, level in names_of(function.__code__).imports:
            full = importlib.util.resolve_name("." * level + name, table.get("__package__")) if level else name
            if full in sys.modules:
                self._entries(sys.modules, [full], "sys.modules", follow=False)
                self.add(sys.modules[full], full)

    def _add_builtins(self, table: dict[str, Any], names: set[str]) -> None:
        """What names mean that no module's globals have."""
        known = self._builtins.setdefault(id(table), set())
        self._entries(table, sorted(n for n in names - known if n in table), "")
        self._lacks(table, frozenset(n for n in names - known if n not in table), "builtins")
        known |= names

    def _add_cells_of_library(self, function: types.FunctionType, path: str) -> None:
        """What a function made by a library keeps for its user, as `functools.singledispatch` does."""
        if function.__code__.co_filename.startswith(PACKAGE) or self._runs(function.__code__):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            (content,) = cell_contents(cell)
            if type(content) in CONTAINERS or isinstance(content, types.FunctionType):
                self._items(cell_contents, cell, (content,), f"{path}.<{name}>")

    def _add_cell(self, cell: types.CellType, path: str) -> None:
        """What a closure keeps, which is read without a call of it."""
        self.cells.append(cell)
        self._items(cell_contents, cell, cell_contents(cell), f"a cell of {path}")

    def _global_names(self, code: types.CodeType) -> set[str]:
        found = set(names_of(code).global_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found |= self._global_names(constant)
        return found

    def _add_method(self, method: types.MethodType, path: str) -> None:
        self.add(method.__self__, path + ".__self__")
        self.add(method.__func__, path)

    def _add_partial(self, bound: partial[Any], path: str) -> None:
        self._items(PARTIAL, bound, PARTIAL(bound), path, [".func", ".args", ".keywords"])

    def _add_stand_in(self, value: StandsFor, path: str) -> None:
        """A jitted function: the function, and what users gave it for attributes."""
        table = vars(value)
        self._hold(value)
        self._entries(table, ["function", *(n for n in self._wanted(table) if n not in value.own)], path)
        self._lacks(table, self._own_names - frozenset(table), path)

    def _add_cached(self, function: Any, path: str) -> None:
        """`functools.lru_cache`: what it remembers is good until it is cleared, and may be changed.

        Tenon's own caches keep what any process would compute, and grow with whatever else this one does.
        """
        self.add(function.__wrapped__, path)
        code = getattr(function.__wrapped__, "__code__", None)
        if code is not None and code.co_filename.startswith(PACKAGE):
            return
        self._items(misses, function, misses(function), path)
        if code is not None and follows(code):
            self.caches.append(function)
            for value in kept_by(function):
                self.add(value, f"a result of {path}")

    def _add_getter(self, getter: Any, path: str) -> None:
        """`operator.attrgetter` and `methodcaller`, which hold names."""
        names = [x for x in getter.__reduce__()[1] if isinstance(x, str)]
        self.named = self.named.union(part for name in names for part in name.split("."))
        if isinstance(getter, operator.methodcaller):
            for value in getter.__reduce__()[1]:
                self.add(value, path)

    def _add_view(self, view: types.MappingProxyType[Any, Any], path: str) -> None:
        for table in gc.get_referents(view):
            self.add(table, path)

    # ------------------------------------------------------------ containers

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
        self._items(dict.keys, value, tuple(dict.keys(value)), f"keys of {path}", sized=True)
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
            self._items(frozen, value, (frozenset(value),), path, follow=False)
        for item in value:
            self.add(item, f"an item of {path}")

    def _too_long(self, value: Any, path: str) -> bool:
        if len(value) > LARGEST_CONTAINER and self.codes is not None:
            self.opaque.append(f"{path} has {len(value)} items, too many to be compared at every call")
        return len(value) > LARGEST_CONTAINER

    def _own_attributes(self, value: Any, path: str) -> None:
        """Of a class that inherits from a container."""
        if module_of(type(value)) not in ("builtins", "collections"):
            self._add_object(value, path)

    # ------------------------------------------------------------ bytes, arrays, generators of random numbers

    def _add_bytes(self, value: Any, path: str) -> None:
        size = memoryview(value).nbytes
        if self.codes is not None and size > LARGEST_ARRAY:
            self.opaque.append(f"{path} holds {size} bytes, too many to be compared at every call")
            return
        self._items(all_bytes, value, all_bytes(value), path, follow=False)
        if self.codes is None and size <= MOST_KEPT and not getattr(value, "readonly", False):
            self.kept.append(KeptThing(value, bytes, refill, path))

    def _add_array(self, value: np.ndarray, path: str) -> None:
        self.arrays.append((value, path))
        for item in value.flat if value.dtype == object else ():
            self.add(item, f"an item of {path}")
        if self.codes is None and value.nbytes <= MOST_KEPT and value.flags.writeable and value.dtype != object:
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

    def _add_stream(self, value: Any, path: str) -> None:
        """A file that the function can only write to, or whose position says whether it was read."""
        if self.codes is None:
            self.kept.append(KeptThing(value, position, set_position, path))
        else:
            self._items(is_closed, value, (False,), path, [".closed"], follow=False)

    def _add_context(self, manager: Any, path: str) -> None:
        """A context manager made of a generator, which begins anew where it decorates a function."""
        for name in ("func", "args", "kwds"):
            self.add(getattr(manager, name), path)

    def _add_synchronized(self, value: Any, path: str) -> None:
        """What other threads change at any time: what hands something over to them runs by part."""
        if self.codes is not None:
            self._add_object(value, path)

    def _add_random(self, value: Any, path: str) -> None:
        if self.codes is None:
            read, put_back = (random.Random.getstate, random.Random.setstate) if isinstance(value, random.Random) else \
                (generator_state, set_generator_state) if isinstance(value, Generator) else \
                (partial(RandomState.get_state, legacy=False), RandomState.set_state)
            self.kept.append(KeptThing(value, read, put_back, path))

    def _add_reference(self, value: Any, path: str) -> None:
        if self.codes is None:
            self.add(value(), path)
        else:
            self._references.append((value, path))

    def passed_by(self) -> set[types.CodeType]:
        """The users' code that was found and was not among the code that runs, with the code within it."""
        found: set[types.CodeType] = set()
        pending = [code for code in self.passed if follows(code)]
        while pending:
            if (code := pending.pop()) not in found:
                found.add(code)
                pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        return found - (self.codes or set())

    def add_references(self) -> None:
        """Weak references, at the end: a guard would keep alive what nothing else that was found holds."""
        for reference, path in self._references:
            target = reference()
            if target is None or id(target) in self.known():
                self._items(referent, reference, (target,), path)
            else:
                self.opaque.append(f"{path} refers weakly to what may be gone in another call")
        self._references.clear()

    def _add_variable(self, value: contextvars.ContextVar[Any], path: str) -> None:
        self._items(value_of, value, value_of(value), path)

    # ------------------------------------------------------------ modules, classes, objects

    def _add_module(self, module: types.ModuleType, path: str) -> None:
        if module.__name__ == "builtins":
            return
        table = vars(module)
        if not (table.get("__file__") or "").startswith(LIBRARIES) and module.__name__ not in sys.stdlib_module_names:
            self._hold(table)
            self._entries(table, [*self._wanted(table), *(n for n in ("__getattr__",) if n in table)], path)
            self._lacks(table, frozenset(self._names or ()) - frozenset(table), path)
        elif self._names is not None:
            told = STREAM_NAMES if module is sys and ABOUT_STREAMS.isdisjoint(self._names) else ()
            names = [n for n in self._wanted(table) if n not in told]     # a call writes to those that there are then
            self._entries(table, names, path, follow=False)
            for name in names:
                if isinstance(table[name], (types.ModuleType, types.FunctionType, types.MethodType, list, dict)):
                    self.add(table[name], f"{path}.{name}")
            if not LOOKING_UP.isdisjoint(self._loaded):
                self._lacks(table, self._own_names - frozenset(table), path)
            if module.__name__ == "os" and not {"environ", "getenv"}.isdisjoint(names):
                self.add(module.environ._data, "os.environ")

    def _add_class(self, cls: type, path: str) -> None:
        for base in cls.__mro__:
            if base is not cls:
                self.add(base, base.__name__)
        if is_library(cls):
            self._add_class_of_library(cls)
            return
        ours = module_of(cls).startswith("tenon.")
        if not ours:
            self._hold(cls)
        table, chosen = vars(cls), []
        wanted = set(self._wanted(table)) if not ours else set()
        for name, member in list(table.items()):
            functions = functions_of(member)
            ran = [f for f in functions if self._runs(f.__code__)]
            if name in wanted or name.startswith("__"):
                self.passed += [f.__code__ for f in functions if f not in ran]
            if ran or (name in wanted and not name.startswith("__")):
                chosen.append(name)
                for function in ran:
                    self.add(function, f"{cls.__name__}.{name}")
                if not functions and not isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                    self.add(member, f"{cls.__name__}.{name}")
        self._entries(table, chosen, cls.__name__, follow=False, owner=cls)
        if not ours:
            self._add_assigned(table, cls, cls.__name__)
        if ours:
            self._lacks(table, self._own_names - frozenset(table), cls.__name__)
        else:
            self._items(bases, cls, bases(cls), f"the bases of {cls.__name__}", follow=False)
            self._lacks(table, frozenset(self._names or ()) - frozenset(table), cls.__name__)
            self.absent.append((table, ASKED_FOR - frozenset(table), cls.__name__))
            if type(cls) is not type:
                self.add(type(cls), type(cls).__name__)
            self._add_hooks(cls, path)

    def _add_hooks(self, cls: type, path: str) -> None:
        """What Python calls, or asks, where only the class is named."""
        named = path != cls.__name__ or cls.__name__ in self._loaded    # it is not only that of an object, or a base
        if named:
            self.opaque += hidden_calls(cls, self._loaded)
        if named or self.codes is None:
            self.ending += hidden_calls(cls, frozenset())
        if takes_registrations(cls, self._loaded):
            self._items(registrations, cls, registrations(cls), f"what is registered for {path}", follow=False)

    def _add_class_of_library(self, cls: type) -> None:
        """What code names of a class that somebody may have patched, or keeps data in."""
        names = [] if is_fixed(cls) or self._names is None else [
            n for n in self._wanted(vars(cls)) if not n.startswith("__")]
        self._entries(vars(cls), names, cls.__name__, follow=False)
        for name in names:
            member = vars(cls)[name]
            if not callable(member) and not hasattr(type(member), "__get__"):
                self.add(member, f"{cls.__name__}.{name}")

    def _add_object(self, value: Any, path: str) -> None:
        cls: Any = type(value)
        if module_of(cls) == "builtins":
            return
        hidden = hidden_attributes(cls) if self.codes is not None else frozenset()
        for name in sorted(hidden if self._names is None else hidden & self._names)[:1]:
            self.opaque.append(f"{path}.{name} is kept by code that is not Python ({cls.__name__})")
        self.add(cls, cls.__name__)
        table = getattr(value, "__dict__", None)
        slots = [s for base in cls.__mro__ for s in slot_names(base) if self._names is None or s in self._names
                 or (s in self._assigned and (id(value), s) not in self._changed)]
        if slots:
            read = partial(read_slots, slots)
            self._items(read, value, read(value), path, [f".{s}" for s in slots])
            self._hold(value)
        if not isinstance(table, dict):
            return
        self._hold(value)
        self._items(CLASS, value, (cls, table), path, [".__class__", ".__dict__"], follow=False)
        if self._names is None:
            self._items(dict.keys, table, tuple(table), f"the attributes of {path}", sized=True, follow=False)
        if is_library(cls):        # code in C may read everything
            self._add_all_entries(table, list(table), path)
            self._lacks(table, frozenset(self._names or ()) - frozenset(table), path)
            return
        self._add_all_entries(table, sorted(inherited_names(cls) & table.keys()), path)
        layer = any(module_of(base).startswith("tenon.") for base in cls.__mro__)
        everything = layer and self._everything_of_layers
        if everything and self._names is not None:
            self._items(dict.keys, table, tuple(table), f"the attributes of {path}", sized=True, follow=False)
        self._entries(table, self._wanted(table, everything, private=layer), path)
        if not everything:
            self._add_assigned(table, value, path)
        if not module_of(cls).startswith("tenon."):
            described = {n for base in cls.__mro__ for n, member in vars(base).items() if hasattr(member, "__set__")}
            self._lacks(table, frozenset(self._names or ()) - frozenset(table) - described, path)
        elif self.codes is not None:
            methods = {n for base in cls.__mro__ for n in self._wanted(vars(base)) if not n.startswith("__")}
            self._lacks(table, (self._own_names | methods) - frozenset(table), path)

    def _add_all_entries(self, table: dict[str, Any], names: Sequence[str], path: str) -> None:
        """What a library's code may read of an object."""
        self._entries(table, [n for n in names if isinstance(n, str)], path, follow=False)
        for name in names:
            if (self._names is None or name in self._names) and (ENTRY, id(table), name) not in self._moved:
                self.add(table[name], f"{path}.{name}{OF_A_LIBRARY}")     # code of others reads it, by this name

    def _lacks(self, table: Any, names: frozenset[str], path: str) -> None:
        """Guard that names are not in the table."""
        if names:
            self.absent.append((table, frozenset(n for n in names if not n.startswith("__")), path))


def c_memory() -> tuple[type, ...]:
    """What is memory of its own, where it is loaded; a pointer says nothing of what it points to."""
    found, mapped = sys.modules.get("_ctypes"), sys.modules.get("mmap")
    return (*(() if found is None else (found._SimpleCData, found.Structure, found.Union, found.Array)),
            *(() if mapped is None else (mapped.mmap,)))


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
    )
