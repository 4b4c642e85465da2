"""What a captured function changed in Python -> assignments that are made again after every run of its graph.

Containers and objects that the function can reach are compared before and after the capture.  A difference is an
effect: an attribute, item or global that was set, a list that grew.  Its new value may hold captured tensors; they are
filled in from the results of the graph.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import starmap
from operator import call, is_
from typing import Any

from tenon.atomic import Store, at_once, keep
from tenon.capture.code_names import module_of
from tenon.graph.structural_key import exactly
from tenon.records import dataclass

MISSING = object()
PLAIN = (str, int, float, bool)


@dataclass(frozen=True)
class Effect:
    """A store into `holder`: `kind` says which, `key` where, `value` what (MISSING: deleted)."""

    kind: str                   # "item", "dict", "attribute", "slot", "list", "deque", "set", "cell", "class"
    holder: Any
    key: Any
    value: Any

    def make(self, value: Any) -> None:
        """Do it, with the value filled in."""
        at_once(starmap(call, list(self.stores(value))))

    def stores(self, value: Any) -> Iterator[Store]:
        """The stores that do it, with the value filled in."""
        return STORES[self.kind](self.holder, self.key, value)


def _store_item(holder: dict[Any, Any], key: Any, value: Any) -> Iterator[Store]:
    kind = _kind(holder)
    yield keep(kind.get(holder, key))
    yield (kind.pop, holder, key, None) if value is MISSING else (kind.__setitem__, holder, key, value)


def _store_dict(holder: dict[Any, Any], key: None, value: dict[Any, Any]) -> Iterator[Store]:
    kind = _kind(holder)
    yield keep(list(kind.values(holder)))
    yield kind.clear, holder
    yield kind.update, holder, value


def _kind(holder: dict[Any, Any]) -> type[dict[Any, Any]]:
    """Whose functions store: not what a subclass makes of it, which the captured function has done."""
    return OrderedDict if isinstance(holder, OrderedDict) else dict


def _store_attribute(holder: Any, key: str, value: Any) -> Iterator[Store]:
    """Where the attribute was found: what a class does when one is set, the function has done."""
    if not isinstance(holder, type):
        yield from _store_item(holder.__dict__, key, value)
        return
    yield keep(holder.__dict__.get(key))
    if value is not MISSING:
        yield type.__setattr__, holder, key, value
    elif key in holder.__dict__:
        yield type.__delattr__, holder, key


def _store_entry(holder: Any, key: str, value: Any) -> Iterator[Store]:
    return _store_item(holder.__dict__, key, value)


def _store_slot(holder: Any, key: str, value: Any) -> Iterator[Store]:
    kind: Any = type(holder)
    member, held = _slot_members(kind)[key], read_slot(holder, key)
    yield keep(held)
    if value is not MISSING:
        yield member.__set__, holder, value
    elif held is not MISSING:
        yield member.__delete__, holder


def _store_list(holder: list[Any], key: int | None, value: Any) -> Iterator[Store]:
    if key is None:
        yield keep(list.copy(holder))
        yield list.__setitem__, holder, slice(None), value
    else:
        yield list.extend, holder, value


def _store_deque(holder: deque[Any], key: int | None, value: Any) -> Iterator[Store]:
    yield keep(list(holder) if key is None or holder.maxlen is not None else None)
    if key is None:
        yield deque.clear, holder
    yield deque.extend, holder, iter(value)


def _store_set(holder: set[Any], key: None, value: Any) -> Iterator[Store]:
    """What differs alone: the order of what a set holds says how it came there."""
    held, wanted = list(set.__iter__(holder)), list(value)
    gone, added = _without(held, wanted), _without(wanted, held)
    yield keep(gone)
    for x in gone:          # `difference_update` may lay out the table anew
        yield set.discard, holder, x
    yield set.update, holder, added


def _store_cell(holder: types.CellType, key: None, value: Any) -> Iterator[Store]:
    yield keep(contents(holder))
    yield setattr, holder, "cell_contents", value


def _store_class(holder: Any, key: None, value: Any) -> Iterator[Store]:
    yield object.__setattr__, holder, "__class__", value


STORES: dict[str, Callable[[Any, Any, Any], Iterator[Store]]] = {
    "item": _store_item, "dict": _store_dict, "attribute": _store_attribute, "slot": _store_slot, "list": _store_list,
    "deque": _store_deque, "set": _store_set, "cell": _store_cell, "class": _store_class,
}


def stored_items(effects: Sequence[Effect]) -> dict[int, set[Any]]:
    """The keys that were set, by the identity of the dictionary, where nothing else happened to it."""
    found: dict[int, set[Any]] = {}
    for effect in effects:
        if effect.kind == "item" and effect.value is not MISSING:
            found.setdefault(id(effect.holder), set()).add(effect.key)
    return {k: keys for k, keys in found.items()
            if not any(id(e.holder) == k and (e.kind != "item" or e.value is MISSING) for e in effects)}


class Snapshot:
    """The contents of containers, objects and closure cells at one moment."""

    def __init__(self, holders: list[Any], cells: list[types.CellType]):
        self._lists = [(x, list.copy(x)) for x in holders if isinstance(x, list)]
        self._dicts = [(x, _entries_of(x)) for x in holders if isinstance(x, dict)]
        self._sets = [(x, list(set.__iter__(x))) for x in holders if isinstance(x, set)]
        self._deques = [(x, list(deque.__iter__(x))) for x in holders if isinstance(x, deque)]
        self._objects = [(x, dict(x.__dict__)) for x in holders
                         if isinstance(getattr(x, "__dict__", None), (dict, types.MappingProxyType))]
        kinds: list[Any] = list(map(type, holders))
        self._slots = [(x, set_slots(x)) for x, kind in zip(holders, kinds, strict=True) if _slot_members(kind)]
        self._cells = [(cell, contents(cell)) for cell in cells]
        self._classes = list(zip(holders, kinds, strict=True))

    def leave(self, stored: Collection[str] | None) -> set[str]:
        """Globals that the code does not store, whose names are these, and that another thread set, are no changes.

        Returns their names.
        """
        left = set()
        for k, (table, entries) in enumerate(self._dicts):
            if stored is not None and _is_global(table) and _differs(table, entries):
                own = {n for n in (*table, *entries) if n in stored or str(n).startswith("__")}
                left |= {n for n, _ in _differences(table, entries) if n not in own}
                kept = {n: entries.get(n, MISSING) if n in own else value for n, value in list(table.items())}
                gone = {n: value for n, value in entries.items() if n in own and n not in table}
                self._dicts[k] = table, {n: value for n, value in (kept | gone).items() if value is not MISSING}
        return left

    def before(self, effect: Effect) -> Any:
        """What stood in the place of an effect: the whole content of a list, queue, set or dictionary."""
        if effect.kind in ("cell", "class"):
            listed = self._cells if effect.kind == "cell" else self._classes
            return next(held for x, held in listed if x is effect.holder)
        tables: dict[str, Any] = {"list": self._lists, "deque": self._deques, "set": self._sets, "item": self._dicts,
                  "dict": self._dicts}
        listed = tables.get(effect.kind, [*self._objects, *self._slots])
        found = [held for x, held in listed if x is effect.holder]
        if effect.kind in ("list", "deque", "set", "dict"):
            return found[0] if effect.kind != "set" else set(found[0])
        return next((held[effect.key] for held in found if effect.key in held), MISSING)

    def changes(self) -> list[Effect]:
        """What differs now."""
        found: list[Effect] = []
        for holder, before in self._lists:
            now = list.copy(holder)
            if not _same(now, before):
                grew = len(now) > len(before) and _same(now[:len(before)], before)
                found.append(Effect("list", holder, len(before), now[len(before):]) if grew
                             else Effect("list", holder, None, now))
        for queue, before in self._deques:
            now = list(deque.__iter__(queue))
            if not _same(now, before):
                added = _appended(now, before, queue.maxlen)
                found.append(Effect("deque", queue, None, now) if added is None
                             else Effect("deque", queue, len(before), added))
        for table, entries in self._dicts:
            if _differs(table, entries):
                differences = _differences(table, entries)
                one_by_one = _is_global(table) or _in_order(table, entries, differences)
                found += [Effect("item", table, k, v) for k, v in differences] if one_by_one \
                    else [Effect("dict", table, None, _entries_of(table))]
        found += [Effect("class", x, None, type(x)) for x, before in self._classes if type(x) is not before]
        found += [Effect("attribute", x, k, v)
                  for x, before in self._objects if _differs(x.__dict__, before)
                  for k, v in _differences(x.__dict__, before)]
        found += [Effect("slot", x, k, v) for x, before in self._slots for k, v in _differences(set_slots(x), before)]
        found += [Effect("set", x, None, list(set.__iter__(x)))
                  for x, before in self._sets if not _same(list(set.__iter__(x)), before)]
        found += [Effect("cell", c, None, contents(c)) for c, before in self._cells if contents(c) is not before]
        return found

    def restore(self, changed: Sequence[Effect] | None = None) -> None:
        """Put everything back; `changed` are all changes, where they are known."""
        if changed is not None:
            holders = {id(effect.holder) for effect in changed}
            if holders:
                self._among(holders).restore()
            return
        at_once(starmap(call, list(self._stores_back())))

    def _stores_back(self) -> Iterator[Store]:
        """What puts back all that differs."""
        for holder, before in self._lists:
            if not _same(list.copy(holder), before):
                yield from _store_list(holder, None, before)
        for queue, before in self._deques:
            if not _same(list(deque.__iter__(queue)), before):
                yield from _store_deque(queue, None, before)
        for table, entries in self._dicts:
            if _is_global(table):       # never empty, for other threads
                for key, _ in _differences(table, entries) if _differs(table, entries) else ():
                    yield from _store_item(table, key, entries.get(key, MISSING))
            elif _differs(table, entries):
                yield from _store_dict(table, None, entries)
        for x, kind in self._classes:
            if type(x) is not kind:
                yield from _store_class(x, None, kind)
        for x, entries in self._objects:
            for key, _ in _differences(x.__dict__, entries) if _differs(x.__dict__, entries) else ():
                store = _store_attribute if isinstance(x, type) else _store_entry
                yield from store(x, key, entries.get(key, MISSING))
        for x, entries in self._slots:
            for key, _ in _differences(set_slots(x), entries):
                yield from _store_slot(x, key, entries.get(key, MISSING))
        for group, members in self._sets:
            if not _same(list(set.__iter__(group)), members):
                yield from _store_set(group, None, members)
        for cell, value in self._cells:
            if contents(cell) is not value and value is not MISSING:
                yield from _store_cell(cell, None, value)

    def _among(self, holders: set[int]) -> Snapshot:
        """The part that is about these holders."""
        part = Snapshot([], [])
        for name, entries in vars(self).items():
            setattr(part, name, [pair for pair in entries if id(pair[0]) in holders])
        return part


def slots_of(x: Any) -> dict[str, Any]:
    """What an object holds in the `__slots__` of its classes, but for Tenon's own."""
    cls: Any = type(x)
    return {name: value for name in _slot_members(cls) if (value := read_slot(x, name)) is not MISSING}


