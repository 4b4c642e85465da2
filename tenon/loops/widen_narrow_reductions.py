"""Reductions of a few columns -> those of as many as fill vectors, each of every so many-th line, and one of these.

    out[j] = sum(x[k, j] for k < N)    ->    part[u, j] = sum(x[k*U + u, j] for k < N // U)
                                             out[j] = sum(part[u, j] for u) + sum(x[k, j] for N // U * U <= k < N)

Columns side by side are the lanes of vectors, which three columns would leave empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.affine import affine, is_same
from tenon.loops.column_reductions import MIN_ROW_RESULTS, TILE_RESULTS
from tenon.loops.expressions import Index, Load, Reduce, size
from tenon.loops.rfactor import Factoring
from tenon.loops.strip_mining import Strips, is_partition
from tenon.loops.traversal import parts

MIN_FOLDED_LINES = 8    # lines of the folded columns: of fewer the last ones, which do not fill one, are too many


def folded(x: Reduce, indices: Sequence[Index]) -> Factoring | None:
    """Partial results of folded columns; None if x is no reduction of a few columns."""
    results = tuple(index for index in indices if index in x.free)
    if len(x.indices) != 1 or not results or not _lie_dense(x, x.indices[0], results[-1]):
        return None
    (line,), columns = x.indices, results[-1].extent
    assert isinstance(columns, int)
    together = TILE_RESULTS // (MIN_ROW_RESULTS * columns) * MIN_ROW_RESULTS
    if not isinstance(line.extent, int) or line.extent < MIN_FOLDED_LINES * together:
        return None
    iterations, left = divmod(line.extent, together)
    assert is_partition(line.extent, [Strips(0, iterations, together), Strips(iterations * together, left, 1)])
    iteration, one, rest = Index(line.name, iterations), Index("fold", together), Index(f"{line.name}_left", left)
    return Factoring((one,), (iteration,), (*results[:-1], one, results[-1]), {line: iteration * size(together) + one},
                     left=(rest, {line: rest + size(iterations * together)}) if left else None)


def _lie_dense(x: Reduce, line: Index, column: Index) -> bool:
    """Whether all that x reads lies line by line without gaps, in fewer columns than a vector has lanes."""
    if not isinstance(column.extent, int) or column.extent >= MIN_ROW_RESULTS:
        return False
    terms = [affine(load.offset).terms for load in parts(x.body, Load)]
    inside = {line, column}
    return bool(terms) and x.body.free >= inside and all(
        is_same(t.get(line, 0), column.extent) and is_same(t.get(column, 0), 1) for t in terms) and not any(
        part is not line and part is not column and not part.free.isdisjoint(inside) for t in terms for part in t)
