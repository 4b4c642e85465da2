"""ATen's sums and means of embeddings, bag by bag; a bag begins at each offset."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon.ops.indexing import put
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type, filled

SUM, MEAN, MAX = 0, 1, 2


def _bag_of_each(offsets: Any, bags: Any, indices: Any) -> Any:
    """The number of the bag in which each index lies."""
    places = tn.arange(0, indices.shape[0], dtype=offsets.dtype)
    return tn.subtract(tn.searchsorted(offsets[:bags], places, side="right"), 1)


def _sizes(bag: Any, bags: Any) -> Any:
    """How many indices are in each bag."""
    return put(filled((bags,), 0, tn.int64), bag, filled(bag.shape, 1, tn.int64), axis=0, reduce="add")


def _per_row(values: Any, dtype: Any) -> Any:
    return tn.expand_dims(as_type(values, dtype), -1)


def _embedding_bag(at: AtenCall, weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False,
                   mode: int = SUM, sparse: bool = False, weights: Any = None, include_last_offset: bool = False,
                   padding_idx: int = -1) -> Any:
    if padding_idx >= 0:
        raise UnmappedOperator("bags with padding")
    bags = at.shape[0]
    bag = _bag_of_each(offsets, bags, indices)
    rows = tn.take(weight, indices, axis=0)
    rows = rows if weights is None else tn.multiply(rows, _per_row(weights, rows.dtype))
    sizes = _sizes(bag, bags)
    start = filled(at.shape, float("-inf") if mode == MAX else 0, at.dtype)
    found = put(start, bag, rows, axis=0, reduce="max" if mode == MAX else "add")
    if mode == MEAN:
        found = tn.divide(found, _per_row(tn.maximum(sizes, 1), at.dtype))
    if mode == MAX:
        found = tn.where(tn.equal(tn.expand_dims(sizes, -1), 0), 0, found)
    # What is beside the result only the gradient reads, which here needs none of it.
    return (found, *[filled(type.shape, 0, type.dtype) for type in at.types[1:] if type is not None])


def _embedding_bag_backward(at: AtenCall, g: Any, indices: Any, offsets: Any, offset2bag: Any, bag_size: Any,
                            maximum_indices: Any, num_weights: Any, scale_grad_by_freq: bool, mode: int, sparse: bool,
                            weights: Any, padding_idx: int = -1) -> Any:
    if padding_idx >= 0 or mode == MAX or scale_grad_by_freq or sparse:
        raise UnmappedOperator("the gradient of bags of maxima, with padding, or scaled")
    bags = g.shape[0]
    bag = _bag_of_each(offsets, bags, indices)
    if mode == MEAN:
        g = tn.divide(g, _per_row(tn.maximum(_sizes(bag, bags), 1), g.dtype))
    rows = tn.take(g, bag, axis=0)
    rows = rows if weights is None else tn.multiply(rows, _per_row(weights, rows.dtype))
    return put(filled(at.shape, 0, at.dtype), indices, rows, axis=0, reduce="add")


BAGS: dict[str, Rule] = {
    "_embedding_bag": _embedding_bag, "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_backward": _embedding_bag_backward,
}
