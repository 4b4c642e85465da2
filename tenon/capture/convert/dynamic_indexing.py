"""Index, slice, length and truth of containers whose elements are there or not, as the data decide.

An index that is out of range for the data lets the call run eagerly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from tenon.capture.convert.list_growth import together
from tenon.capture.convert.optional_elements import (
    both,
    compared,
    either,
    negated,
    negative,
    perhaps,
    presence,
    present,
    refused,
    select,
    total,
)
from tenon.capture.convert.tensor_list import (
    TensorList,
    at,
    without_first,
    without_last,
)
from tenon.capture.effects import MISSING
from tenon.capture.runtime_numbers import RuntimeNumber, as_tensor, strong
from tenon.ops.comparison import clip, maximum, where
from tenon.ops.creation import arange
from tenon.ops.indexing import take
from tenon.records import dataclass
from tenon.tensor import Tensor

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture


@dataclass(frozen=True)
class Hit:
    """An element, and whether it is the one looked for."""

    number: int         # where it stands in the container
    condition: Any
    value: Any


def length(capture: ConvertingCapture, container: Any) -> Any:
    """How many elements there are."""
    inside = container.values() if isinstance(container, dict) else container
    return total(x.count if type(x) is TensorList else presence(capture, x) for x in inside)


def truth(capture: ConvertingCapture, container: Any) -> Any:
    """Whether there is any element."""
    flags = [compared(x.count, lambda n: n > 0) if type(x) is TensorList else presence(capture, x)
             for x in (container.values() if isinstance(container, dict) else container)]
    if any(p is True for p in flags):
        return True
    return reduce(either, flags, False)


def hits(capture: ConvertingCapture, content: Sequence[Any], index: int) -> tuple[list[Hit], Any]:
    """The elements that may have this index, and how many there are up to the last of them."""
    found, before = [], 0
    place, backward = (index, False) if index >= 0 else (-index - 1, True)
    for k in range(len(content))[::-1 if backward else 1]:
        x = content[k]
        if isinstance(before, int) and before > place:
            break
        if type(x) is TensorList:
            within = total([place, negative(before)])
            left = total([x.count, negative(within)])
            here = both(compared(within, lambda n: n >= 0), compared(left, lambda n: n > 0))
            row = total([x.count, negative(within), -1]) if backward else within
            found.append(Hit(k, here, at(x, where(strong(here), strong(as_tensor(row)), 0))))
            before = total([before, x.count])
        else:
            there = presence(capture, x)
            found.append(Hit(k, both(there, compared(before, lambda n: n == place)), present(capture, x)))
            before = total([before, there])
    return [hit for hit in found if hit.condition is not False], before


def found_at(capture: ConvertingCapture, content: Sequence[Any], index: int,
             words: str = "list") -> tuple[Any, list[Hit]]:
    """The element with this index; calls in which there is none run eagerly."""
    among, before = hits(capture, content, index)
    if not among:
        raise IndexError(f"{words} index out of range")
    place = index if index >= 0 else -index - 1
    capture.fail_if_not(compared(before, lambda n: n > place))
    value = among[-1].value
    for hit in among[-2::-1]:
        value = select(capture, hit.condition, hit.value, value)
    return value, among


def taken(capture: ConvertingCapture, content: Sequence[Any], index: int, words: str = "list") -> tuple[Any, list[Any]]:
    """The element with this index, and all the others."""
    value, among = found_at(capture, content, index, words)
    rest = list(content)
    for hit in among:
        x = rest[hit.number]
        if type(x) is not TensorList:
            rest[hit.number] = perhaps(both(presence(capture, x), negated(hit.condition)), present(capture, x))
            continue
        if index not in (0, -1):
            raise refused("an element is taken out of the middle of a list")
        less = without_first(x) if index == 0 else without_last(x)
        rest[hit.number] = select(capture, hit.condition, less, x)
    return value, [x for x in rest if x is not MISSING]


def stored(capture: ConvertingCapture, content: Sequence[Any], index: int, value: Any,
           words: str = "list") -> list[Any]:
    """The content with another element at this index."""
    _, among = found_at(capture, content, index, words)
    new = list(content)
    for hit in among:
        x = new[hit.number]
        if type(x) is TensorList:
            raise refused("an element is stored in a list")
        there = presence(capture, x)
        new[hit.number] = perhaps(there, select(capture, hit.condition, value, present(capture, x)))
    return new


def cut(capture: ConvertingCapture, content: Sequence[Any], where_: slice) -> list[Any]:
    """The content of a slice."""
    start, stop, step = where_.start, where_.stop, where_.step
    if any(not (x is None or type(x) is int) for x in (start, stop, step)) or step not in (None, 1, -1):
        raise refused("a slice is taken of a list")
    if any(type(x) is TensorList for x in content) and (start, stop, step) not in ((None, None, None), (None, None, 1)):
        rows = together(capture, content)
        if rows is None or (step == -1 and (start, stop) != (None, None)):
            raise refused("a slice is taken of a list")
        return [turned(rows) if step == -1 else between(rows, start, stop)]
    if step == -1:
        if (start, stop) != (None, None):
            raise refused("a slice is taken of a list")
        return list(content)[::-1]
    flags = [presence(capture, x) if type(x) is not TensorList else True for x in content]
    kept = list(flags)
    for bound, keeps_later in ((start, True), (stop, False)):
        if bound is not None:
            kept = [both(q, _beside(flags, k, bound, keeps_later)) for k, q in enumerate(kept)]
    parts = [x if q is p else perhaps(q, present(capture, x)) for x, p, q in zip(content, flags, kept, strict=True)]
    return [x for x in parts if x is not MISSING]


def _beside(flags: Sequence[Any], k: int, bound: int, later: bool) -> Any:
    """Whether the element in place k is at or after a bound of a slice, or before it."""
    if bound >= 0:
        return compared(total(flags[:k]), lambda n: n >= bound if later else n < bound)
    return compared(total(flags[k + 1:]), lambda n: n < -bound if later else n >= -bound)


def between(several: TensorList, start: int | None, stop: int | None) -> TensorList:
    """The elements of a slice."""
    count = strong(several.count)
    first, last = (clip(bound + count if bound < 0 else bound, 0, count) for bound in
                   (0 if start is None else start, several.room if stop is None else stop))
    rows = moved(several, arange(several.room) + first)
    return TensorList(several.form, rows, RuntimeNumber(maximum(last - first, 0)))


def turned(several: TensorList) -> TensorList:
    """The elements from the last to the first."""
    return TensorList(several.form, moved(several, strong(several.count) - 1 - arange(several.room)), several.count)


def moved(several: TensorList, places: Tensor) -> list[Tensor]:
    """Rows from these places; those that there are not are nobody's."""
    at_most = clip(places, 0, several.room - 1)
    return [take(row, at_most, axis=0) for row in several.rows]