def set_slots(x: Any) -> dict[str, Any]:
    """The same of classes in Python: members of others often cannot be set, and make a number anew at each look."""
    cls: Any = type(x)
    return {name: value for name, value in slots_of(x).items() if name in slot_names(cls)}


@lru_cache(maxsize=1024)
def slot_names(cls: Any) -> frozenset[str]:
    """The names of the slots of classes in Python."""
    named = {name for base in cls.__mro__ if "__slots__" in vars(base) for name in vars(base)}
    return frozenset(named.intersection(_slot_members(cls)))


def read_slot(x: Any, name: str) -> Any:
    """What an object holds in a slot, MISSING where it is empty; no code of the class's own is asked."""
    kind: Any = type(x)
    try:
        return _slot_members(kind)[name].__get__(x)
    except AttributeError:
        return MISSING


@lru_cache(maxsize=1024)
def _slot_members(cls: Any) -> dict[str, types.MemberDescriptorType]:
    bases = [base for base in cls.__mro__ if not module_of(base).startswith(("builtins", "tenon."))]
    return {name: member for base in reversed(bases) for name, member in vars(base).items()
            if isinstance(member, types.MemberDescriptorType)}


def contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _entries_of(table: dict[Any, Any]) -> dict[Any, Any]:
    """What a dictionary holds: not what a subclass makes of it, in Python, as it is read."""
    return dict(_kind(table).items(table))


