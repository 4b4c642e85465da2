"""Undecided elements as rows: a container whose length the data decide becomes tensors of rows and a count.

    together(capture, [x, UnionValue(y, MISSING)])     ->      a TensorList of 1 or 2 rows
    grown(capture, before, after)                   what a loop that prolongs a list carries
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenon.capture.convert.optional_elements import (
    SEQUENCES,
    both,
    compared,
    is_perhaps,
    presence,
    present,
    refused,
    select,
    total,
)
from tenon.capture.convert.tensor_list import (
    TensorList,
    empty,
    form_of,
    pushed,
    same_form,
    tensors_of,
    with_room,
)
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.runtime_numbers import RuntimeNumber, in_graph, strong
from tenon.dims.symbolic_dim import Dim
from tenon.ops.joining_and_axes import concat, stack
from tenon.records import dataclass

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

MAX_LENGTHS = 8         # of a stack of tensors, each of which is a shape of its own


@dataclass(frozen=True)
class ListElements:
    """What a loop goes through: values, each under the condition that it is there; and what it was taken from."""

    slots: Sequence[tuple[Any, Any]]
    source: Any = None

    def numbered(self, start: Any) -> ListElements:
        """The elements, each behind its number."""
        flags = [p for p, _ in self.slots]
        return ListElements([(p, (total([start, *flags[:k]]), x)) for k, (p, x) in enumerate(self.slots)], self.source)

    def changed(self, content: Sequence[Any]) -> bool:
        """Whether the container is not what it was."""
        now = list(self.source) if isinstance(self.source, SEQUENCES) else content
        return len(now) != len(content) or any(a is not b for a, b in zip(now, content, strict=True))


def elements(capture: ConvertingCapture, container: Any) -> ListElements:
    """The elements of a container that holds no `TensorList`, one by one."""
    if isinstance(container, dict):
        slots = [(presence(capture, x), key) for key, x in container.items()]
        return ListElements([(p, key) for p, key in slots if p is not False], None)
    slots = [(presence(capture, x), x) for x in container]
    return ListElements([(p, present(capture, x)) for p, x in slots if p is not False], container)


def together(capture: ConvertingCapture, content: Iterable[Any], wider: bool = True) -> TensorList | None:
    """The content as rows of tensors, where elements of one kind allow it and some of it is such rows; with more room
    than these have where that is needed, unless a loop hands on what there is."""
    parts = list(content)
    middle = next((k for k, x in enumerate(parts) if type(x) is TensorList), None)
    if middle is None:
        return None
    several = parts[middle]
    if not all(presence(capture, x) is True and type(x) is not TensorList and fits(several, present(capture, x))
               for x in parts[:middle]) or any(type(x) is TensorList for x in parts[middle + 1:]):
        return None
    several = preceded(capture, [present(capture, x) for x in parts[:middle]], several, wider)
    for x in parts[middle + 1:]:
        if not fits(several, present(capture, x)):
            return None
        several = pushed_if(capture, presence(capture, x), several, present(capture, x))
    return several


def fits(several: TensorList, x: Any) -> bool:
    """Whether an element has the form of these."""
    form = form_of(x)
    return form is not None and same_form(form, several.form)


def preceded(capture: ConvertingCapture, first: Sequence[Any], several: TensorList, wider: bool) -> TensorList:
    """With more elements before them."""
    if not first:
        return several
    columns = zip(*map(tensors_of, first), strict=True)
    rows = [concat([stack(list(new)), row]) for new, row in zip(columns, several.rows, strict=True)]
    count = strong(several.count) + len(first)
    if not wider:
        rows = [row[:several.room] for row in rows]
        capture.fail_if(count > strong(in_graph(several.room)))
    return TensorList(several.form, rows, RuntimeNumber(count))


def pushed_if(capture: ConvertingCapture, condition: Any, several: TensorList, x: Any) -> TensorList:
    """With another element at the end, where the condition holds."""
    return several if condition is False else pushed(capture, several, x, condition)


def appended(capture: ConvertingCapture, content: list[Any], x: Any) -> None:
    """Add an element in place."""
    if content and type(content[-1]) is TensorList and (is_perhaps(x) or fits(content[-1], x)) \
            and (not is_perhaps(x) or fits(content[-1], present(capture, x))):
        content[-1] = pushed_if(capture, presence(capture, x), content[-1], present(capture, x))
    else:
        content.append(x)


def compact(capture: ConvertingCapture, content: Sequence[Any]) -> tuple[list[Any], Any]:
    """The elements one behind the other, those that may not be there at the end, and how many there are."""
    found: list[Any] = []
    count: Any = 0
    for x in content:
        there, value = presence(capture, x), present(capture, x)
        if there is False:
            continue
        if isinstance(count, int):
            found.append(value)
        else:
            for k in range(len(found)):
                here = both(there, compared(count, lambda n, k=k: n == k))      # type: ignore[misc]
                found[k] = select(capture, here, value, found[k])
            found.append(value)
        count = total([count, there])
    return found, count


def stacked(capture: ConvertingCapture, content: Sequence[Any], join: Callable[[list[Any]], Any]) -> Any:
    """The elements joined to one tensor, which has one of several shapes."""
    found, count = compact(capture, content)
    if isinstance(count, int):
        return join(found)
    fewest = sum(presence(capture, x) is True for x in content)
    capture.fail_if_not(compared(count, lambda n: n > 0))
    lengths = range(max(fewest, 1), len(found) + 1)
    if len(lengths) > MAX_LENGTHS:
        raise refused("tensors of a list are joined to one")
    options = tuple((compared(count, lambda n, k=k: n == k), join(found[:k])) for k in lengths)     # type: ignore[misc]
    return options[0][1] if len(options) == 1 else UnionValue(options)


def grown(capture: ConvertingCapture, before: Sequence[Any], after: Sequence[Any],
          turns: Dim | None = None) -> list[Any] | None:
    """What a list can hold in every iteration of a loop in which it becomes longer or shorter; of `turns` iterations,
    where that is known.

    What no iteration changes at its beginning stays; all behind it are rows of one kind, or there is no such list.
    """
    front = 0
    while front < min(len(before), len(after)) and before[front] is after[front]:
        front += 1
    rest, later = before[front:], after[front:]
    known = [x.form if type(x) is TensorList else form_of(present(capture, x)) for x in [*rest, *later]]
    if not known or any(form is None or not same_form(form, known[0]) for form in known):
        return None
    rows = as_rows(capture, rest, known[0], None if turns is None else turns * (capacity(later) - capacity(rest)))
    return None if rows is None else [*before[:front], rows]


def capacity(content: Sequence[Any]) -> Dim:
    """How many elements there are at most."""
    found: Dim = 0
    for x in content:
        found = found + (x.room if type(x) is TensorList else 1)
    return found


def fitted(capture: ConvertingCapture, given: Any, after: Any) -> Any:
    """A list at the end of an iteration in the form that it had at its beginning, where that has rows at the end."""
    if type(given) not in (list, deque) or type(after) is not type(given):
        return after
    if not given or type(given[-1]) is not TensorList:
        return after
    front, content = len(given) - 1, list(after)
    rest = content[front:]
    if any(a is not b for a, b in zip(list(given)[:front], content[:front], strict=False)) or len(content) < front or (
            len(rest) == 1 and type(rest[0]) is TensorList):
        return after
    rows = as_rows(capture, rest, given[-1].form)
    if rows is None:
        return after
    return type(after)([*content[:front], rows])


def as_rows(capture: ConvertingCapture, content: Sequence[Any], form: Any,
            more: Dim | None = None) -> TensorList | None:
    """The elements as rows of this form, with room for some more; None where they are of another."""
    if any(type(x) is TensorList for x in content):
        several = together(capture, content, wider=False)
        return several if several is None or more is None else with_room(several, more)
    rows = empty(form, None if more is None else more + len(content))
    for x in content:
        if rows is None or not fits(rows, present(capture, x)):
            return None
        rows = pushed_if(capture, presence(capture, x), rows, present(capture, x))
    return rows
