"""Containers with elements that are there or not, as the data decide.

    kept = [x]
    if x > 0: kept.append(y)       ->      kept is [x, Choice(y where x > 0, MISSING otherwise)]

Such an element stands in its place in an ordinary list, tuple, queue or dictionary, as `Several` elements do that a
loop left, so what copies, joins and prolongs containers is Python's own.  What counts elements comes here: length,
index, truth, iteration, taking out.  An index that is out of range for the data lets the call run eagerly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenon.capture.convert.choice import Choice
from tenon.capture.convert.merge import Arm, Join
from tenon.capture.convert.several import (
    Several,
    at,
    empty,
    form_of,
    pushed,
    same_form,
    tensors_of,
    without_first,
    without_last,
)
from tenon.capture.effects import MISSING
from tenon.capture.numbers import Number, as_tensor, strong
from tenon.capture.subgraph import InnerBuilder
from tenon.capture.watch import UnsafeCall, unwatched
from tenon.errors import user_location
from tenon.ops.arranging import concat, stack
from tenon.ops.comparison import clip, logical_and, logical_not, logical_or, maximum, where
from tenon.ops.creation import arange
from tenon.ops.indexing import take
from tenon.ops.shape import cast
from tenon.tensor import Tensor
from tenon.types import int64

if TYPE_CHECKING:
    from tenon.capture.convert.session import Session

SEQUENCES = (list, tuple, deque)
MOST_LENGTHS = 8        # of a stack of tensors, each of which is a shape of its own


def refused(what: str) -> UnsafeCall:
    """For what cannot be done with such a container."""
    return UnsafeCall(f"{what}, which holds as many elements as the data decide", where=user_location(),
                      hint="give it the same elements in all branches, or count them")


def is_perhaps(x: Any) -> bool:
    """Whether an element is there or not, as the data decide."""
    return type(x) is Choice and any(y is MISSING for _, y in x.options)


def is_undecided(x: Any) -> bool:
    """Whether the data decide how many elements a container holds, or which keys."""
    if isinstance(x, dict):
        return any(map(is_perhaps, x.values()))
    return isinstance(x, SEQUENCES) and any(type(e) is Several or is_perhaps(e) for e in x)


def perhaps(condition: Any, value: Any) -> Any:
    """The value where the condition holds, else nothing."""
    if isinstance(condition, bool):
        return value if condition else MISSING
    options = value.options if type(value) is Choice else ((True, value),)
    return Choice((*((both(condition, p), x) for p, x in options), (negated(condition), MISSING)))


def presence(capture: Session, x: Any) -> Any:
    """Whether an element is there: a bool, or one of the graph."""
    return capture.each_option(x, lambda option: option is not MISSING) if is_perhaps(x) else True


def present(capture: Session, x: Any) -> Any:
    """An element that is there."""
    return capture.narrowed(x, drop=MISSING) if is_perhaps(x) else x


# ---------------------------------------------------------------- bools and numbers, of Python or of the graph

def both(a: Any, b: Any) -> Any:
    """`a and b`."""
    if isinstance(a, bool):
        return b if a else False
    return both(b, a) if isinstance(b, bool) else Number(logical_and(strong(a), strong(b)))


def negated(a: Any) -> Any:
    """`not a`."""
    return not a if isinstance(a, bool) else Number(logical_not(strong(a)))


def total(numbers: Iterable[Any]) -> Any:
    """The sum of counts and bools."""
    known, found = 0, None
    for n in numbers:
        if isinstance(n, Tensor):
            one = cast(strong(n), dtype=int64)
            found = one if found is None else found + one
        else:
            known += int(n)
    return known if found is None else Number(found + known)


def select(capture: Session, condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; neither is new."""
    if isinstance(condition, bool):
        return a if condition else b
    with unwatched():
        then, other = (Arm(capture, InnerBuilder(name, capture.builder), {"value": x})
                       for name, x in (("then", a), ("otherwise", b)))
        return Join(capture, strong(condition), then, other, lambda x: False).values({"value": None})["value"]


# ---------------------------------------------------------------- what stands where

@dataclass(frozen=True)
class Hit:
    """An element, and whether it is the one looked for."""

    number: int         # where it stands in the container
    condition: Any
    value: Any


def length(capture: Session, container: Any) -> Any:
    """How many elements there are."""
    inside = container.values() if isinstance(container, dict) else container
    return total(x.count if type(x) is Several else presence(capture, x) for x in inside)


def truth(capture: Session, container: Any) -> Any:
    """Whether there is any element."""
    flags = [compared(x.count, lambda n: n > 0) if type(x) is Several else presence(capture, x)
             for x in (container.values() if isinstance(container, dict) else container)]
    if any(p is True for p in flags):
        return True
    found: Any = False
    for p in flags:
        found = p if found is False else found if p is False else Number(logical_or(strong(found), strong(p)))
    return found


