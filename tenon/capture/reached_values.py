"""What code can read of values: what has been found so far, and how a value is guarded where it stands."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.capture.class_inspection import is_library, looks_at_its_own
from tenon.capture.code_names import formatted, module_of, names_of, only_appends, only_counts, stored_keys
from tenon.capture.code_origin import follows
from tenon.capture.guard_places import ENTRY, OF_A_LIBRARY, Key, places_of
from tenon.capture.guard_readers import entry_reader, read_described
from tenon.capture.guards import GuardGroup
from tenon.capture.kept_state import KeptThing
from tenon.errors import PACKAGE

LARGEST_CONTAINER = 100_000
DESCRIBING = frozenset(("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"))
OTHERS_NAMES = frozenset(("args", "keywords", "__defaults__", "__kwdefaults__"))    # parameters have their own


class ReachedValues:
    """What was found from given roots by name."""

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

    def _add_described(self, value: Any, path: str) -> None:
        """What a function or class says of itself, as far as the user's code reads it."""
        if names := sorted(DESCRIBING & self._own_names):
            read = partial(read_described, names)
            self._items(read, value, read(value), path, [f".{n}" for n in names])

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

    def _own_attributes(self, value: Any, path: str) -> None:
        """Of a class that inherits from a container."""
        if module_of(type(value)) not in ("builtins", "collections"):
            self._add_object(value, path)

    def _too_long(self, value: Any, path: str) -> bool:
        if len(value) > LARGEST_CONTAINER and self.codes is not None:
            self.opaque.append(f"{path} has {len(value)} items, too many to be compared at every call")
        return len(value) > LARGEST_CONTAINER

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

    def known(self) -> set[int]:
        """The identities of all that was found."""
        return self._visited | self.tensors

    def tables(self) -> set[int]:
        """The identities of the dictionaries that hold attributes of what was found, and are none of the program's."""
        found = [getattr(x, "__dict__", None) for x in self.holders.values()]
        return {id(table) for table in found if type(table) is dict} - self._visited

    def add(self, value: Any, path: str) -> None:
        """Follow a value of any kind."""
        raise NotImplementedError

    def _add_object(self, value: Any, path: str) -> None:
        """Follow the attributes of an object."""
        raise NotImplementedError