def _items_of(table: Any) -> Any:
    """The same, of a dictionary whose class may make something else of it."""
    kind: Any = type(table)
    return _entries_of(table) if kind is not dict and isinstance(table, dict) else table


def _is_global(table: dict[Any, Any]) -> bool:
    """Whether it holds a module's globals, whose order does not matter."""
    return "__builtins__" in table


def _same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(x is y for x, y in zip(left, right, strict=True))


def _without(items: list[Any], others: list[Any]) -> list[Any]:
    """The items that are none of the others, nor a constant that is the same."""
    same = {id(x) for x in others}
    equal = {exactly(x) for x in others if type(x) in PLAIN}
    return [x for x in items if id(x) not in same and not (type(x) in PLAIN and exactly(x) in equal)]


def _appended(now: list[Any], before: list[Any], most: int | None) -> list[Any] | None:
    """The items added at the end, where nothing else happened but that a full queue dropped its first ones."""
    if _same(now[:len(before)], before):
        return now[len(before):]
    if most is not None and len(now) == most:
        for dropped in range(1, len(before)):       # where none is kept, some of what stands there may be older
            kept = before[dropped:]
            if _same(now[:len(kept)], kept) and len(before) + len(now) - len(kept) - dropped <= most:
                return now[len(kept):]
    return None


def _in_order(now: dict[Any, Any], before: dict[Any, Any], differences: list[tuple[Any, Any]]) -> bool:
    """Whether setting and deleting these items gives the order that the items have now."""
    now = _items_of(now)
    kept = [k for k in before if k in now]
    return list(now) == kept + [k for k, _ in differences if k not in before]


def _differs(now: Mapping[Any, Any], before: dict[Any, Any]) -> bool:
    """Whether anything is other than before, the order included."""
    now = _items_of(now)
    return not (len(now) == len(before) and all(map(is_, now.values(), before.values())) and all(map(is_, now, before)))


def _differences(now: Mapping[Any, Any], before: dict[Any, Any]) -> list[tuple[Any, Any]]:
    now = _items_of(now)
    changed = [(k, v) for k, v in list(now.items()) if before.get(k, MISSING) is not v]
    return changed + [(k, MISSING) for k in before if k not in now]
