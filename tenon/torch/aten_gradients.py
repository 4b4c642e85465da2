"""ATen's operators that are gradients of others: what Tenon's differentiation makes of the forward operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon as tn
from tenon.autodiff import derivative_graph
from tenon.dims.symbolic_dim import product
from tenon.graph.build import call_graph, trace
from tenon.ops.indexing import put
from tenon.torch.aten_call import AtenCall, Rule, as_type, filled


def pulled_back(function: Callable[..., Any], g: Any, *inputs: Any) -> tuple[Any, ...]:
    """The gradients of the inputs of a function of one result, whose own is g."""
    graph = derivative_graph(trace(function, *[x.type for x in inputs], name="forward"))
    return call_graph(graph, [*inputs, as_type(g, graph.results[0].dtype)])[1:]


def _of_first(function: Callable[..., Any]) -> Rule:
    """The gradient of the first argument: (g, x, *options)."""
    return lambda at, g, x, *options: pulled_back(lambda x: function(x, *options), g, x)[0]


def _distances(at: AtenCall, g: Any, x: Any, y: Any, p: float, found: Any) -> Any:
    return pulled_back(lambda x, y: tn.cdist(x, y, p), g, x, y)[0]


def _distances_of_pairs(at: AtenCall, g: Any, x: Any, p: float, found: Any) -> Any:
    return pulled_back(lambda x: tn.pdist(x, p), g, x)[0]


def _pairs(x: Any, pad: Sequence[int]) -> list[tuple[int, int]]:
    """PyTorch's padding, which names the last axis first, as a pair an axis."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]


def _masked(at: AtenCall, g: Any, mask: Any, sizes: Sequence[Any]) -> Any:
    """The elements of g under a mask, one after the other, then zeros."""
    mask, g = (tn.reshape(tn.broadcast_to(x, shape=g.shape), (-1,)) for x in (mask, g))
    count: Any = product(at.shape)
    place = tn.minimum(tn.where(mask, tn.subtract(tn.cumsum(as_type(mask, tn.int64), 0), 1), count), count)
    return tn.reshape(put(filled((count + 1,), 0, at.dtype), place, g, axis=0, reduce="set")[:-1], at.shape)


def _margins(at: AtenCall, g: Any, x: Any, target: Any, p: Any, margin: Any, weight: Any = None,
             reduction: int = 1) -> Any:
    how = ("none", "mean", "sum")[reduction]
    given = [target] if weight is None else [target, weight]

    def forward(x: Any, target: Any, weight: Any = None) -> Any:
        return tn.multi_margin_loss(x, target, weight, p=int(p), margin=float(margin), reduction=how)
    return pulled_back(forward, g, x, *given)[0]


def _random_slope(at: AtenCall, g: Any, x: Any, noise: Any, lower: Any, upper: Any, training: bool, *_: Any) -> Any:
    """The gradient of a leaky ReLU with the slopes that were drawn, or their mean."""
    slopes = noise if training and upper - lower > 1e-6 else tn.where(tn.greater(x, 0), 1.0, (lower + upper) / 2)
    return tn.multiply(g, as_type(slopes, at.dtype))


GRADIENTS: dict[str, Rule] = {
    "rrelu_with_noise_backward": _random_slope,
    "softshrink_backward": _of_first(tn.softshrink), "hardshrink_backward": _of_first(tn.hardshrink),
    **{f"replication_pad{n}d_backward": _of_first(lambda x, pad: tn.pad(x, _pairs(x, pad), mode="edge"))
       for n in (1, 2, 3)},
    "_cdist_backward": _distances, "_pdist_backward": _distances_of_pairs,
    "masked_scatter_backward": _masked, "multi_margin_loss_backward": _margins,
}
