"""A product with a deep sum and few results -> products of parts of the depth, which threads share, and their sum.

    out[i, j] = sum(x[i, k] * w[k, j] for k < N)    ->    part[c, i, j] = sum(x[i, c*L + k] * w[c*L + k, j] for k < L)
                                                          out[i, j] = sum(part[c, i, j] for c)

Where threads cut the results instead, each goes through all of one factor: for a weight gradient of a small layer that
is half of the work.  The parts are those of the sizes, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.dims.symbolic_dim import product
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Binary, Index, Load, Reduce, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.match_contraction import MatchedProduct, as_product
from tenon.loops.rfactor import Factoring, reduced, rfactor
from tenon.loops.select_conv_schedule import Sliding, sliding
from tenon.loops.simplify_expressions import simplify
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import replace
from tenon.loops.window_access import count
from tenon.target import Target
from tenon.types import TensorType

PART_COUNTS = 16, 12, 10, 8     # how many there may be, the best first
MIN_K_PER_PART = 256        # products of a sum that are worth a part
DEPTH_LANES = 32        # of which a part's depth is best a multiple
DEEP_RATIO = 64         # times the depth of a sum is larger than the longer side of the results
BY_FILTERS = "weight_grad_wide", "winograd_weight_grad"    # ways of windows in which threads repeat work for each other
MIN_PARALLEL_PRODUCTS = 1 << 20  # products that are worth a second thread


def with_parted_depth(target: StoreTarget, context: LoopContext) -> list[StoreTarget]:
    """The target, after those of the parts of its sum if it is a product that is deep enough."""
    found = target.product
    along, parts = (None, 0) if found is None else next(iter(_parts(found, context.target)), (None, 0))
    if found is None or along is None:
        return [target]
    assert isinstance(along.extent, int)
    total, length, results = found.sum, _length(along.extent, parts), target.indices
    part, within = Index("part", parts), Index(along.name, length)
    plan = Factoring((part,), _with(total, along, within), (part, *results), {along: part * size(length) + within})
    product_of_part = as_product(reduced(total, plan.inner, plan.position), plan.places)
    if _slides(found, context.target) and not (product_of_part and _slides(product_of_part, context.target)):
        return [target]
    partial, value = rfactor(total, plan, context.temporary)
    before = [partial]
    if left := along.extent - parts * length:       # a product of its own
        within = Index(along.name, left)
        rest = context.temporary(TensorType(total.dtype, partial.buffer.type.shape[1:]))
        place, position = offset(rest.type.shape, results), {along: size(parts * length) + within}
        before.append(StoreTarget(rest, results, place, reduced(total, _with(total, along, within), position)))
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
    sides, indices, multiples = (rows, columns), found.sum.indices, [DEPTH_LANES, 1, 0]
    if slides is not None:      # images are shared, and not cut
        sides, indices, multiples = (count(slides.filters), count(slides.windows.channels)), slides.windows.outside, [1]
    if depth < DEEP_RATIO * max(sides) or rows * columns * depth < MIN_PARALLEL_PRODUCTS or \
            (slides and slides.way not in BY_FILTERS):
        return
    for multiple in multiples:
        for index in indices:
            for parts in PART_COUNTS:
                if depth // parts >= MIN_K_PER_PART and isinstance(index.extent, int) and index.extent >= parts and \
                        (not multiple or index.extent % (parts * multiple) == 0):
                    yield index, parts


def _slides(found: MatchedProduct, target: Target) -> Sliding | None:
    """How windows slide in the product, if it is computed window by window."""
    return sliding(found.left, found.right, found.batch, found.rows, found.columns, found.sum.indices, target)


def _length(extent: int, parts: int) -> int:
    """How deep each part is; what is left over is another product."""
    length = extent // parts
    return length if extent % parts == 0 else length // DEPTH_LANES * DEPTH_LANES or length


def _with(total: Reduce, along: Index, within: Index) -> tuple[Index, ...]:
    """The loops of a sum, one of them shorter."""
    return tuple(within if index is along else index for index in total.indices)
