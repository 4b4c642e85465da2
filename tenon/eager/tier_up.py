"""An operator whose machine code has the bits of its reference -> the reference, and what is sooner once it took long.

Machine code for one operator on one shape takes some tens of milliseconds to make, so it is made when NumPy has worked
as long on calls that are equal: these take twice their time at most.  Then both are compared, and the one that takes
less stays.  Nobody can see in the results which one it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from tenon.config import config
from tenon.eager.compiled_ops import Runs, numpy_work, program_of_call, run_whole
from tenon.graph.op import NumPyCall, Op
from tenon.types import TensorType

SMALL_CALL_WORK = 128  # elements, or multiply-adds, that NumPy is done with before machine code would be found
TIER_UP_SECONDS = 0.03  # seconds that NumPy takes before machine code is made
TRIALS = 5          # calls of machine code that may be slower before the reference stays


def warming(op: Op, types: Sequence[TensorType | None], outputs: Sequence[TensorType],
            attrs: Mapping[str, Any]) -> TieredCall | None:
    """What computes the operator on arrays of these types; None where the reference is as good."""
    plain = all(t is not None and t.dtype.kind in "buif" for t in types)
    exact = op.exact(attrs) if callable(op.exact) else op.exact
    if not exact or op.ref is None or not plain or config().backend == "reference":
        return None
    looked_at = [*outputs, *(types[1:] if op.reads_part else types)]
    most = max(int(t.size) for t in looked_at if t is not None)
    if (most if op.numpy_work is None else numpy_work(op, types, outputs)) <= SMALL_CALL_WORK:
        return None
    function, more = prepared(op, types, attrs) or (partial(op.ref, **attrs), ())
    return None if more else TieredCall(function, lambda: program_of_call(op, types, attrs))


def prepared(op: Op, types: Sequence[TensorType | None], attrs: Mapping[str, Any]) -> NumPyCall | None:
    """A call of NumPy that does what the reference does, and looks at elements itself; None where there is none.

    Where NumPy raises, the call in full says what is wrong.
    """
    return None if op.numpy_call is None else op.numpy_call(types, attrs)


class TieredCall:
    """The reference, until it has taken long enough; then machine code, if that is faster."""

    def __init__(self, reference: Callable[..., Any], make: Callable[[], Runs]):
        self.reference, self.make, self.run = reference, make, self._reference
        self.total, self.least, self.trials = 0.0, float("inf"), TRIALS

    def __call__(self, *arrays: Any) -> Any:
        return self.run(*arrays)

    def _reference(self, *arrays: Any) -> Any:
        """NumPy, while nobody knows better."""
        start = perf_counter()
        out = self.reference(*arrays)
        taken = perf_counter() - start
        self.total, self.least = self.total + taken, min(self.least, taken)
        if self.total >= TIER_UP_SECONDS:
            self.run = partial(self._tried, partial(run_whole, self.make()))
        return out

    def _tried(self, native: Callable[..., Any], *arrays: Any) -> Any:
        """Machine code, while it is measured."""
        start = perf_counter()
        out = native(*arrays)
        faster = perf_counter() - start < self.least
        self.trials -= 1
        if faster or not self.trials:
            self.run = native if faster else self.reference
        return out