def hits(capture: Session, content: Sequence[Any], index: int) -> tuple[list[Hit], Any]:
    """The elements that may have this index, and how many there are up to the last of them."""
    found, before = [], 0
    place, backward = (index, False) if index >= 0 else (-index - 1, True)
    for k in range(len(content))[::-1 if backward else 1]:
        x = content[k]
        if isinstance(before, int) and before > place:
            break
        if type(x) is Several:
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


def negative(n: Any) -> Any:
    return Number(-strong(n)) if isinstance(n, Tensor) else -n


def compared(n: Any, ask: Callable[[Any], Any]) -> Any:
    return Number(ask(strong(n))) if isinstance(n, Tensor) else ask(n)


def found_at(capture: Session, content: Sequence[Any], index: int, words: str = "list") -> tuple[Any, list[Hit]]:
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


def taken(capture: Session, content: Sequence[Any], index: int, words: str = "list") -> tuple[Any, list[Any]]:
    """The element with this index, and all the others."""
    value, among = found_at(capture, content, index, words)
    rest = list(content)
    for hit in among:
        x = rest[hit.number]
        if type(x) is not Several:
            rest[hit.number] = perhaps(both(presence(capture, x), negated(hit.condition)), present(capture, x))
            continue
        if index not in (0, -1):
            raise refused("an element is taken out of the middle of a list")
        less = without_first(x) if index == 0 else without_last(x)
        rest[hit.number] = select(capture, hit.condition, less, x)
    return value, [x for x in rest if x is not MISSING]


def stored(capture: Session, content: Sequence[Any], index: int, value: Any, words: str = "list") -> list[Any]:
    """The content with another element at this index."""
    _, among = found_at(capture, content, index, words)
    new = list(content)
    for hit in among:
        x = new[hit.number]
        if type(x) is Several:
            raise refused("an element is stored in a list")
        there = presence(capture, x)
        new[hit.number] = perhaps(there, select(capture, hit.condition, value, present(capture, x)))
    return new


def cut(capture: Session, content: Sequence[Any], where_: slice) -> list[Any]:
    """The content of a slice."""
    start, stop, step = where_.start, where_.stop, where_.step
    if any(not (x is None or type(x) is int) for x in (start, stop, step)) or step not in (None, 1, -1):
        raise refused("a slice is taken of a list")
    if any(type(x) is Several for x in content) and (start, stop, step) not in ((None, None, None), (None, None, 1)):
        rows = together(capture, content)
        if rows is None or (step == -1 and (start, stop) != (None, None)):
            raise refused("a slice is taken of a list")
        return [turned(rows) if step == -1 else between(rows, start, stop)]
    if step == -1:
        if (start, stop) != (None, None):
            raise refused("a slice is taken of a list")
        return list(content)[::-1]
    flags = [presence(capture, x) if type(x) is not Several else True for x in content]
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


def between(several: Several, start: int | None, stop: int | None) -> Several:
    """The elements of a slice."""
    count = strong(several.count)
    first, last = (clip(bound + count if bound < 0 else bound, 0, count) for bound in
                   (0 if start is None else start, several.room if stop is None else stop))
    rows = moved(several, arange(several.room) + first)
    return Several(several.form, rows, Number(maximum(last - first, 0)))


def turned(several: Several) -> Several:
    """The elements from the last to the first."""
    return Several(several.form, moved(several, strong(several.count) - 1 - arange(several.room)), several.count)


def moved(several: Several, places: Tensor) -> list[Tensor]:
    """Rows from these places; those that there are not are nobody's."""
    at_most = clip(places, 0, several.room - 1)
    return [take(row, at_most, axis=0) for row in several.rows]


# ---------------------------------------------------------------- several at once

@dataclass(frozen=True)
class Elements:
    """What a loop goes through: values, each under the condition that it is there; and what it was taken from."""

    slots: Sequence[tuple[Any, Any]]
    source: Any = None

    def numbered(self, start: Any) -> Elements:
        """The elements, each behind its number."""
        flags = [p for p, _ in self.slots]
        return Elements([(p, (total([start, *flags[:k]]), x)) for k, (p, x) in enumerate(self.slots)], self.source)

    def changed(self, content: Sequence[Any]) -> bool:
        """Whether the container is not what it was."""
        now = list(self.source) if isinstance(self.source, SEQUENCES) else content
        return len(now) != len(content) or any(a is not b for a, b in zip(now, content, strict=True))


def elements(capture: Session, container: Any) -> Elements:
    """The elements of a container that holds no `Several`, one by one."""
    if isinstance(container, dict):
        slots = [(presence(capture, x), key) for key, x in container.items()]
        return Elements([(p, key) for p, key in slots if p is not False], None)
    slots = [(presence(capture, x), x) for x in container]
    return Elements([(p, present(capture, x)) for p, x in slots if p is not False], container)


