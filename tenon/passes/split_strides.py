"""Graph -> the same graph with the input gradients of strided convolutions as dense ones, one a phase of the stride.

    x[s*t + e] = sum over j of g[t - j] * w[k + s*j]        of stride 1, for every e < s; then they are interleaved

The elements of x that are e past a multiple of the stride meet every s-th tap only, so that nothing is multiplied by
the zeros between the windows.  Where windows stand side by side, or there is but one, every phase meets one tap, so
that all are one product of matrices.  Transposed convolutions are such gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd, prod
from typing import Any

from tenon.dataclasses import dataclass
from tenon.graph.build import current_builder, literal, rebuild
from tenon.graph.cut import map_graphs
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.arranging import stack
from tenon.ops.convolution import conv_input_grad
from tenon.ops.creation import zeros
from tenon.ops.cutting import narrow
from tenon.ops.pieces import pad_op
from tenon.ops.shape import permute, reshape_op


def split_strides(graph: Graph) -> Graph:
    """Open every input gradient whose windows have a stride, or which has a single window."""
    if not any(_opens(node) or node.graphs for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node: Node, inputs: tuple[Input, ...]) -> Any:
    if not _opens(node):
        return current_builder().emit(node.op, inputs, map_graphs(node.attrs, split_strides))
    g, w = inputs
    return (_spread if _stand_side_by_side(node) else _interleaved)(g, w, **node.attrs)


def _opens(node: Node) -> bool:
    """Whether there is something to save.

    Where a channel is computed of one other, memory takes longer than multiplications, which are not worth saving.
    """
    if node.op is not conv_input_grad:
        return False
    outputs, channels, *_ = node.inputs[1].shape            # type: ignore[union-attr]
    stride = node.attrs["stride"]
    if channels == 1 and outputs == node.attrs["groups"]:
        return False
    sizes = [n for x in node.inputs if isinstance(x, Value) for n in x.shape[2:]]
    if not all(isinstance(n, int) for n in (*sizes, *node.attrs["sizes"])):
        return False
    return any(s > 1 for s in stride) or (any(n > 1 for n in node.attrs["sizes"]) and _stand_side_by_side(node))


def _stand_side_by_side(node: Node) -> bool:
    """Whether every element is in one window, or in none behind the last; a single window has nothing beside it."""
    (_, _, *counts), (_, _, *kernel) = (x.shape for x in node.inputs)       # type: ignore[union-attr]
    return all(d == 1 and (k == s or n == 1) for d, k, s, n
               in zip(node.attrs["dilation"], kernel, node.attrs["stride"], counts, strict=True))


# ---------------------------------------------------------------- windows side by side

def _spread(g: Any, w: Any, sizes: Sequence[int], stride: Sequence[int], padding: Any, dilation: Sequence[int],
            groups: int) -> Any:
    """What each window gives to all of its elements, which are then put in their places."""
    outputs, channels, *kernel = w.shape
    counts, ones = g.shape[2:], (1,) * len(sizes)
    flat = reshape_op(w, shape=(outputs, channels * prod(kernel), *ones))
    parts = conv_input_grad(g, flat, sizes=counts, stride=ones, padding=((0, 0),) * len(sizes), dilation=ones,
                            groups=groups)
    apart = reshape_op(parts, shape=(g.shape[0], channels * groups, *kernel, *counts))
    turns = [axis for k in range(len(sizes)) for axis in (2 + len(sizes) + k, 2 + k)]
    whole = reshape_op(permute(apart, axes=(0, 1, *turns)),
                       shape=(g.shape[0], channels * groups, *(n * k for n, k in zip(counts, kernel, strict=True))))
    for axis, (n, (low, _)) in enumerate(zip(sizes, padding, strict=True), 2):
        whole = _from(whole, axis, low, n)
    return whole


def _from(x: Any, axis: int, start: int, size: int) -> Any:
    """So many elements of an axis from `start` on, which may be negative; zeros where there are none."""
    first, last = max(start, 0), min(start + size, x.shape[axis])
    if first >= last:
        return zeros((*x.shape[:axis], size, *x.shape[axis + 1:]), dtype=x.dtype)
    x = narrow(x, axis, first, last)
    low, high = ([n if k == axis else 0 for k in range(x.ndim)] for n in (first - start, start + size - last))
    return pad_op(x, literal(0, x.dtype), low=low, high=high) if any((*low, *high)) else x


# ---------------------------------------------------------------- windows that overlap


@dataclass(frozen=True)
class Phase:
    """Along one axis, the elements of x that are `place` past a multiple of the stride."""

    place: int
    taps: range         # of the kernel that they meet
    dilation: int       # between two such taps, in windows
    low: int            # padding in front


def phases(size: int, kernel: int, low: int, stride: int, dilation: int) -> list[Phase]:
    """The phases of an axis, in the order of their places.

    >>> [(phase.place, list(phase.taps), phase.low) for phase in phases(size=8, kernel=3, low=1, stride=2, dilation=1)]
    [(0, [1], 0), (1, [0, 2], 1)]
    """
    found = []
    step = stride // gcd(stride, dilation)
    for rest in range(stride):
        first = next((k for k in range(min(step, kernel)) if k * dilation % stride == rest), kernel)
        start = -((rest - low) // stride)       # the first element is stride * start + rest - low
        padding = start - (first * dilation - rest) // stride
        found.append(Phase(stride * start + rest - low, range(first, kernel, step), step * dilation // stride, padding))
    return sorted(found, key=lambda phase: phase.place)


def _interleaved(g: Any, w: Any, sizes: Sequence[int], stride: Sequence[int], padding: Any, dilation: Sequence[int],
                 groups: int) -> Any:
    axes = [phases(n, k, low, s, d) for n, k, (low, _), s, d
            in zip(sizes, w.shape[2:], padding, stride, dilation, strict=True)]
    counts = tuple(-(-n // s) for n, s in zip(sizes, stride, strict=True))
    parts = [_dense(g, w, chosen, counts, groups) for chosen in product(*axes)]
    for axis in reversed(range(len(sizes))):
        last = len(parts) // stride[axis]
        parts = [_woven(parts[k * stride[axis]:(k + 1) * stride[axis]], axis + 2, sizes[axis]) for k in range(last)]
    return parts[0]


def _dense(g: Any, w: Any, chosen: Sequence[Phase], counts: tuple[int, ...], groups: int) -> Any:
    """The elements of one phase in each axis: `counts` of them, some of which may be past the end."""
    if not all(phase.taps for phase in chosen):
        return zeros((g.shape[0], w.shape[1] * groups, *counts), dtype=g.dtype)
    for axis, phase in enumerate(chosen, 2):
        w = narrow(w, axis, phase.taps.start, phase.taps[-1] + 1, phase.taps.step)
    padding = tuple((x.low, windows + x.dilation * (len(x.taps) - 1) - n - x.low)
                    for x, windows, n in zip(chosen, g.shape[2:], counts, strict=True))
    return conv_input_grad(g, w, sizes=counts, stride=(1,) * len(counts), padding=padding,
                           dilation=tuple(x.dilation for x in chosen), groups=groups)


def _woven(parts: Sequence[Any], axis: int, size: int) -> Any:
    """The parts' elements in turn along an axis, `size` in all."""
    if len(parts) == 1:
        return narrow(parts[0], axis, 0, size)
    together = stack(*parts, axis=axis + 1)
    shape = parts[0].shape
    flat = reshape_op(together, shape=(*shape[:axis], shape[axis] * len(parts), *shape[axis + 1:]))
    return narrow(flat, axis, 0, size)
