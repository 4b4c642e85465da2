"""What a nest stores, and how much work that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenon.dims import Dim, product
from tenon.loops.expressions import Binary, Buffer, Call, Expr, Index, Load, Reduce, size, walk

GRAIN = 8192        # elements that are not worth a second thread
CALL = 8            # a call of a function, in elements


@dataclass(frozen=True)
class Target:
    """`buffer[offset] = value` for every value of the indices."""

    buffer: Buffer
    indices: tuple[Index, ...]
    offset: Expr
    value: Expr

    def reads(self) -> set[Buffer]:
        """The buffers that the value depends on."""
        return {x.buffer for x in walk(self.value) if isinstance(x, Load)}

    def work(self) -> Dim:
        """About how many elements are read for one that is stored; a function call counts for several."""
        total: Dim = 1
        for x in walk(self.value):
            if isinstance(x, Reduce):
                total = total + product(index.extent for index in x.indices)
            elif isinstance(x, Call):
                total = total + CALL
        return total


def grain_of(targets: Sequence[Target], inner: Sequence[Index]) -> Expr:
    """How many iterations of the outermost loop a thread takes at least, `inner` being the loops inside of it."""
    works = [target.work() for target in targets]
    work = product(index.extent for index in inner) * max((w for w in works if isinstance(w, int)), default=1)
    symbolic = [w for w in works if not isinstance(w, int)]
    for w in symbolic[:1]:
        work = work * w
    if isinstance(work, int):
        return size(max(1, GRAIN // max(1, work)))
    return Binary("max", size(1), Binary("//", size(GRAIN), Binary("max", size(1), size(work))))