def together(capture: Session, content: Iterable[Any]) -> Several | None:
    """The content as rows of tensors, where elements of one kind allow it and some of it is such rows."""
    parts = list(content)
    middle = next((k for k, x in enumerate(parts) if type(x) is Several), None)
    if middle is None:
        return None
    several = parts[middle]
    if not all(presence(capture, x) is True and type(x) is not Several and fits(several, present(capture, x))
               for x in parts[:middle]) or any(type(x) is Several for x in parts[middle + 1:]):
        return None
    several = preceded(capture, [present(capture, x) for x in parts[:middle]], several)
    for x in parts[middle + 1:]:
        if not fits(several, present(capture, x)):
            return None
        several = pushed_if(capture, presence(capture, x), several, present(capture, x))
    return several


def fits(several: Several, x: Any) -> bool:
    """Whether an element has the form of these."""
    form = form_of(x)
    return form is not None and same_form(form, several.form)


def preceded(capture: Session, first: Sequence[Any], several: Several) -> Several:
    """With more elements before them."""
    if not first:
        return several
    columns = zip(*map(tensors_of, first), strict=True)
    rows = [concat([stack(list(new)), row])[:several.room] for new, row in zip(columns, several.rows, strict=True)]
    count = strong(several.count) + len(first)
    capture.fail_if(count > several.room)
    return Several(several.form, rows, Number(count))


def pushed_if(capture: Session, condition: Any, several: Several, x: Any) -> Several:
    """With another element at the end, where the condition holds."""
    return several if condition is False else pushed(capture, several, x, condition)


def appended(capture: Session, content: list[Any], x: Any) -> None:
    """Add an element in place."""
    if content and type(content[-1]) is Several and (is_perhaps(x) or fits(content[-1], x)) \
            and (not is_perhaps(x) or fits(content[-1], present(capture, x))):
        content[-1] = pushed_if(capture, presence(capture, x), content[-1], present(capture, x))
    else:
        content.append(x)


def compact(capture: Session, content: Sequence[Any]) -> tuple[list[Any], Any]:
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


def stacked(capture: Session, content: Sequence[Any], join: Callable[[list[Any]], Any]) -> Any:
    """The elements joined to one tensor, which has one of several shapes."""
    found, count = compact(capture, content)
    if isinstance(count, int):
        return join(found)
    fewest = sum(presence(capture, x) is True for x in content)
    capture.fail_if_not(compared(count, lambda n: n > 0))
    lengths = range(max(fewest, 1), len(found) + 1)
    if len(lengths) > MOST_LENGTHS:
        raise refused("tensors of a list are joined to one")
    options = tuple((compared(count, lambda n, k=k: n == k), join(found[:k])) for k in lengths)     # type: ignore[misc]
    return options[0][1] if len(options) == 1 else Choice(options)


def grown(capture: Session, before: Sequence[Any], after: Sequence[Any]) -> list[Any] | None:
    """What a list can hold in every iteration of a loop in which it becomes longer or shorter.

    What no iteration changes at its beginning stays; all behind it are rows of one kind, or there is no such list.
    """
    front = 0
    while front < min(len(before), len(after)) and before[front] is after[front]:
        front += 1
    rest, later = before[front:], after[front:]
    known = [x.form if type(x) is Several else form_of(present(capture, x)) for x in [*rest, *later]]
    if not known or any(form is None or not same_form(form, known[0]) for form in known):
        return None
    rows = as_rows(capture, rest, known[0])
    return None if rows is None else [*before[:front], rows]


def fitted(capture: Session, given: Any, after: Any) -> Any:
    """A list at the end of an iteration in the form that it had at its beginning, where that has rows at the end."""
    if type(given) not in (list, deque) or type(after) is not type(given):
        return after
    if not given or type(given[-1]) is not Several:
        return after
    front, content = len(given) - 1, list(after)
    rest = content[front:]
    if any(a is not b for a, b in zip(list(given)[:front], content[:front], strict=False)) or len(content) < front or (
            len(rest) == 1 and type(rest[0]) is Several):
        return after
    rows = as_rows(capture, rest, given[-1].form)
    if rows is None:
        return after
    return type(after)([*content[:front], rows])


def as_rows(capture: Session, content: Sequence[Any], form: Any) -> Several | None:
    """The elements as rows of this form; None where they are of another."""
    if any(type(x) is Several for x in content):
        return together(capture, content)
    rows = empty(form)
    for x in content:
        if rows is None or not fits(rows, present(capture, x)):
            return None
        rows = pushed_if(capture, presence(capture, x), rows, present(capture, x))
    return rows
