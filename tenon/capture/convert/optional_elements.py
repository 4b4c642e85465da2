"""Containers with elements that are there or not, as the data decide.

    kept = [x]
    if x > 0: kept.append(y)       ->      kept is [x, UnionValue(y where x > 0, MISSING otherwise)]

Such an element stands in its place in an ordinary list, tuple, queue or dictionary, as `TensorList` elements do that a
loop left, so what copies, joins and prolongs containers is Python's own. What counts elements is in `dynamic_indexing`,
what makes rows of them in `list_growth`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.convert.phi_merge import Arm, Join
from tenon.capture.convert.tensor_list import (
    TensorList,
)
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.effects import MISSING
from tenon.capture.runtime_numbers import RuntimeNumber, strong
from tenon.capture.subgraph import InnerBuilder
from tenon.errors import user_location
from tenon.ops.comparison import logical_and, logical_not, logical_or
from tenon.ops.shape import cast
from tenon.tensor import Tensor
from tenon.types import int64

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

SEQUENCES = (list, tuple, deque)


def refused(what: str) -> UnsafeCall:
    """For what cannot be done with such a container."""
    return UnsafeCall(f"{what}, which holds as many elements as the data decide", where=user_location(),
                      hint="give it the same elements in all branches, or count them")


def is_perhaps(x: Any) -> bool:
    """Whether an element is there or not, as the data decide."""
    return type(x) is UnionValue and any(y is MISSING for _, y in x.options)


def is_undecided(x: Any) -> bool:
    """Whether the data decide how many elements a container holds, or which keys."""
    if isinstance(x, dict):
        return any(map(is_perhaps, x.values()))
    return isinstance(x, SEQUENCES) and any(type(e) is TensorList or is_perhaps(e) for e in x)


def perhaps(condition: Any, value: Any) -> Any:
    """The value where the condition holds, else nothing."""
    if isinstance(condition, bool):
        return value if condition else MISSING
    options = value.options if type(value) is UnionValue else ((True, value),)
    return UnionValue((*((both(condition, p), x) for p, x in options), (negated(condition), MISSING)))


def presence(capture: ConvertingCapture, x: Any) -> Any:
    """Whether an element is there: a bool, or one of the graph."""
    return capture.each_option(x, lambda option: option is not MISSING) if is_perhaps(x) else True


def present(capture: ConvertingCapture, x: Any) -> Any:
    """An element that is there."""
    return capture.narrowed(x, drop=MISSING) if is_perhaps(x) else x


# ---------------------------------------------------------------- bools and numbers, of Python or of the graph

def both(a: Any, b: Any) -> Any:
    """`a and b`."""
    if isinstance(a, bool):
        return b if a else False
    return both(b, a) if isinstance(b, bool) else RuntimeNumber(logical_and(strong(a), strong(b)))


def either(a: Any, b: Any) -> Any:
    """`a or b`."""
    if isinstance(a, bool):
        return True if a else b
    return either(b, a) if isinstance(b, bool) else RuntimeNumber(logical_or(strong(a), strong(b)))


def negated(a: Any) -> Any:
    """`not a`."""
    return not a if isinstance(a, bool) else RuntimeNumber(logical_not(strong(a)))


def total(numbers: Iterable[Any]) -> Any:
    """The sum of counts and bools."""
    known, found = 0, None
    for n in numbers:
        if isinstance(n, Tensor):
            one = cast(strong(n), dtype=int64)
            found = one if found is None else found + one
        else:
            known += int(n)
    return known if found is None else RuntimeNumber(found + known)


def select(capture: ConvertingCapture, condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; neither is new."""
    if isinstance(condition, bool):
        return a if condition else b
    with unwatched():
        then, other = (Arm(capture, InnerBuilder(name, capture.builder), {"value": x})
                       for name, x in (("then", a), ("otherwise", b)))
        return Join(capture, strong(condition), then, other, lambda x: False).values({"value": None})["value"]


def negative(n: Any) -> Any:
    return RuntimeNumber(-strong(n)) if isinstance(n, Tensor) else -n


def compared(n: Any, ask: Callable[[Any], Any]) -> Any:
    return RuntimeNumber(ask(strong(n))) if isinstance(n, Tensor) else ask(n)
