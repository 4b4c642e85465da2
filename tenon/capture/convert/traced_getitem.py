"""`holder[index]` with an index that the graph computes -> one of the items of a list, a tuple or a dictionary.

Items of one kind are chosen within the graph, items of several kinds are a `UnionValue`; an index or a key that is not
there lets the call run eagerly, which raises what Python raises.  Storing at such an index gives every item the new
value or the one that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from tenon.capture.code_origin import IN_PLACE
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.guards import same_atom
from tenon.capture.runtime_numbers import RuntimeNumber, as_tensor, is_number, kind_of, strong
from tenon.dims.undecided_sizes import for_user
from tenon.graph.ir import Graph, Value
from tenon.ops.branches import switch
from tenon.ops.comparison import greater_equal, less, logical_or, where
from tenon.ops.shape import cast
from tenon.records import dataclass
from tenon.slice_stores import STORING, lost_change
from tenon.tensor import Tensor
from tenon.types import int64

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

MAX_ITEMS = 256         # among which one is chosen
PLAIN = (dict, list, tuple)     # that do nothing but hold


class Key:
    """Gives what stands between brackets."""

    def __getitem__(self, key: Any) -> Any:
        return key


class TracedItem:
    """`holder[index]` as a place to read and to store: `.item` stands for it.

    Where the holder is the slice that stands at another place, which nobody holds, that place is stored to as well.
    """

    __slots__ = ("capture", "holder", "index", "outer")

    def __init__(self, capture: ConvertingCapture | None, holder: Any, index: Any, outer: TracedItem | None = None):
        self.capture, self.holder, self.index, self.outer = capture, holder, index, outer

    @property
    @for_user
    def item(self) -> Any:
        """What stands there."""
        return item(self.capture, self.holder, self.index)

    @item.setter
    @for_user
    def item(self, value: Any) -> None:
        is_lost = self.outer is None and type(self.holder) is Tensor and self.references() <= NOBODYS
        self._store(value)
        if is_lost:
            raise lost_change()

    @item.deleter
    @for_user
    def item(self) -> None:
        del self.holder[self.index]

    @for_user
    def _store(self, value: Any) -> None:
        store(self.capture, self.holder, self.index, value)
        if self.outer is not None and self.outer.gives_slice(self.holder):
            self.outer._store(self.holder)

    def references(self) -> int:
        """How many there are to the holder."""
        return getrefcount(self.holder)

    def gives_slice(self, part: Any) -> bool:
        """Whether what was read here is a slice of the holder, so a tensor of its own."""
        return type(part) is Tensor and isinstance(self.holder, Tensor)

    def changing(self, name: str, call: Callable[[Any], Any]) -> Any:
        """What to call for a method that may change in place what stands here."""
        part = self.item
        method = getattr(part, name)
        stores = self.gives_slice(part) and getattr(method, "__func__", None) in STORING
        return self._storing(part, call(method)) if stores else call(method)

    def _storing(self, part: Tensor, method: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **named: Any) -> None:
            method(*args, **named)
            self._store(part)
        IN_PLACE.add(change.__code__)
        return change


NOBODYS = TracedItem(None, object(), None).references()     # to a holder that only the place knows


@for_user
def item(capture: ConvertingCapture | None, holder: Any, index: Any) -> Any:
    """`holder[index]`."""
    if type(index) is UnionValue and type(holder) in PLAIN and capture is not None:
        return capture.each(index, lambda one: item(capture, holder, one))
    if capture is None or not is_chosen(holder, index):
        return holder[index]
    keys, items = entries(holder)
    place = position(capture, holder, keys, index)
    return picked(capture, Chosen([place == k for k in range(len(items))], place), items)


@for_user
def store(capture: ConvertingCapture | None, holder: Any, index: Any, value: Any) -> None:
    """`holder[index] = value`."""
    if type(index) is UnionValue and type(holder) in PLAIN and capture is not None:
        capture.each(index, lambda one: store(capture, holder, one, value))
        return
    if capture is None or isinstance(holder, tuple) or not is_chosen(holder, index):
        holder[index] = value
        return
    keys, items = entries(holder)
    place = position(capture, holder, keys, index)
    for k, (key, before) in enumerate(zip(keys, items, strict=True)):
        holder[key] = picked(capture, Chosen([place != k, place == k]), [before, value])


def is_chosen(holder: Any, index: Any) -> bool:
    """Whether the graph says which item of a Python container is meant."""
    if not isinstance(index, Tensor) or not isinstance(index.payload, Value) or index.shape != ():
        return False
    if type(holder) is dict:
        return type(index) is RuntimeNumber and 0 < len(holder) <= MAX_ITEMS
    plain = isinstance(holder, (list, tuple)) and type(holder).__getitem__ in (list.__getitem__, tuple.__getitem__)
    return plain and index.dtype.kind in "biu" and 0 < len(holder) <= MAX_ITEMS


def entries(holder: Any) -> tuple[list[Any], list[Any]]:
    """The keys or indices of a container, and what stands there."""
    if isinstance(holder, dict):
        return list(holder), list(holder.values())
    return list(range(len(holder))), list(holder)


def position(capture: ConvertingCapture, holder: Any, keys: Sequence[Any], index: Tensor) -> Tensor:
    """Which of the entries is meant; calls in which it is none run eagerly."""
    found: Tensor
    if isinstance(holder, dict):
        found = as_tensor(-1)
        for k, key in enumerate(keys):
            if is_number(key):
                found = where(strong(index == key), k, found)
    else:
        found = cast(strong(index), dtype=int64)
        found = where(less(found, 0), found + len(keys), found)
    capture.fail_if(logical_or(less(found, 0), greater_equal(found, len(keys))))
    return found


# ---------------------------------------------------------------- one of several values

@dataclass(frozen=True)
class Chosen:
    """Which of several values is meant: a bool for each, and its number where that is known."""

    flags: Sequence[Tensor]
    place: Tensor | None = None

    def only(self, group: Sequence[int]) -> Chosen:
        """Among some of them."""
        return Chosen([self.flags[k] for k in group])


def picked(capture: ConvertingCapture, chosen: Chosen, options: Sequence[Any]) -> Any:
    """The value that is meant."""
    options = [capture.resolve(x) if type(x) is UnionValue else x for x in options]
    groups: list[list[int]] = []
    for k, x in enumerate(options):
        group = next((g for g in groups if are_alike(options[g[0]], x)), None)
        if group is None:
            groups.append([k])
        else:
            group.append(k)
    if len(groups) == 1:
        return one(capture, chosen, options)
    capture.irregular = True
    return UnionValue(tuple((RuntimeNumber(reduce(logical_or, chosen.only(group).flags)),
                         one(capture, chosen.only(group), [options[k] for k in group])) for group in groups))


def are_alike(a: Any, b: Any) -> bool:
    """Whether the graph can choose between two values, or has no need to."""
    if a is b or same_atom(a, b):
        return True
    if is_number(a) or is_number(b):
        return is_number(a) and is_number(b) and kind_of(a) is kind_of(b)
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype is b.dtype and a.shape == b.shape


def one(capture: ConvertingCapture, chosen: Chosen, options: Sequence[Any]) -> Any:
    """One of several values that are alike."""
    first = options[0]
    if all(x is first or same_atom(x, first) for x in options):
        return first
    if is_number(first):
        return RuntimeNumber(among(chosen, [as_tensor(x) for x in options]), kind_of(first))
    found = among(chosen, options)
    found = found if any(x.requires_grad for x in options) else found.detach()
    capture.may_be(found, *options)
    return found


def among(chosen: Chosen, tensors: Sequence[Tensor]) -> Tensor:
    """One of several tensors of one type: behind a branch where there is much to copy."""
    if chosen.place is not None and tensors[0].shape != ():
        branches = tuple(branch(tensors, k) for k in range(len(tensors)))
        found: Tensor = switch(chosen.place, *tensors, branches=branches)
        return found
    found = tensors[-1]
    for flag, x in zip(chosen.flags[-2::-1], tensors[-2::-1], strict=True):
        found = where(flag, x, found)
    return found


def branch(tensors: Sequence[Tensor], k: int) -> Graph:
    """The graph that returns the `k`-th of its parameters."""
    params = tuple(Value(x.type, name=f"x{n}") for n, x in enumerate(tensors))
    return Graph(f"item_{k}", params, (), (params[k],))
