"""What a nest stores, and how much work that is."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dims.symbolic_dim import Dim, product
from tenon.locks import cached_property
from tenon.loops.binders import binders_are_distinct
from tenon.loops.expressions import Binary, Buffer, Call, CheckedIndex, Expr, Index, Load, Reduce, size
from tenon.loops.loop_ir import Chunk
from tenon.loops.match_contraction import MatchedProduct, as_product
from tenon.loops.traversal import parts
from tenon.records import dataclass

GRAIN_ELEMENTS = 8192   # elements that are not worth a second thread
CALL_ELEMENTS = 8       # a call of a function, in elements
WHOLE = 64          # elements of which a thread's part is a multiple: so it is vectors


@dataclass(frozen=True)
class StoreTarget:
    """`buffer[offset] = value` for every value of the indices.

    With `combine`, a kind of reduction, the value is combined with those that were stored there before in one iteration
    of the outermost loop.  `extents` says how far the loops run, where that is less than the extents of the indices.
    What is added up along a `chunk` of a product's rows names it.
    """

    buffer: Buffer
    indices: tuple[Index, ...]
    offset: Expr
    value: Expr
    combine: str | None = None
    extents: tuple[Expr, ...] = ()
    chunk: Chunk | None = None

    def __post_init__(self) -> None:
        assert binders_are_distinct(self.indices, self.value), f"loops {self.indices} around {self.value}"

    def iterations(self) -> tuple[Expr, ...]:
        """How often each loop runs."""
        return self.extents or tuple(size(index.extent) for index in self.indices)

    def reads(self) -> set[Buffer]:
        """The buffers that the value depends on."""
        return {x.buffer for x in parts(self.value, Load)}

    @cached_property
    def product(self) -> MatchedProduct | None:
        """The product of matrices that the target is, under elementwise operations on its result; or None."""
        reductions = parts(self.value, Reduce)
        if len(reductions) != 1 or not self.indices or reductions[0].free != frozenset(self.indices):
            return None
        return None if parts(self.value, CheckedIndex) else as_product(reductions[0], self.indices)

    def work(self) -> Dim:
        """About how many elements are read for one that is stored; a function call counts for several."""
        total: Dim = 1
        for x in parts(self.value, Reduce):
            total = total + product(index.extent for index in x.indices)
        return total + CALL_ELEMENTS * len(parts(self.value, Call))


def levels(targets: Sequence[StoreTarget]) -> dict[StoreTarget, int]:
    """How many nests there are at least before the one of each target, for it reads what they store."""
    writers: dict[Buffer, list[StoreTarget]] = {}
    for target in targets:
        writers.setdefault(target.buffer, []).append(target)
    found: dict[StoreTarget, int] = {}

    def level(target: StoreTarget) -> int:
        if target not in found:
            before = [writer for b in target.reads() if b is not target.buffer for writer in writers.get(b, ())]
            found[target] = max((1 + level(other) for other in before), default=0)
        return found[target]

    for target in targets:
        level(target)
    return found


def grain_of(targets: Sequence[StoreTarget], inner: Sequence[Index]) -> Expr:
    """How many iterations of the outermost loop a thread takes at least, `inner` being the loops inside of it."""
    works = [target.work() for target in targets]
    work = product(index.extent for index in inner) * max((w for w in works if isinstance(w, int)), default=1)
    symbolic = [w for w in works if not isinstance(w, int)]
    for w in symbolic[:1]:
        work = work * w
    if isinstance(work, int):
        grain = GRAIN_ELEMENTS // max(1, work)
        return size(max(1, grain if grain < WHOLE else grain // WHOLE * WHOLE))
    return Binary("max", size(1), Binary("//", size(GRAIN_ELEMENTS), Binary("max", size(1), size(work))))


