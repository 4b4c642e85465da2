"""A reduction -> partial results, and what combines them (`rfactor`; Suriana, Adams and Kamil 2017).

    out[j] = add(x[k, j] for k)    ->    part[c, j] = add(x[position(c, w), j] for w);  out[j] = add(part[c, j] for c)

Which loops have partial results is a policy's to say, a `Factoring`: parts of a product's depth (`split_k`), chunks of
a long reduction (`split_reductions`), lines of memory (`two_stage_reductions`), lines side by side
(`widen_narrow_reductions`).  All kinds of reductions are associative and commutative, up to roundings, and have an
identity.  So any partition of what is reduced is legal, where that is the same for all results: loops that run to their
ends, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.loops.expression_builder import offset
from tenon.loops.expressions import Cast, Expr, Index, Load, Reduce, size
from tenon.loops.loop_context import Temporary
from tenon.loops.simplify_expressions import simplify, substitute
from tenon.loops.store_target import StoreTarget
from tenon.loops.traversal import parts
from tenon.records import dataclass
from tenon.types import DType, TensorType, float32


@dataclass(frozen=True)
class Factoring:
    """`inner` are the loops of a partial result, which run to `extents`; `position` says where in the whole they are.

    There is a partial result for all values of `places`, in their order in memory; those of `outer` are combined, in
    loops that `total` names.  What no part has is `left`: a loop, and where in the whole its iterations are.
    """

    outer: tuple[Index, ...]
    inner: tuple[Index, ...]
    places: tuple[Index, ...]
    position: Mapping[Index, Expr]
    extents: tuple[Expr, ...] = ()
    total: tuple[Index, ...] = ()
    left: tuple[Index, Mapping[Index, Expr]] | None = None


def may_be_factored(x: Reduce, indices: Sequence[Index]) -> bool:
    """Whether x may be reduced in parts, and their results combined.

    The results are one for each iteration of the loops around, and nothing that is reduced waits for another reduction.
    """
    whole = x.extents == whole_iterations(x.indices)
    return whole and x.free.issubset(indices) and not parts(x.body, Reduce)


def rfactor(x: Reduce, plan: Factoring, temporary: Temporary) -> tuple[StoreTarget, Expr]:
    """(the element of the partial results, their combination, in the type that they have)."""
    dtype, total = accumulated(x.dtype), plan.total or plan.outer
    buffer = temporary(TensorType(dtype, tuple(index.extent for index in plan.places)))
    partial = reduced(x, plan.inner, plan.position, plan.extents)
    again = dict(zip(plan.outer, total, strict=True))
    read = Load(buffer, offset(buffer.type.shape, tuple(again.get(index, index) for index in plan.places)), None)
    return (StoreTarget(buffer, plan.places, offset(buffer.type.shape, plan.places), partial),
            Reduce(x.kind, total, read, whole_iterations(total)))


def reduced(x: Reduce, indices: tuple[Index, ...], position: Mapping[Index, Expr],
            extents: tuple[Expr, ...] = ()) -> Reduce:
    """A part of what is reduced, in the type that sums are kept in."""
    body = simplify(Cast(substitute(x.body, position), accumulated(x.dtype)))
    return Reduce(x.kind, indices, body, extents or whole_iterations(indices))


def accumulated(dtype: DType) -> DType:
    """The type of partial results."""
    return float32 if dtype.kind == "f" and dtype.bits < 32 else dtype


def whole_iterations(indices: Sequence[Index]) -> tuple[Expr, ...]:
    """How far loops run that run to their ends."""
    return tuple(size(index.extent) for index in indices)
