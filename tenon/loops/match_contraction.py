"""Which reductions are products of matrices in disguise: matmul, batched matmul, convolution and its gradients.

    out[i, j] = epilogue(sum over k of left * right)

An output index that both factors depend on is a batch axis, one that only the left depends on a row, only the right a
column; what is summed over is the depth.  The factors may be any expressions: a mask is padding, a cast is done while
packing.  The index along which results are contiguous is among the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tenon.dims.symbolic_dim import Dim, product
from tenon.loops.affine import affine, is_same
from tenon.loops.expressions import Binary, Cast, CheckedIndex, Expr, Index, Load, Reduce, size
from tenon.loops.select_conv_schedule import sliding
from tenon.loops.traversal import parts
from tenon.records import dataclass, replace
from tenon.target import GENERIC
from tenon.types import DType, bfloat16, bool_, float16, float32, float64, int32, int64

ACCUMULATED = (float16, bfloat16, float32, float64, int32, int64)
MIN_MULTIPLICATIONS = 4096  # multiplications that are worth more than a plain loop
DEEP_PRODUCT_RATIO = 4  # times as many products as rows or columns make the way in which results are stored unimportant
MAX_NARROW_DEPTH_RATIO = 16     # times as deep as lines are long are sums of 16 bits that go along lines, at most
# elements of a run, for which a product of its own is worth while
MIN_RUN_ELEMENTS, MIN_RUN_ELEMENTS_OF_16_BITS = 40, 1000
MIN_EXTENT = 3          # rows, columns or depth below which a plain loop does as well


@dataclass(frozen=True)
class MatchedProduct:
    """A reduction seen as a product."""

    sum: Reduce
    batch: tuple[Index, ...]
    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    left: Expr
    right: Expr


def as_product(x: Expr, indices: Sequence[Index]) -> MatchedProduct | None:
    """The product that x is for all values of `indices`, the last of which is contiguous in the result; or None."""
    if not isinstance(x, Reduce) or x.kind != "add" or x.dtype not in ACCUMULATED:
        return None
    if not isinstance(x.body, Binary) or x.body.op != "*":
        return None
    if x.extents != tuple(size(index.extent) for index in x.indices):       # the last chunk of a long sum ends early
        return None
    left, right = x.body.left, x.body.right
    depth = frozenset(x.indices)
    if not (left.free & depth and right.free & depth):
        return None
    batch = tuple(i for i in indices if i in left.free and i in right.free)
    rows = tuple(i for i in indices if i in left.free and i not in right.free)
    columns = tuple(i for i in indices if i in right.free and i not in left.free)
    if indices and indices[-1] in rows:
        rows, columns, left, right = columns, rows, right, left
    found = _with_windows_left(_in_runs(MatchedProduct(x, batch, rows, columns, left, right)))
    if not (_is_worthwhile(found) or _is_sliding(found)) or parts(x.body, CheckedIndex):
        return None
    return found


def _in_runs(x: MatchedProduct) -> MatchedProduct:
    """The product as a batch of such, one for each run of memory that columns lie in, as those of an image do: tiles
    read lines of a run where they are, and few rows go through them one after the other.

    Windows, whose lines overlap, are left as they are.
    """
    if not isinstance(x.right, Load) or x.right.mask is not None or len(x.columns) < 2 or len(x.sum.indices) > 1:
        return x
    terms, start = affine(x.right.offset).terms, len(x.columns) - 1
    while start > 0 and _is_run(terms, x.columns[start - 1], x.columns[start]):
        start -= 1
    length, apart = product(index.extent for index in x.columns[start:]), terms.get(x.sum.indices[0], 0)
    if start == 0 or not is_same(terms.get(x.columns[-1], 0), 1):
        return x
    if not isinstance(length, int) or not isinstance(apart, int) or apart < length:
        return x
    if length < (MIN_RUN_ELEMENTS if x.right.dtype.bits >= 32 else MIN_RUN_ELEMENTS_OF_16_BITS):
        return x
    return replace(x, batch=(*x.batch, *x.columns[:start]), columns=x.columns[start:])


def _is_run(terms: Mapping[Expr, Dim], outer: Index, inner: Index) -> bool:
    """Whether places of the inner index follow those of one place of the outer one."""
    return is_same(terms.get(outer, 0), terms.get(inner, 0) * inner.extent)


def _with_windows_left(x: MatchedProduct) -> MatchedProduct:
    """The product with its sides changed where a deep sum runs along the masked lines of right.

    Windows of an image (the gradient of a convolution's kernel) are put together as rows by copying, as columns by
    transposing; so many products are added up for a result that it does not matter how results are stored.
    """
    sizes = [product(index.extent for index in axis) for axis in (x.rows, x.columns, x.sum.indices)]
    known = [n for n in sizes if isinstance(n, int)]
    if not x.columns or len(known) < 3 or known[2] < DEEP_PRODUCT_RATIO * min(known[:2]):
        return x
    if not isinstance(x.right, Load) or x.right.mask is None or not isinstance(x.left, Load) or x.left.mask is not None:
        return x
    along, across = x.sum.indices[-1].extent, x.columns[-1].extent
    if not (isinstance(along, int) and isinstance(across, int) and along > across):
        return x                        # an image's rows are columns here, and neighbours: the convolution itself
    steps = [affine(y.offset).terms.get(x.sum.indices[-1], 0) for y in (x.left, x.right)]
    if not is_same(steps[0], 1) or steps[1] not in (1, 2):
        return x
    return MatchedProduct(x.sum, x.batch, x.columns, x.rows, x.right, x.left)


def _is_sliding(x: MatchedProduct) -> bool:
    """Whether windows slide along an image, which a plain loop does not do as well: depthwise convolutions."""
    total = product([index.extent for axis in (x.batch, x.rows, x.columns, x.sum.indices) for index in axis])
    if not isinstance(total, int) or total < MIN_MULTIPLICATIONS:
        return False
    # whether a statement is a product does not depend on the machine, how it is computed does
    return sliding(x.left, x.right, x.batch, x.rows, x.columns, x.sum.indices, GENERIC) is not None


def _is_worthwhile(x: MatchedProduct) -> bool:
    axes = [(x.rows, _is_read_in_lines(x) or _is_of_long_rows(x)), (x.columns, False), (x.sum.indices, False)]
    sizes = [product(index.extent for index in axis) for axis, _ in axes]
    if any(isinstance(n, int) and n < MIN_EXTENT and not lines for n, (_, lines) in zip(sizes, axes, strict=True)):
        return False
    total = product([*sizes, *(index.extent for index in x.batch)])
    return not isinstance(total, int) or total >= MIN_MULTIPLICATIONS


def _is_read_in_lines(x: MatchedProduct) -> bool:
    """Whether right has to be read along its columns, which few rows do line after line: a vector times a matrix.

    Columns in several short runs are as well gone through by plain loops.
    """
    if not isinstance(x.right, Load) or x.right.mask is not None or x.right.dtype is not x.sum.dtype or not x.columns:
        return False
    terms = affine(x.right.offset).terms
    one_run = all(_is_run(terms, outer, inner) for outer, inner in pairwise(x.columns))
    return one_run and (x.right.dtype.bits >= 32 or _has_long_lines(x)) and is_same(terms.get(x.columns[-1], 0), 1)


def _has_long_lines(x: MatchedProduct) -> bool:
    """Whether lines are no shorter than a part of the depth: deeper sums of 16 bits are cut into chunks instead."""
    columns, depth = (product(index.extent for index in axis) for axis in (x.columns, x.sum.indices))
    return isinstance(columns, int) and isinstance(depth, int) and columns * MAX_NARROW_DEPTH_RATIO >= depth


def _is_of_long_rows(x: MatchedProduct) -> bool:
    """Whether both factors lie along the depth: a matrix times a vector, a row of the matrix after the other."""
    for factor in (x.left, x.right):
        read = factor if isinstance(factor, Load) and factor.dtype.bits >= 32 else narrow_load(factor)
        if read is None or read.mask is not None or factor.dtype is not x.sum.dtype:
            return False
        if not is_same(affine(read.offset).terms.get(x.sum.indices[-1], 0), 1):
            return False
    return bool(x.columns) and x.sum.dtype.kind == "f"


def narrow_load(x: Expr) -> Load | None:
    """What x reads, if it is that number widened from 8 or 16 bits, or rounded to bfloat16."""
    found = widened_load(x)
    return rounded_load(x) if found is None else found


def widened_load(x: Expr) -> Load | None:
    """What x reads of 8 or 16 bits, if it is that number in a type that holds all of them."""
    casts: list[DType] = []
    while isinstance(x, Cast):
        casts.append(x.dtype)
        x = x.x
    if not isinstance(x, Load) or x.dtype is bool_ or x.dtype.bits > 16:
        return None
    is_wide = len(casts) <= 1 and all(t.bits >= 32 for t in casts)
    return x if is_wide or (is_small(x.dtype) and all(t.kind == "f" and t.bits >= 16 for t in casts)) else None


def rounded_load(x: Expr) -> Load | None:
    """What x reads of float32, if it is that rounded to bfloat16."""
    if isinstance(x, Cast) and x.dtype is bfloat16 and isinstance(x.x, Load) and x.x.dtype is float32:
        return x.x
    return None


def is_small(dtype: DType) -> bool:
    """Whether bfloat16 holds all numbers of the type: integers of 8 bits."""
    return dtype.bits == 8 and dtype.kind in "iu"


def misplaced(value: Expr, indices: Sequence[Index]) -> list[Reduce]:
    """Reductions to store so that each product in `value` stands alone, under elementwise operations only."""
    reductions = parts(value, Reduce)
    found: list[Reduce] = []
    for x in reductions:
        around = tuple(sorted(x.free, key=lambda index: index.name))
        if around and as_product(x, around):
            inside = parts(x.body, Reduce)
            alone = len(reductions) == 1 + len(inside) and x.free == frozenset(indices)
            found += inside if alone else [x, *inside]
    return found
