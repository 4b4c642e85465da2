"""What an operator on a batch of inputs is, in operators on the whole batch.

A rule is `rule(op, arguments, **attrs) -> outputs`, with the batch axis first in every output; NotImplemented leaves
the call to the operator's definition in simpler operators, or to a loop over the examples.  Elementwise operators need
no rule of their own.  An operator's own `batch` goes first: a rule, or the name of one.

    "front"     the operator works on the last axes of its inputs and takes any number of axes in front
    "axis"      its attribute `axis` (or axes) counts from the front of all its inputs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.dims import Dim, product
from tenon.graph.ir import Graph, Literal
from tenon.graph.op import OPS, Op, using
from tenon.ops.creation import arange
from tenon.ops.custom import apply_graph
from tenon.ops.matrix_products import matmul
from tenon.ops.shape import broadcast_to, permute, reshape_op
from tenon.records import dataclass
from tenon.types import Shape

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Arguments:
    """The inputs of one call: tensors with the batch axis in front where `batched`, else as every example sees them."""

    size: Dim
    inputs: tuple[Any, ...]
    batched: tuple[bool, ...]
    level: Any = None               # the interpreter that asks (tenon.transforms.vmap_interpreter)

    def shape(self, k: int) -> Shape:
        """The shape of input k as an example sees it."""
        shape: Shape = self.inputs[k].shape
        return shape[1:] if self.batched[k] else shape

    def whole(self, k: int) -> Any:
        """Input k with a batch axis in front, repeated where it has none."""
        x = self.inputs[k]
        if self.batched[k] or x is None:
            return x
        return broadcast_to(as_tensor(x), shape=(self.size, *x.shape))

    def all_whole(self) -> list[Any]:
        """Every input with a batch axis in front."""
        return [self.whole(k) for k in range(len(self.inputs))]


def rule_of(op: Op) -> Rule | None:
    """How this operator is applied to a batch; None where nothing is known."""
    if op.batch is not None:
        return NAMED[op.batch] if isinstance(op.batch, str) else op.batch
    return elementwise if op.elementwise else RULES.get(op.name)


def as_tensor(x: Any) -> Any:
    """A literal as a scalar tensor."""
    return OPS["full_op"](x, shape=()) if isinstance(x, Literal) else x


# ---------------------------------------------------------------- families

def elementwise(op: Op, a: Arguments, **attrs: Any) -> Any:
    """Inputs are aligned at their last axes, the batch axis in front of all."""
    rank = max(len(a.shape(k)) for k, x in enumerate(a.inputs) if x is not None)

    def aligned(k: int) -> Any:
        x, shape = a.inputs[k], a.shape(k) if a.inputs[k] is not None else ()
        if not a.batched[k] or len(shape) == rank:
            return x
        return reshape_op(x, shape=(a.size, *(1,) * (rank - len(shape)), *shape))
    return op(*map(aligned, range(len(a.inputs))), **attrs)


def unchanged(op: Op, a: Arguments, **attrs: Any) -> Any:
    """Operators that work on the last axes and take any number of axes in front."""
    return op(*a.all_whole(), **attrs)


def first_only(op: Op, a: Arguments, **attrs: Any) -> Any:
    """Operators that take any number of axes in front of their first input, and parameters beside it."""
    return NotImplemented if any(a.batched[1:]) else op(*a.inputs, **attrs)


def along_axis(op: Op, a: Arguments, axis: Any, **attrs: Any) -> Any:
    """Operators with an axis, or axes, of all their inputs: it is one further back."""
    shifted = tuple(k + 1 for k in axis) if isinstance(axis, tuple) else axis + 1
    return op(*a.all_whole(), axis=shifted, **attrs)


def position(op: Op, a: Arguments, axis: tuple[int, ...], keepdims: bool) -> Any:
    """argmax and argmin: over several axes they count in the flattened example."""
    if len(axis) == 1:
        return along_axis(op, a, axis, keepdims=keepdims)
    shape = a.shape(0)
    out = op(reshape_op(a.inputs[0], shape=(a.size, product(shape))), axis=(1,), keepdims=False)
    return reshape_op(out, shape=(a.size, *(1,) * len(shape))) if keepdims else out


# ---------------------------------------------------------------- shapes

def reshaped(op: Op, a: Arguments, shape: Shape) -> Any:
    return op(a.inputs[0], shape=(a.size, *shape))


def broadcast(op: Op, a: Arguments, shape: Shape) -> Any:
    """New axes come between the batch axis and those of the example; a scalar is filled likewise."""
    own = a.shape(0)
    x = reshape_op(a.inputs[0], shape=(a.size, *(1,) * (len(shape) - len(own)), *own))
    return broadcast_to(x, shape=(a.size, *shape))


def permuted(op: Op, a: Arguments, axes: tuple[int, ...]) -> Any:
    return op(a.inputs[0], axes=(0, *(k + 1 for k in axes)))


def sliced(op: Op, a: Arguments, start: Any, stop: Any, step: Any) -> Any:
    return op(a.inputs[0], start=(0, *start), stop=(a.size, *stop), step=(1, *step))


def padded(op: Op, a: Arguments, low: Any, high: Any, interior: Any) -> Any:
    if a.batched[1]:        # pad with zeros, then put the example's own value where the padding is
        x, value = a.whole(0), a.inputs[1]
        widths = {"low": (0, *low), "high": (0, *high), "interior": (0, *interior)}
        inside = op(OPS["full_op"](True, shape=x.shape), False, **widths)
        return OPS["where"](inside, op(x, 0, **widths), reshape_op(value, shape=(a.size, *(1,) * (x.ndim - 1))))
    return op(a.inputs[0], a.inputs[1], low=(0, *low), high=(0, *high), interior=(0, *interior))


def updated(op: Op, a: Arguments, start: Any, step: Any) -> Any:
    return op(a.whole(0), a.whole(1), start=(0, *start), step=(1, *step))


# ---------------------------------------------------------------- products

def multiplied(op: Op, a: Arguments) -> Any:
    """A matrix that all examples share is multiplied once, with all their rows."""
    return matmul(a.inputs[0], a.inputs[1]) if len(a.shape(0)) == 2 else op(a.whole(0), a.whole(1))


def convolved(op: Op, a: Arguments, groups: int, **attrs: Any) -> Any:
    """Examples that share the kernel are more of the batch that the operator has; others are groups of channels."""
    x, w = a.inputs
    if not a.batched[1]:
        return split(op(merge(x, 0), w, groups=groups, **attrs), 0, a.size)
    x, w = a.whole(0), a.whole(1)
    return split(op(merge(x, 1), merge(w, 0), groups=groups * a.size, **attrs), 1, a.size)


def convolved_kernel(op: Op, a: Arguments, groups: int, **attrs: Any) -> Any:
    """The gradient of the kernel: every example is a group of channels."""
    x, g = a.whole(0), a.whole(1)
    return split(op(merge(x, 1), merge(g, 1), groups=groups * a.size, **attrs), 0, a.size)


def merge(x: Any, axis: int) -> Any:
    """[B, *shape] -> the batch axis in front of `axis` of an example, made one with it."""
    shape = x.shape[1:]
    moved = permute(x, axes=(*range(1, axis + 1), 0, *range(axis + 1, x.ndim)))
    return reshape_op(moved, shape=(*shape[:axis], x.shape[0] * shape[axis], *shape[axis + 1:]))


def split(x: Any, axis: int, size: Dim) -> Any:
    """Undo `merge`."""
    apart = reshape_op(x, shape=(*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1:]))
    return permute(apart, axes=(axis, *(k for k in range(apart.ndim) if k != axis)))


# ---------------------------------------------------------------- indices

def taken(op: Op, a: Arguments, axis: int) -> Any:
    x, at = a.inputs
    if not a.batched[1]:
        return op(x, at, axis=axis + 1)
    if not a.batched[0]:        # the axes of the indices stand where the axis was: the batch axis among them
        out = op(x, at, axis=axis)
        return permute(out, axes=(axis, *(k for k in range(out.ndim) if k != axis)))
    # every example has its own rows: one long axis of all of them, and indices counted along it
    count = a.shape(0)[axis]
    out = op(merge(x, axis), _offset(at, count, a.size, axis), axis=axis)
    return permute(out, axes=(axis, *(k for k in range(out.ndim) if k != axis)))


def put_back(op: Op, a: Arguments, axis: int, reduce: str) -> Any:
    x, at, updates = a.whole(0), a.inputs[1], a.whole(2)
    if not a.batched[1]:
        return op(x, at, updates, axis=axis + 1, reduce=reduce)
    count = a.shape(0)[axis]
    rows = permute(updates, axes=(*range(1, axis + 1), 0, *range(axis + 1, updates.ndim)))
    return split(op(merge(x, axis), _offset(at, count, a.size, axis), rows, axis=axis, reduce=reduce), axis, a.size)


def _offset(at: Any, count: Dim, size: Dim, axis: int) -> Any:
    """Indices into axes of `count` elements -> indices into one axis that holds `size` of them, one after the other."""
    at = OPS["wrap_index"](at, size=count, axis=axis).astype("int64")
    return at + reshape_op(arange(size), shape=(size, *(1,) * (at.ndim - 1))) * count


def searched(op: Op, a: Arguments, right: bool) -> Any:
    return op(a.inputs[0], a.inputs[1], right=right) if not a.batched[0] and len(a.shape(0)) == 1 else \
        op(a.whole(0), a.whole(1), right=right) if len(a.shape(0)) > 1 or len(a.shape(1)) == 1 else NotImplemented


# ---------------------------------------------------------------- graphs

def called(op: Op, a: Arguments, body: Graph) -> Any:
    """A graph is run node by node on the batch."""
    given = (a.level.enter(x, 0) if b else x for x, b in zip(a.inputs, a.batched, strict=True))
    return tuple(a.level.leave(x, 0) for x in run_graph(body, list(given), a.level))


def run_graph(graph: Graph, inputs: Sequence[Any], level: Any) -> tuple[Any, ...]:
    """The results of a graph on these tensors, by the interpreter `level`; its symbolic sizes are read off them."""
    known = graph.symbols()
    sizes = {str(dim): size for p, x in zip(graph.params, inputs, strict=True)
             for dim, size in zip(p.shape, x.shape, strict=True) if str(dim) in known}
    with using(level):
        return apply_graph(graph, inputs, sizes)




ALONG_AXIS = (
    "all", "any", "max", "min", "prod", "sum", "mean", "var", "std", "logsumexp", "vector_norm", "count_nonzero",
    "nansum", "nanmean", "steps", "softmax", "log_softmax", "cummax", "cummin", "cumprod", "cumsum",
    "logcumsumexp", "argsort", "first_places", "sort", "concat", "gather", "scatter", "softmax_cross_entropy", "fft",
    "rfft", "irfft",
)
LAST_AXES = (
    "add_windows", "barrier", "diagonal", "max_pool_grad", "max_pool_op", "max_pool_positions", "max_pool_taps",
    "one_hot", "windows", "wrap_index", "cholesky", "det", "eig", "eigh", "inv", "lu", "matrix_exp", "pinv", "qr",
    "slogdet", "solve", "solve_triangular", "frexp", "svd", "svdvals", "celu", "elu", "gelu", "hardsigmoid",
    "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu", "relu6", "selu", "silu", "softplus",
    "softsign", "tanhshrink", "log_ndtr", "ndtri", "entr", "dealt",
)
LAST_AXES_OF_FIRST = (
    "embedding", "layer_norm", "rms_norm",
)

NAMED: dict[str, Rule] = {"front": unchanged, "axis": along_axis}
RULES: dict[str, Rule] = {
    **dict.fromkeys(ALONG_AXIS, along_axis), **dict.fromkeys(LAST_AXES, unchanged),
    **dict.fromkeys(LAST_AXES_OF_FIRST, first_only),
    "argmax": position, "argmin": position, "reshape": reshaped, "broadcast_to": broadcast, "full_op": broadcast,
    "permute": permuted, "slice": sliced, "pad": padded, "slice_update": updated, "matmul": multiplied,
    "conv": convolved, "conv_input_grad": convolved, "conv_weight_grad": convolved_kernel, "take": taken,
    "put": put_back, "searchsorted": searched, "call": called,
}
