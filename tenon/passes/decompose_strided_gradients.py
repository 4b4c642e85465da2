"""Graph -> the same graph with the input gradients of strided convolutions as dense ones, one a phase of the stride.

    x[s*t + e] = sum over j of g[t - j] * w[k + s*j]        of stride 1, for every e < s; then they are interleaved

The elements of x that are e past a multiple of the stride meet every s-th tap only, so that nothing is multiplied by
the zeros between the windows.  Where windows stand side by side, or there is but one, every phase meets one tap, so
that all are one product of matrices.  All are one convolution too where a phase in each axis would be many, or channels
stand alone: what a place gives to an element of each phase are channels of its own.  Where windows are few, reading the
kernel takes longest: a product reads it once, and what windows share is added up afterwards.  Transposed convolutions
are such gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import gcd, prod
from typing import Any

from tenon.graph.build import current_builder, literal, rebuild
from tenon.graph.ir import Graph, Input, Node
from tenon.graph.partition import map_graphs
from tenon.ops.arithmetic import add
from tenon.ops.barrier import stored
from tenon.ops.convolution import conv_input_grad
from tenon.ops.creation import zeros
from tenon.ops.joining_and_axes import stack
from tenon.ops.matrix_products import matmul_op
from tenon.ops.shape import permute, reshape_op
from tenon.ops.slice_pad_concat import pad_op
from tenon.ops.splitting import narrow
from tenon.records import dataclass

MAX_PHASES = 8      # that are computed one by one
MIN_TAPS_ALONE = 16     # of a channel that stands alone: with fewer, memory takes longer than multiplications
MAX_SHARED = 16     # windows that give to one element, and are added up
AS_LONG = 64        # phases take beside their multiplications as long as these


def decompose_strided_gradients(graph: Graph) -> Graph:
    """Open every input gradient whose windows have a stride, or which has a single window."""
    if not any(_way(node) or node.graphs for node in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(node: Node, inputs: tuple[Input, ...]) -> Any:
    way = _way(node)
    if way is None:
        return current_builder().emit(node.op, inputs, map_graphs(node.attrs, decompose_strided_gradients))
    return way(*inputs, **node.attrs)


def _way(node: Node) -> Callable[..., Any] | None:
    """What opens the gradient; None where nothing is to be saved."""
    if node.op is not conv_input_grad:
        return None
    (_, _, *counts), (outputs, channels, *kernel) = (x.shape for x in node.inputs)      # type: ignore[union-attr]
    stride, sizes = node.attrs["stride"], node.attrs["sizes"]
    if not all(isinstance(n, int) for n in (*counts, *kernel, *sizes)):
        return None
    cuts = _cuts(counts, kernel, stride)
    dense = set(node.attrs["dilation"]) == {1} and any(cut.step > 1 for cut in cuts)
    whole = dense and all(k % cut.step == 0 for cut, k in zip(cuts, kernel, strict=True))
    shared, number = prod(cut.taps for cut in cuts), prod(cut.step for cut in cuts)
    if channels == 1 and outputs == node.attrs["groups"]:
        return None if not dense or prod(kernel) < MIN_TAPS_ALONE else _spread if whole else _interleaved
    if whole and shared == 1:
        return _spread
    if dense and shared <= MAX_SHARED and _has_few_windows(node):
        return _added
    multiplied, plain = shared * number * prod(cut.places for cut in cuts), prod(sizes) * prod(kernel)
    if all(s == 1 for s in stride):
        return _spread if whole and 2 * multiplied <= plain else None
    many = number > MAX_PHASES and multiplied * number <= plain * (1 + number / AS_LONG)
    return _spread if whole and many else _interleaved


# ---------------------------------------------------------------- all phases in one


@dataclass(frozen=True)
class StrideCut:
    """Along one axis, the kernel is cut into `taps` pieces that are a stride long, and a single window's is one piece;
    so many elements, `step`, have their sums at each of so many `places`.

    Only whole pieces are multiplied: with a zero behind the last, infinities would reach what no window covers.
    """

    step: int
    taps: int
    places: int


def _cuts(counts: Sequence[Any], kernel: Sequence[Any], stride: Sequence[int]) -> list[StrideCut]:
    steps = [k if n == 1 else s for k, n, s in zip(kernel, counts, stride, strict=True)]
    taps = [-(-k // s) for k, s in zip(kernel, steps, strict=True)]
    return [StrideCut(s, k, n + k - 1) for s, k, n in zip(steps, taps, counts, strict=True)]


def _spread(g: Any, w: Any, sizes: Sequence[int], stride: Sequence[int], padding: Any, dilation: Sequence[int],
            groups: int) -> Any:
    """What windows give to the elements of each place, which are then put in their places."""
    cuts, count = _cuts(g.shape[2:], w.shape[2:], stride), len(sizes)
    steps, places = tuple(cut.step for cut in cuts), tuple(cut.places for cut in cuts)
    parts = conv_input_grad(g, _cut_up(w, cuts), sizes=places, stride=(1,) * count, padding=((0, 0),) * count,
                            dilation=(1,) * count, groups=groups)
    return _in_place(reshape_op(parts, shape=(g.shape[0], w.shape[1] * groups, *steps, *places)), sizes, padding)


def _in_place(parts: Any, sizes: Sequence[int], padding: Any) -> Any:
    """Parts [N, C, *steps, *places] as the elements of x."""
    count = len(sizes)
    steps, places = parts.shape[2:2 + count], parts.shape[2 + count:]
    order = [axis for k in range(count) for axis in (2 + count + k, 2 + k)]
    whole = reshape_op(permute(parts, axes=(0, 1, *order)),
                       shape=(*parts.shape[:2], *(n * s for n, s in zip(places, steps, strict=True))))
    for axis, (n, (low, _)) in enumerate(zip(sizes, padding, strict=True), 2):
        whole = _from(whole, axis, low, n)
    return whole


def _cut_up(w: Any, cuts: Sequence[StrideCut]) -> Any:
    """The kernel with a channel for each channel and each element of a piece, and a tap for each piece."""
    outputs, channels, *_ = w.shape
    channels, taps = channels * prod(cut.step for cut in cuts), [cut.taps for cut in cuts]
    if set(taps) == {1}:
        return reshape_op(w, shape=(outputs, channels, *taps))
    pieces = reshape_op(w, shape=(*w.shape[:2], *(n for cut in cuts for n in (cut.taps, cut.step))))
    permuted = permute(pieces, axes=(0, 1, *range(3, pieces.ndim, 2), *range(2, pieces.ndim, 2)))
    return stored(reshape_op(permuted, shape=(outputs, channels, *taps)))


# ---------------------------------------------------------------- one product, and what windows share


def _has_few_windows(node: Node) -> bool:
    """Whether the kernel is large beside the windows, and sums keep their digits when they are stored."""
    (batch, _, *counts), (outputs, *_) = (x.shape for x in node.inputs)     # type: ignore[union-attr]
    dtype = node.output.dtype
    few = isinstance(batch, int) and isinstance(outputs, int) and 2 * batch * prod(counts) <= outputs
    return few and node.attrs["groups"] == 1 and dtype.kind == "f" and dtype.bits >= 32


def _added(g: Any, w: Any, sizes: Sequence[int], stride: Sequence[int], padding: Any, dilation: Sequence[int],
           groups: int) -> Any:
    """What windows give to all of their elements, by a product that reads the kernel once, where it lies; what several
    give to one element is added up as it is put in its place."""
    (batch, outputs, *counts), (_, channels, *kernel), count = g.shape, w.shape, len(sizes)
    cuts, axes = _cuts(counts, kernel, stride), range(1, 1 + len(sizes))
    windows = reshape_op(permute(g, axes=(0, *(axis + 1 for axis in axes), 1)), shape=(batch * prod(counts), outputs))
    given = reshape_op(matmul_op(windows, reshape_op(w, shape=(outputs, channels * prod(kernel)))),
                       shape=(batch, *counts, channels, *kernel))
    given = permute(given, axes=(0, 1 + count, *(1 + count + axis for axis in axes), *axes))
    given = _with_zeros(given, (0,) * count, [cut.taps * cut.step - k for cut, k in zip(cuts, kernel, strict=True)], 2)
    pieces = reshape_op(given, shape=(batch, channels, *(n for cut in cuts for n in (cut.taps, cut.step)), *counts))
    parts = None
    for taps in product(*(range(cut.taps) for cut in cuts)):
        piece = pieces
        for axis, tap in enumerate(taps):
            piece = narrow(piece, 2 + 2 * axis, tap, tap + 1)
        piece = reshape_op(piece, shape=(batch, channels, *(cut.step for cut in cuts), *counts))
        piece = _with_zeros(piece, taps, [cut.taps - 1 - tap for cut, tap in zip(cuts, taps, strict=True)], 2 + count)
        parts = piece if parts is None else add(parts, piece)
    return _in_place(parts, sizes, padding)


def _with_zeros(x: Any, low: Sequence[int], high: Sequence[int], first: int) -> Any:
    """x with so many zeros around some of its axes, from the first of them on."""
    if not any((*low, *high)):
        return x
    before, behind = (0,) * first, (0,) * (x.ndim - first - len(low))
    return pad_op(x, literal(0, x.dtype), low=(*before, *low, *behind), high=(*before, *high, *behind))


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
class StridePhase:
    """Along one axis, the elements of x that are `place` past a multiple of the stride."""

    place: int
    taps: range         # of the kernel that they meet
    dilation: int       # between two such taps, in windows
    low: int            # padding in front


def phases(size: int, kernel: int, low: int, stride: int, dilation: int) -> list[StridePhase]:
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
        found.append(StridePhase(stride * start + rest - low, range(first, kernel, step), step * dilation // stride,
                                 padding))
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


def _dense(g: Any, w: Any, chosen: Sequence[StridePhase], counts: tuple[int, ...], groups: int) -> Any:
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
