"""The rows of a product that are read again for every block of columns -> a dense copy of them, made once before.

    sum(w[k0, i, k1] * x[k, j])    ->    part[i, k] = w[k0, i, k1];  sum(part[i, k] * x[k, j])

A dense row is read where it lies; any other is gathered anew for each block (the kernel of a transposed convolution,
the gradient of one along its batch), which costs more than this.  For windows the literature calls it im2col.
"""

from __future__ import annotations

from itertools import pairwise

from tenon.dims.symbolic_dim import product
from tenon.loops.affine import affine, is_same
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Cast, Load, Reduce
from tenon.loops.loop_context import LoopContext
from tenon.loops.match_contraction import MatchedProduct
from tenon.loops.select_conv_schedule import sliding
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import replace
from tenon.loops.window_access import windows_of
from tenon.records import replace as with_fields
from tenon.target import Target
from tenon.types import TensorType, bfloat16, float32

BLOCK_COLUMNS = 192     # columns of one block
MAX_COPY_ELEMENTS = 1 << 22  # elements of a copy
MIN_LONG_RUN = 32       # elements of a row that are put together while it is packed, in vectors


def with_dense_rows(target: StoreTarget, context: LoopContext) -> list[StoreTarget]:
    """The target, after one for a dense copy of its product's rows if that is of use."""
    found = target.product
    if found is None:
        return [target]
    rows = (*found.batch, *found.rows)
    depth = found.sum.indices
    columns, elements = (product(i.extent for i in axis) for axis in (found.columns, (*rows, *depth)))
    few = isinstance(columns, int) and columns <= BLOCK_COLUMNS
    if few or not isinstance(elements, int) or elements > MAX_COPY_ELEMENTS or _lies_well(found) or \
            _slides(found, context.target):
        return [target]
    indices = (*rows, *depth)
    buffer = context.copies.get((found.left, indices))
    made = buffer is not None
    if buffer is None:
        buffer = context.temporary(TensorType(found.sum.dtype, tuple(i.extent for i in indices)))
        context.copies[found.left, indices] = buffer
    place = offset(buffer.type.shape, indices)
    body = replace(found.sum.body, {found.left: Load(buffer, place, None)})
    sum_ = Reduce("add", depth, body, found.sum.extents)
    changed = with_fields(target, value=replace(target.value, {found.sum: sum_}))
    return [changed] if made else [StoreTarget(buffer, indices, place, found.left), changed]


def _slides(found: MatchedProduct, target: Target) -> bool:
    """Whether rows are windows that are not put together at all, as those of an image are not."""
    depth = found.sum.indices
    if sliding(found.left, found.right, found.batch, found.rows, found.columns, depth, target) is not None:
        return True
    windows = windows_of(found.left, found.rows, depth)
    return windows is not None and all(slide.taps <= slide.places for slide in windows.slides)


def _lies_well(found: MatchedProduct) -> bool:
    """Whether rows are dense already, or in long runs, or lie side by side as they are packed."""
    x, depth = found.left, found.sum.indices
    if isinstance(x, Cast) and x.dtype is bfloat16 and x.x.dtype is float32:
        x = x.x                 # rounded while it is packed
    elif x.dtype is not found.sum.dtype:
        return False
    if not isinstance(x, Load) or x.mask is not None:
        return False
    terms = affine(x.offset).terms
    if found.rows and is_same(terms.get(found.rows[-1], 0), 1):
        return True
    if isinstance(depth[-1].extent, int) and depth[-1].extent >= MIN_LONG_RUN and is_same(terms.get(depth[-1], 0), 1):
        return True
    flat = all(is_same(terms.get(a, 0), terms.get(b, 0) * b.extent) for a, b in pairwise(depth))
    return flat and is_same(terms.get(depth[-1], 0), 1)
