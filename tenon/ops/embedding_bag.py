"""Bags of rows: the sum, mean or maximum of the rows of a table that a bag names."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.ops.comparison import where
from tenon.ops.creation import arange, ones_like, zeros
from tenon.ops.define import layer_function
from tenon.ops.indexing import put
from tenon.ops.linear_layers import embedding
from tenon.ops.searching import searchsorted
from tenon.ops.shape import full_op, reshape_op

MODES = {"sum": "add", "mean": "add", "max": "max"}


@layer_function
def embedding_bag(x: Any, weight: Any, offsets: Any = None, mode: str = "mean", per_sample_weights: Any = None,
                  include_last_offset: bool = False, padding_idx: int | None = None) -> Any:
    """The rows of `weight` that every bag of indices names, as one row a bag: their sum, mean or maximum.

    Bags are the rows of x, or begin at `offsets` of a vector x; with `include_last_offset` the last offset ends the
    last bag.  What is `padding_idx` is in no bag, and an empty bag gives zeros.

    >>> table = tn.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tn.embedding_bag(tn.tensor([0, 1, 1]), table, offsets=tn.tensor([0, 2]))
    tensor([[2., 3.],
            [3., 4.]])
    """
    if mode not in MODES:
        raise ArgumentError(f"embedding_bag: no mode {mode!r}", hint=f"one of {', '.join(MODES)}")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f"embedding_bag: rows are weighted in mode 'sum', not {mode!r}")
    if (offsets is None) != (x.ndim == 2) or x.ndim not in (1, 2):
        raise ShapeError(f"embedding_bag: {x.type} {'without' if offsets is None else 'with'} offsets",
                         hint="either a matrix, whose rows are bags, or a vector with offsets")
    if offsets is None:
        bags, bag = x.shape[0], reshape_op(arange(x.shape[0])[:, None] + 0 * arange(x.shape[1]), shape=(-1,))
    else:
        bags = offsets.shape[0] - include_last_offset
        bag = searchsorted(offsets[:bags], arange(x.shape[0]), side="right") - 1
    return _collected(reshape_op(x, shape=(-1,)), weight, bag, bags, mode, per_sample_weights, padding_idx)


def _collected(at: Any, weight: Any, bag: Any, bags: Any, mode: str, factors: Any, padding_idx: int | None) -> Any:
    """What `embedding_bag` gives, for indices [n] and the bags [n] that they are in."""
    rows = embedding(at, weight, padding_idx=padding_idx)
    if factors is not None:
        rows = rows * reshape_op(factors, shape=(-1, 1))
    there = ones_like(at, dtype="bool") if padding_idx is None else at != padding_idx % weight.shape[0]
    nothing = -np.inf if mode == "max" else 0
    if padding_idx is not None:
        rows = where(there[:, None], rows, literal(nothing, rows.dtype))
    start = full_op(literal(nothing, rows.dtype), shape=(bags, weight.shape[1]))
    total = put(start, bag, rows, axis=0, reduce=MODES[mode])
    if mode == "sum":
        return total
    count = put(zeros(bags, dtype=rows.dtype), bag, there.astype(rows.dtype), axis=0, reduce="add")[:, None]
    return total / count.clip(1, None) if mode == "mean" else where(count > 0, total, literal(0, rows.dtype))
