"""Elements of a list that a loop of unknown length leaves: the first `count` rows of tensors.

    while x.sum() > 1:          before the loop   [TensorList(rows=zeros(256, 3), count=0)]
        parts.append(x)         in an iteration   rows' = rows with x at `count`, count' = count + 1
        x = x / 2

The `form` says what an element is: a tensor, a Python number, a constant, or a tuple of these; every tensor and number
of it has rows of its own.  A run that leaves more elements than there is room for is made eagerly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.guards import is_atom, same_atom
from tenon.capture.runtime_numbers import DTYPE_OF, RuntimeNumber, as_tensor, in_graph, is_number, kind_of, strong
from tenon.dims.compare_sizes import same_sizes
from tenon.dims.symbolic_dim import Dim
from tenon.errors import user_location
from tenon.graph.ir import Literal, Value
from tenon.ops.arithmetic import add
from tenon.ops.comparison import greater_equal, logical_and, where
from tenon.ops.creation import zeros
from tenon.ops.indexing import put, take
from tenon.ops.joining_and_axes import concat
from tenon.ops.shape import cast, dimension, full_op
from tenon.tensor import Tensor
from tenon.types import int64

if TYPE_CHECKING:
    from tenon.capture.convert.converting_capture import ConvertingCapture

MAX_ELEMENTS, MIN_CAPACITY = 256, 16  # elements that there is room for
BYTES = 1 << 20                 # that the rows may take before there is room for fewer


class TensorList:
    """The first `count` of the rows, each an element of this form."""

    __slots__ = ("count", "form", "rows")

    def __init__(self, form: Any, rows: Sequence[Tensor], count: Any):
        self.form, self.rows, self.count = form, tuple(rows), count

    def __repr__(self) -> str:
        raise refusal_of_rows()

    @property
    def room(self) -> Any:
        """How many elements there is room for: a number, or a size that changes from call to call."""
        return self.rows[0].shape[0]

    @property
    def is_full(self) -> bool:
        """Whether it is known that there are as many elements as there is room for."""
        count = known_count(strong(self.count).payload)
        return count is not None and same_sizes((count,), (self.room,))


def known_count(count: Any, param: Any = None) -> Dim | None:
    """What a count is, where sizes say it; of one within a loop how much it is more than `param`, with which an
    iteration begins."""
    if count is param:
        return 0
    node = getattr(count, "node", None)
    if node is None:
        return count.value if isinstance(count, Literal) and type(count.value) is int else None
    if node.op is dimension:
        return node.attrs["size"]       # type: ignore[no-any-return]
    if node.op is full_op and node.outputs[0].shape == ():
        return known_count(node.inputs[0], param)
    if node.op is not add:
        return None
    left, right = (known_count(x, param) for x in node.inputs)
    return None if left is None or right is None else left + right


def with_room(several: TensorList, more: Dim) -> TensorList:
    """With room for more elements."""
    rows = [concat([row, zeros((more, *row.shape[1:]), dtype=row.dtype)]) for row in several.rows]
    return TensorList(several.form, rows, several.count)


def form_of(x: Any) -> Any:
    """What an element is, without its data; None where it is nothing that rows can hold."""
    if is_number(x):
        return kind_of(x)
    if isinstance(x, Tensor):
        return x.dtype, x.shape
    if type(x) is tuple:
        inside = tuple(map(form_of, x))
        return None if None in inside else [inside]
    return {"constant": x} if is_atom(x) else None


def same_form(a: Any, b: Any) -> bool:
    """Whether two elements have rows in common."""
    if isinstance(a, dict) and isinstance(b, dict):
        return same_atom(a["constant"], b["constant"])
    if isinstance(a, list) and isinstance(b, list):
        return len(a[0]) == len(b[0]) and all(map(same_form, a[0], b[0]))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return a[0] is b[0] and same_sizes(a[1], b[1])
    return type(a) is type(b) and bool(a == b)


def tensors_of(x: Any) -> list[Tensor]:
    """The tensors and numbers of an element."""
    if is_number(x):
        return [strong(as_tensor(x))]
    return [x] if isinstance(x, Tensor) else [t for part in x for t in tensors_of(part)] if type(x) is tuple else []


def element(form: Any, tensors: Iterator[Tensor]) -> Any:
    """The element with these tensors."""
    if isinstance(form, dict):
        return form["constant"]
    if isinstance(form, list):
        return tuple([element(part, tensors) for part in form[0]])
    tensor = next(tensors)
    if not isinstance(form, type):
        return tensor
    return RuntimeNumber(tensor, form) if isinstance(tensor.payload, Value) else form(tensor.item())


def types_of(form: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """The element type and shape of every tensor of an element."""
    if isinstance(form, list):
        return [t for part in form[0] for t in types_of(part)]
    return [] if isinstance(form, dict) else [(DTYPE_OF[form], ())] if isinstance(form, type) else [form]


def empty(form: Any, room: Dim | None = None) -> TensorList | None:
    """Room for elements of this form; None where there would be nothing but constants in it, or nobody can say how
    much room is needed."""
    types = types_of(form)
    if room is None:
        if not all(isinstance(n, int) for _, shape in types for n in shape):
            return None
        size = max([1, *(dtype.numpy.itemsize * math.prod(shape) for dtype, shape in types)])
        room = min(MAX_ELEMENTS, max(MIN_CAPACITY, BYTES // size))
    rows = [zeros((room, *shape), dtype=dtype) for dtype, shape in types]
    return TensorList(form, rows, RuntimeNumber(as_tensor(0))) if rows else None


def pushed(capture: ConvertingCapture, several: TensorList, x: Any, condition: Any = True) -> TensorList:
    """With another element at the end, where the condition holds; what stands beyond the count is nobody's."""
    several = with_room(several, 1) if several.is_full else several
    count = strong(several.count)
    full = greater_equal(count, strong(in_graph(several.room)))
    capture.fail_if(full if condition is True else logical_and(full, strong(condition)))
    place = where(full, 0, count).reshape(1)
    rows = [put(row, place, t.reshape(1, *t.shape), axis=0, reduce="set")
            for row, t in zip(several.rows, tensors_of(x), strict=True)]
    one = 1 if condition is True else cast(strong(condition), dtype=int64)
    return TensorList(several.form, rows, RuntimeNumber(count + one))


def at(several: TensorList, place: Any) -> Any:
    """The element in this place, which is one of them."""
    index = strong(as_tensor(place) if is_number(place) else place)
    return element(several.form, iter([take(row, index, axis=0) for row in several.rows]))


def without_first(several: TensorList) -> TensorList:
    """All but the first element."""
    rows = [concat([row[1:], row[:1]]) for row in several.rows]
    return TensorList(several.form, rows, RuntimeNumber(strong(several.count) - 1))


def without_last(several: TensorList) -> TensorList:
    """All but the last element."""
    return TensorList(several.form, several.rows, RuntimeNumber(strong(several.count) - 1))


class FirstRows:
    """A tensor of which only the first `count` rows are there: what joins as many tensors as the data decide."""

    __slots__ = ("count", "rows")

    def __init__(self, rows: Tensor, count: Any):
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "count", count)

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "ndim", "requires_grad"):
            return getattr(self.rows, name)
        raise refusal_of_rows()

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes, the first of which the data decide."""
        return (self.count, *self.rows.shape[1:])


def refusal_of_rows() -> UnsafeCall:
    """For what cannot be done with a tensor whose size the data decide."""
    return UnsafeCall("a tensor has as many rows as the data decide", where=user_location(),
                      hint="return it, go through its rows, or keep a result in the loop")
