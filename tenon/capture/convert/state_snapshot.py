"""The state of a captured program at one moment, what changed since, and the way back.

A place is a variable, an attribute, an item of a dictionary, the content of a list, a closure cell, the elements or
the gradient of a tensor: whatever code may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.capture.code_monitor import UnsafeCall, place_of
from tenon.capture.convert.optional_elements import is_perhaps
from tenon.capture.convert.reachable import Reached, reachable
from tenon.capture.convert.statements import PRIVATE
from tenon.capture.convert.union_value import UNBOUND, UnionValue
from tenon.capture.effects import MISSING, Effect, Snapshot
from tenon.capture.guard_readers import attribute_of, cell_of, item_of, sequence_reader, slot_of
from tenon.capture.guards import GuardGroup
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

Key = tuple[Any, ...]


class World:
    """What could be reached from outside when the capture began."""

    def __init__(self, holders: Sequence[Any], cells: Sequence[Any], snapshot: Snapshot,
                 arguments: Sequence[Any] = ()):
        self.holders, self.cells, self.snapshot = list(holders), list(cells), snapshot
        self.known = {id(x) for x in self.holders}
        self.arguments = {id(x) for x in arguments}     # containers, whose content every call is looked up by
        self.relied: dict[Any, tuple[Effect, Any]] = {}

    def rely(self, effect: Effect, before: Any) -> None:
        """What a place from outside held decides about an outcome."""
        key = effect.kind, id(effect.holder), effect.key
        if id(effect.holder) in self.arguments:
            return
        if id(effect.holder) in self.known or effect.kind == "cell":
            self.relied.setdefault(key, (effect, before))

    def guards(self, changes: Sequence[Effect]) -> Iterator[GuardGroup]:
        """Conditions on what was relied on; to be asked for when all is as it was before the call.

        Of lists and queues that the call only prolongs, as its `changes` say, what they held does not matter.
        """
        appended = {id(e.holder) for e in changes if e.kind in SEQUENCES and e.key is not None}
        for effect, before in self.relied.values():
            holder = effect.holder
            if id(holder) in appended:
                continue
            if effect.kind in SEQUENCES:        # item by item, each of which may be an input
                through = sequence_reader(holder)
                yield GuardGroup(through, holder, tuple(through(holder)), f"a {effect.kind}", sized=True)
                continue
            read = partial(READ.get(effect.kind, _content), effect.key)
            now = tuple(read(holder))
            if effect.kind not in READ or now[0] is before:     # else the function itself had put it there
                yield GuardGroup(read, holder, now, f"{effect.kind} {effect.key}")


def _content(key: Any, holder: Any) -> tuple[Any, ...]:
    return tuple(holder.items()) if isinstance(holder, dict) else tuple(holder)


SEQUENCES = ("list", "deque")
# How to read what stands in a place; other containers are read as a whole.
READ: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "attribute": attribute_of, "slot": slot_of, "item": item_of, "cell": cell_of}


@dataclass
class SnapshotPlace:
    """Where a value is kept: what it was at the mark, and how it is given another."""

    kind: str
    holder: Any
    key: Any
    before: Any

    @property
    def may_be_empty(self) -> bool:
        """Whether reading it asks if there is anything: not so for names of modules, classes and functions."""
        if self.kind == "item":
            return "__name__" not in self.holder
        return self.kind in ("attribute", "slot") and not isinstance(self.holder, type)


class StateMark:
    """A moment of a captured program, for code that holds these variables."""

    def __init__(self, capture: ConvertingCapture, scope: Mapping[str, Any], names: Collection[str]):
        self.capture, self.names = capture, names
        self.variables = {n: scope.get(n, UNBOUND) for n in names}
        self.failed = capture.failed
        self.touched: list[tuple[Tensor, TensorState]] = []
        self.outer, capture.touched = capture.touched, self.touched
        world = capture.world
        new = [x for n, x in scope.items() if not n.startswith(PRIVATE)]
        found = reachable([*new, *(e.value for e in world.snapshot.changes())], world.known)
        self.reached = Reached(world.holders + found.holders, world.cells + found.cells, found.iterators,
                               found.memory, found.tensors)
        self._known = {id(x) for x in self.reached.holders}
        for tensor in list(found.tensors.values()):
            found.tensors.update(capture.leaves_above(tensor))
        self.snapshot = Snapshot(self.reached.holders, self.reached.cells)
        self.places: dict[Key, SnapshotPlace] = {}
        self.found: list[Effect] | None = None      # the changes, between looking for them and putting them back
        self._keep()

    def _keep(self) -> None:
        self.moved = [place_of(x) for x in self.reached.iterators]
        self.bytes = [_bytes(x) for x in self.reached.memory]

    def changes(self, scope: Mapping[str, Any]) -> dict[Key, Any]:
        """The values of all variables, and of the places that changed."""
        found: dict[Key, Any] = {}
        for n in self.names:
            found[self.place("variable", None, n, self.variables[n])] = scope.get(n, UNBOUND)
        self.found = self.snapshot.changes()
        for effect in self.found:
            kind, holder, value = effect.kind, effect.holder, effect.value
            whole = kind in ("list", "deque", "set", "dict")
            before = self.snapshot.before(effect)
            self.capture.world.rely(effect, before)
            key = self.place(kind, holder, None if whole else effect.key, before)
            found[key] = type(holder)(holder) if whole and type(holder) in (list, set, dict) else\
                dict(holder) if kind == "dict" else \
                list(holder) if whole else value
        first: dict[int, tuple[Tensor, TensorState]] = {}
        for tensor, state in self.touched:
            first.setdefault(id(tensor), (tensor, state))
        for tensor, state in first.values():
            now = tensor.state
            if not self.is_earlier(tensor):
                continue
            if now.grad is not state.grad:
                found[self.place("gradient", tensor, None, state.grad)] = now.grad
            if now.payload is not state.payload or now.node is not state.node:
                found[self.place("elements", tensor, None, elements(tensor, state))] = elements(tensor, now)
            if now.requires_grad is not state.requires_grad and now.node is None:   # else its elements tell
                found[self.place("flag", tensor, None, state.requires_grad)] = now.requires_grad
        if self.capture.failed is not self.failed:
            found[self.place("failed", None, None, self.failed)] = self.capture.failed
        return found

    def is_earlier(self, tensor: Tensor) -> bool:
        """Whether a tensor was there before the mark."""
        return id(tensor) in self.reached.tensors or not self.capture.owns(tensor.own.payload)

    def is_new(self, x: Any) -> bool:
        """Whether an object was made after the mark."""
        return id(x) not in self._known

    def place(self, kind: str, holder: Any, key: Any, before: Any) -> Key:
        """The name of a place, which held `before` at the mark."""
        name = (kind, id(holder), key)
        self.places.setdefault(name, SnapshotPlace(kind, holder, key, before))
        return name

    def restore(self) -> None:
        """Put everything back, but for variables."""
        self.check()
        self.snapshot.restore(self.found)
        self.found = None
        for tensor, state in reversed(self.touched[:]):
            if self.is_earlier(tensor):
                tensor.hold(state)
        self.touched.clear()
        self.capture.failed = self.failed

    def check(self) -> None:
        """Raises UnsafeCall where code changed what cannot be put back."""
        for x, before in zip(self.reached.iterators, self.moved, strict=True):
            if place_of(x) != before:
                raise UnsafeCall(f"an iterator ({type(x).__name__}) is moved under a condition on a tensor")
        for x, content in zip(self.reached.memory, self.bytes, strict=True):
            if _bytes(x) != content:
                raise UnsafeCall(f"an object of type {type(x).__name__} is changed under a condition on a tensor")

    def close(self) -> None:
        """What changes from here on is for the mark around this one to note."""
        self.capture.touched = self.outer

    def give(self, values: Mapping[Key, Any]) -> dict[str, Any]:
        """Let the places hold these values; returns those of the variables."""
        variables = dict(self.variables)
        for name, value in values.items():
            place = self.places[name]
            if is_perhaps(value) and not place.may_be_empty:
                raise UnsafeCall(f"a {place.kind} {place.key} is there or not, as the data decide",
                                 hint="set it in both branches, or before")
            if place.kind == "class" and type(value) is UnionValue:
                raise UnsafeCall("the class of an object is one of several, as the data decide")
            if place.kind == "variable":
                variables[place.key] = value
            elif place.kind == "failed":
                self.capture.failed = value
            elif place.kind == "elements":
                state = place.holder.state
                given = value.state
                keeps = isinstance(value, Tensor) and given.node is not None
                place.holder.hold(TensorState(given.payload, state.requires_grad or keeps, state.grad,
                                              given.node if keeps else None, given.index if keeps else 0))
            elif place.kind == "flag":
                state = place.holder.state
                place.holder.hold(TensorState(state.payload, value, state.grad, state.node, state.index))
            elif place.kind == "index":
                place.holder.index = value
            elif place.kind == "gradient":
                place.holder.grad = value
            else:
                Effect(place.kind, place.holder, place.key, None).make(value)
        return variables


def elements(tensor: Tensor, state: TensorState) -> Tensor:
    """A tensor as it was in this state; a leaf without its gradient, which belongs to the tensor itself."""
    view = Tensor.__new__(Tensor)
    leaf = state.node is None
    view.own = TensorState(state.payload, state.requires_grad and not leaf, None, state.node, state.index)
    return view


def _bytes(x: Any) -> Any:
    return (x.shape, x.dtype.str, x.tobytes()) if isinstance(x, np.ndarray) else bytes(x)


__all__ = ["MISSING", "Key", "StateMark", "World"]
