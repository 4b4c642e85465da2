"""Guards -> the places where their values stand, one by one: an entry of a dictionary, an item, a cell, an attribute.

A place can be read, and be given another value for the time of a capture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from tenon.capture.argument_roots import direct, reference
from tenon.capture.changing_containers import is_movable, is_of_one_form, part_at, part_keys
from tenon.capture.effects import Effect, read_slot
from tenon.capture.guard_readers import (
    attribute_of,
    cell_contents,
    cell_of,
    entry_of,
    entry_reader,
    held_entries,
    item_of,
    keys_of,
    length,
    read_slots,
    slot_of,
)
from tenon.capture.guards import DATES, PATHS, SCALARS, GuardGroup, same_atom
from tenon.records import dataclass
from tenon.tensor import Tensor

ARGUMENT, ENTRY, ITEM, CELL, SLOT, CLASS = "argument", "entry", "item", "cell", "slot", "class"
LENGTH = "length"       # of a list, which is no place to put something
OF_A_LIBRARY = " (of a library's class)"        # behind the path of what code that is not the user's reads
PART = "part"           # of the container in the place that is the holder; neither is this
SIZE = "size"           # of an axis of the tensor in the place that is the holder; nor is this
NUMBERS = (int, float)
CHANGING = (*NUMBERS, str, *DATES, *PATHS, *SCALARS)      # plain values that may be inputs
RELIED = {attribute_of: ENTRY, slot_of: SLOT, item_of: ENTRY, cell_of: CELL}
Key = tuple[str, int, Any]


@dataclass(frozen=True, eq=False)
class GuardPlace:
    """Where a value stands; of an argument, `key` is the number of the leaf."""

    kind: str
    holder: Any
    key: Any
    path: str = ""

    @property
    def name(self) -> Key:
        """What tells places apart; that of a part is the same for other objects that stand for its place."""
        if isinstance(self.holder, GuardPlace):
            kind, holder, key = self.holder.name
            return self.kind, holder, (kind, key, self.key)
        return self.kind, id(self.holder), self.key

    @property
    def label(self) -> str:
        """How messages name it."""
        key = "" if self.kind == CELL else f".{self.key}" if str(self.key).isidentifier() else f"[{self.key!r}]"
        return (self.path + key).lstrip(".")

    def read(self) -> Any:
        """The value that stands there."""
        if self.kind == CELL:
            return self.holder.cell_contents
        if self.kind == LENGTH:
            return len(self.holder)
        if self.kind == PART:
            return part_at(self.holder.read(), self.key)
        if self.kind == SLOT:
            return read_slot(self.holder, self.key)
        return vars(self.holder)[self.key] if self.kind == CLASS else entry_of(self.holder, self.key)

    def put(self, value: Any) -> None:
        """Let another value stand there."""
        if self.kind in (SLOT, CELL):
            Effect(self.kind, self.holder, self.key, None).make(value)
        elif self.kind == CLASS:
            type.__setattr__(self.holder, self.key, value)
        elif isinstance(self.holder, dict):
            dict.__setitem__(self.holder, self.key, value)
        elif isinstance(self.holder, list):
            list.__setitem__(self.holder, self.key, value)
        else:
            self.holder[self.key] = value


def root_of(place: GuardPlace) -> GuardPlace:
    """The place of what holds the part that this is, or the part of a part; of a size that of its tensor."""
    while place.kind in (PART, SIZE):
        place = place.holder
    return place


def places_of(group: GuardGroup) -> Sequence[GuardPlace]:
    """The places that a group reads, in order; none for what is read in another way."""
    group = direct(group)
    holder, read = group.holder, group.read
    kind, keys = "", ()     # type: str, Sequence[Any]
    if isinstance(read, itemgetter):
        kind, keys = CLASS if group.owner is not None else ENTRY, read.__reduce__()[1]
        holder = holder if group.owner is None else group.owner
    elif read in (iter, list.__iter__, deque.__iter__) and isinstance(holder, (list, deque)):
        kind, keys = ITEM, range(len(group.expected))
    elif read is dict.values:
        kind, keys = ENTRY, tuple(dict.keys(holder))
    elif read is length:
        kind, keys = LENGTH, (None,)
    elif read is cell_contents:
        kind, keys = CELL, (None,)
    elif isinstance(read, partial) and read.func is read_slots:
        kind, keys = SLOT, read.args[0]
    elif isinstance(read, partial) and read.func is held_entries:
        kind, keys = ENTRY, read.args[0]
    elif isinstance(read, partial) and read.func in RELIED:
        kind, keys = RELIED[read.func], read.args
        if read.func is attribute_of:
            kind, holder = (CLASS, holder) if isinstance(holder, type) else (ENTRY, vars(holder))
    return [GuardPlace(kind, holder, key, group.path) for key in keys] if len(keys) == len(group.expected) else []


def changed(groups: Sequence[GuardGroup]) -> Iterator[tuple[GuardPlace, Any]]:
    """The places where another number, text or tensor stands than when the guards were made, and which that was.
    """
    for group in groups:
        for place, expected in zip(places_of(group), group.expected, strict=False):
            kind = type(expected)
            if kind not in CHANGING and not isinstance(expected, Tensor) and part_keys(expected) is None:
                continue
            try:
                value = place.read()
            except Exception:       # which is gone
                continue
            if type(value) is kind and not same_atom(value, expected) and (
                    kind is tuple or isinstance(expected, (*CHANGING, Tensor)) or (
                        is_movable(value) and is_of_one_form(value, expected))):
                yield place, expected


def stored_at(effect: Effect, holder: Any) -> GuardPlace | None:
    """The place that an effect on this object sets."""
    if effect.kind == "attribute":
        return GuardPlace(CLASS, holder, effect.key) if isinstance(holder, type) else \
            GuardPlace(ENTRY, vars(holder), effect.key)
    kind = {"item": ENTRY, "slot": SLOT, "cell": CELL}.get(effect.kind)
    return None if kind is None else GuardPlace(kind, holder, effect.key)


def swapped(groups: Sequence[GuardGroup]) -> Iterator[tuple[GuardPlace, Any]]:
    """The places where another object of the same class stands than when the guards were made, and which that was."""
    for group in groups:
        for place, expected in zip(places_of(group), group.expected, strict=False):
            if reference(expected) is not None:
                try:
                    value = place.read()
                except Exception:
                    continue
                if value is not expected and type(value) is type(expected):
                    yield place, expected


def group_at(place: GuardPlace, value: Any) -> GuardGroup:
    """The condition that this object stands in a place."""
    if place.kind == CELL:
        return GuardGroup(cell_contents, place.holder, (value,), place.path)
    if place.kind == SLOT:
        return GuardGroup(partial(read_slots, (place.key,)), place.holder, (value,), place.path)
    owner = place.holder if place.kind == CLASS else None
    holder = place.holder if owner is None else vars(owner)
    return GuardGroup(entry_reader(holder, (place.key,)), holder, (value, value), place.path, owner=owner)


def without(groups: Sequence[GuardGroup], moved: Collection[Key]) -> list[GuardGroup]:
    """Conditions, but for those on what stands in the places `moved`."""
    tables = {holder for _, holder, _ in moved}
    found = []
    for group in groups:
        if group.read is dict.keys and id(group.holder) in tables:      # whose items are set all the time
            found.append(GuardGroup(keys_of, group.holder, group.expected, group.path, sized=True))
        else:
            found += _without(group, moved)
    return found


def _without(group: GuardGroup, moved: Collection[Key]) -> list[GuardGroup]:
    places = places_of(group)
    kept = [k for k, place in enumerate(places) if place.name not in moved]
    if len(kept) == len(places):
        return [group]
    keys = tuple(places[k].key for k in kept)
    expected = tuple(group.expected[k] for k in kept)
    labels = tuple(group.labels[min(k, len(group.labels) - 1)] for k in kept) if group.labels else ()
    found: list[GuardGroup] = []
    if group.sized:
        found.append(GuardGroup(length, group.holder, (len(group.expected),), f"length of {group.path}"))
    if keys and isinstance(group.read, partial) and group.read.func is read_slots:
        found.append(GuardGroup(partial(read_slots, keys), group.holder, expected, group.path, labels))
    elif keys:
        read = entry_reader(group.holder, keys)
        found.append(GuardGroup(read, group.holder, expected if len(keys) > 1 else expected * 2, group.path, labels,
                           owner=group.owner))
    return found
