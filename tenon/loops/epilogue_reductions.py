"""Sums over the rows of what a product stores -> partial sums of chunks of rows, added up as the product is stored.

    out[i, j] = relu(sum(x[i, k] * w[k, j] for k))          for chunk:
    total[j] = sum(out[i, j] for i)                             for i in the chunk:
                                                                    v = relu(sum(x[i, k] * w[k, j] for k))
                                                                    out[i, j] = v; part[chunk, j] += v
                                                            for j: total[j] = sum(part[chunk, j] for chunk)

So what was just computed need not come back from memory: the gradient of a layer's bias is such a sum.  A result that
nobody else reads is not stored.  How rows are cut depends on sizes only, so the result does not depend on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dims.symbolic_dim import product
from tenon.loops.collapse_loops import with_flat_loops, with_flat_reductions
from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Binary, Buffer, Expr, Index, Load, Local, Reduce, Select, constant, size
from tenon.loops.fuse_row_reductions import ROW_CHUNKS
from tenon.loops.loop_context import LoopContext, Temporary
from tenon.loops.loop_ir import Chunk
from tenon.loops.match_contraction import MatchedProduct
from tenon.loops.round_narrow_types import rounded
from tenon.loops.simplify_expressions import simplify, substitute
from tenon.loops.split_k import is_deep
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts, replace
from tenon.loops.window_access import windows_of
from tenon.records import replace as changed
from tenon.target import Target
from tenon.types import TensorType, bool_, float32, float64

MIN_COLUMNS = 16        # columns
MIN_CHUNK_ROWS = 32  # rows of a chunk, at least one tile of any processor


def beside_products(targets: Sequence[StoreTarget], context: LoopContext) -> list[StoreTarget]:
    """The targets, sums over the rows of a product added up where its results are stored."""
    result = list(targets)
    for target in targets:
        if target in result and (found := target.product) is not None and _may_add_up(found, target, context.target):
            stored = [t for t in result if t.product == found and t.indices == target.indices]
            result = _with_sums(stored, [t for t in result if t not in stored], context.temporary)
    return result


def _may_add_up(found: MatchedProduct, target: StoreTarget, machine: Target) -> bool:
    """Whether the product goes through rows of known number, tile by tile."""
    rows, columns = (product(index.extent for index in axis) for axis in (found.rows, found.columns))
    if found.batch or not isinstance(rows, int) or not isinstance(columns, int):
        return False
    if rows < 2 * MIN_CHUNK_ROWS or columns < MIN_COLUMNS or found.sum.dtype not in (float32, float64) or \
            is_deep(found, machine):
        return False
    plain = all(isinstance(x, Load) and x.mask is None for x in (found.left, found.right))
    slides = any(windows_of(x, axis, found.sum.indices)
                 for x, axis in ((found.left, found.rows), (found.right, found.columns)))
    return plain and not slides and target.indices == found.rows + found.columns and not target.chunk


def _with_sums(stored: Sequence[StoreTarget], others: Sequence[StoreTarget], temporary: Temporary) -> list[StoreTarget]:
    """All targets, the sums among the others that are added up in the loops of those that are stored."""
    flat = with_flat_loops(stored)
    adding = _Adding(flat, temporary)
    after = [adding.summed(t) or t for t in others]
    if not adding.parts:
        return [*stored, *others]
    read = {b for t in after for b in t.reads()}
    needed = [t for t in flat if t.buffer.role != "temporary" or t.buffer in read]
    return [*needed, *adding.parts, *after]


class _Adding:
    """Targets of one product, and those of the partial sums of what they store."""

    def __init__(self, stored: Sequence[StoreTarget], temporary: Temporary):
        found = stored[0].product
        assert found is not None
        self.rows, self.columns, self.temporary = found.rows, found.columns, temporary
        self.stored: dict[Expr, Expr] = {Load(t.buffer, t.offset, None): rounded(t.value) for t in stored}
        rows = product(index.extent for index in self.rows)
        assert isinstance(rows, int)
        self.chunk = Chunk(Index("chunk", min(rows // MIN_CHUNK_ROWS, ROW_CHUNKS)), Local("first", bool_))
        self.parts: list[StoreTarget] = []
        self.buffers: dict[Expr, Buffer] = {}       # of what is added up

    def summed(self, target: StoreTarget) -> StoreTarget | None:
        """The target in terms of partial sums, if it is made of sums over all rows."""
        target = with_flat_reductions(target)
        sums = parts(target.value, Reduce)
        columns = tuple(index.extent for index in self.columns)
        if not sums or target.product or tuple(index.extent for index in target.indices) != columns:
            return None
        bodies = [self.body(x, target.indices) for x in sums if isinstance(x, Reduce)]
        if target.combine or target.extents or any(body is None for body in bodies):
            return None
        return changed(target, value=simplify(replace(target.value, {
            x: self.total(x, body, target.indices) for x, body in zip(sums, bodies, strict=True) if body is not None})))

    def body(self, x: Reduce, columns: Sequence[Index]) -> Expr | None:
        """What is added up, in the loops of the product; None if it is no sum over its rows."""
        if x.kind != "add" or x.extents != tuple(size(index.extent) for index in self.rows) or parts(x.body, Reduce):
            return None
        if x.free != frozenset(columns) or x.dtype not in (float32, float64):
            return None
        values: dict[Index, Expr] = dict(zip((*x.indices, *columns), (*self.rows, *self.columns), strict=True))
        moved = simplify(substitute(x.body, values))
        read = parts(moved, Load)
        if not any(load in self.stored for load in read):
            return None
        if any(load not in self.stored and (not isinstance(load, Load) or load.buffer.role != "input")
               for load in read):
            return None
        return simplify(replace(moved, self.stored))

    def total(self, x: Reduce, body: Expr, columns: Sequence[Index]) -> Expr:
        """The sum of the parts, which are targets from now on."""
        if body not in self.buffers:
            self.add_up(body)
        buffer, again = self.buffers[body], Index("chunk", self.chunk.number.extent)
        load = Load(buffer, offset(buffer.type.shape, (again, *columns)), None)
        return Reduce("add", (again,), load, (size(again.extent),))

    def add_up(self, body: Expr) -> None:
        """The target of the partial sums of this."""
        number, first = self.chunk.number, self.chunk.first
        shape = (number.extent, *(index.extent for index in self.columns))
        buffer = self.buffers[body] = self.temporary(TensorType(body.dtype, shape))
        place = offset(shape, (number, *self.columns))
        before = Select(first, constant(0, body.dtype), Load(buffer, place, None))
        self.parts.append(StoreTarget(buffer, (*self.rows, *self.columns), place, Binary("+", before, body),
                                 chunk=self.chunk))
