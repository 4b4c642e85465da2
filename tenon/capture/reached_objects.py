"""Modules, classes and objects -> their attributes, as far as the code that ran names them."""

from __future__ import annotations

import sys
import types
from functools import partial
from typing import Any

from tenon.capture.class_hooks import LOOKING_UP, hidden_calls, registrations, takes_registrations
from tenon.capture.class_inspection import functions_of, hidden_attributes, inherited_names, is_fixed, is_library
from tenon.capture.code_names import module_of
from tenon.capture.code_origin import LIBRARIES
from tenon.capture.guard_readers import bases, read_slots, slot_names
from tenon.capture.guards import CLASS
from tenon.capture.reached_values import ReachedValues

# Methods that operators, `bool` and loops ask for, and do without where a class has none.
ASKED_FOR = frozenset(("__bool__", "__len__", "__iter__", "__contains__", "__getattr__", "__getattribute__",
                       "__setattr__", "__delattr__", "__eq__", "__hash__", "__call__", "__index__", "__float__"))
STREAM_NAMES = ("stdout", "stderr")
ABOUT_STREAMS = frozenset(("encoding", "errors", "newlines", "closed", "name", "mode", "buffer", "line_buffering"))


class ReachedObjects(ReachedValues):
    """What attributes lead to."""

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
            self._add_described(cls, path)
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
