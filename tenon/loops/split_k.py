"""A product with a deep sum and few results -> products of parts of the depth, which threads share, and their sum.

    out[i, j] = sum(x[i, k] * w[k, j] for k < N)    ->    part[c, i, j] = sum(x[i, c*L + k] * w[c*L + k, j] for k < L)
                                                          out[i, j] = sum(part[c, i, j] for c)

Where threads cut the results instead, each goes through all of one factor: for a weight gradient of a small layer that
is half of the work.  The parts are those of the sizes, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.dims import product
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Binary, Expr, Index, Load, Reduce, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.match_contraction import MatchedProduct, as_product
from tenon.loops.select_conv_schedule import Sliding, sliding
from tenon.loops.simplify_expressions import simplify, substitute
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import replace
from tenon.loops.window_access import count
from tenon.target import Target
from tenon.types import TensorType

PARTS = 16, 12, 10, 8       # how many there may be, the best first
MIN_K_PER_PART = 256        # products of a sum that are worth a part
LANES = 32                  # of which a part's depth is best a multiple
DEEP = 64                   # times the depth of a sum is larger than the longer side of the results
BY_FILTERS = "weight_grad_wide", "winograd_weight_grad"    # ways of windows in which threads repeat work for each other
MIN_PARALLEL_PRODUCTS = 1 << 20  # products that are worth a second thread


def with_parted_depth(target: StoreTarget, context: LoopContext) -> list[StoreTarget]:
    """The target, after those of the parts of its sum if it is a product that is deep enough."""
    found = target.product
    along, parts = (None, 0) if found is None else next(iter(_parts(found, context.target)), (None, 0))
    if found is None or along is None:
        return [target]
    assert isinstance(along.extent, int)
    total, length = found.sum, _length(along.extent, parts)
    results = target.indices
    part, within = Index("part", parts), Index(along.name, length)
    partial = _sum_of(total, along, within, part * size(length) + within)
    product_of_part = as_product(partial, (part, *results))
    if _slides(found, context.target) and not (product_of_part and _slides(product_of_part, context.target)):
        return [target]
    buffer = context.temporary(TensorType(total.dtype, (parts, *(index.extent for index in results))))
    before = [StoreTarget(buffer, (part, *results), offset(buffer.type.shape, (part, *results)), partial)]
    again = Index("part", parts)
    value: Expr = Reduce("add", (again,), Load(buffer, offset(buffer.type.shape, (again, *results)), None),
                         (size(parts),))
    if left := along.extent - parts * length:
        rest, within = context.temporary(TensorType(total.dtype, buffer.type.shape[1:])), Index(along.name, left)
        place = offset(rest.type.shape, results)
        before.append(StoreTarget(rest, results, place, _sum_of(total, along, within, size(parts * length) + within)))
        value = Binary("+", value, Load(rest, place, None))
    return [*before, StoreTarget(target.buffer, target.indices, target.offset,
                            simplify(replace(target.value, {total: value})))]


def is_deep(found: MatchedProduct, target: Target) -> bool:
    """Whether the sum is made in parts."""
    return next(_parts(found, target), None) is not None


def _parts(found: MatchedProduct, target: Target) -> Iterator[tuple[Index, int]]:
    """(an index of the depth, how many parts it may be cut into), the best first."""
    sizes = [product(index.extent for index in axis)
             for axis in (found.batch, found.rows, found.columns, found.sum.indices)]
    known = [n for n in sizes if isinstance(n, int)]
    if len(known) < len(sizes) or found.sum.dtype.bits < 32 or found.batch:
        return
    _, rows, columns, depth = known
    slides = _slides(found, target)
    sides, indices, multiples = (rows, columns), found.sum.indices, [LANES, 1, 0]
    if slides is not None:      # images are shared, and not cut
        sides, indices, multiples = (count(slides.filters), count(slides.windows.channels)), slides.windows.outside, [1]
    if depth < DEEP * max(sides) or rows * columns * depth < MIN_PARALLEL_PRODUCTS or \
            (slides and slides.way not in BY_FILTERS):
        return
    for multiple in multiples:
        for index in indices:
            for parts in PARTS:
                if depth // parts >= MIN_K_PER_PART and isinstance(index.extent, int) and index.extent >= parts and \
                        (not multiple or index.extent % (parts * multiple) == 0):
                    yield index, parts


def _slides(found: MatchedProduct, target: Target) -> Sliding | None:
    """How windows slide in the product, if it is computed window by window."""
    return sliding(found.left, found.right, found.batch, found.rows, found.columns, found.sum.indices, target)


def _length(extent: int, parts: int) -> int:
    """How deep each part is; what is left over is another product."""
    length = extent // parts
    return length if extent % parts == 0 else length // LANES * LANES or length


def _sum_of(total: Reduce, along: Index, within: Index, position: Expr) -> Reduce:
    """The sum in which an index of the depth runs from a position on."""
    indices = tuple(within if index is along else index for index in total.indices)
    return Reduce("add", indices, simplify(substitute(total.body, {along: position})),
                  tuple(size(index.extent) for index in indices))
