"""An operator with its attributes, on inputs of known types -> one NumPy call and its arguments, decided once.

    take(x, at, axis=1)             np.ndarray.take(x, at, 1)

For operators whose reference looks at elements, of which NumPy says itself that they are wrong: the results are the
reference's, to the bit.  Where NumPy raises, the call in full says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.graph.op import OPS, Op

Types = Sequence[Any]
Prepared = tuple[Callable[..., Any], tuple[Any, ...]]       # what is called, and with what behind the arrays


def prepared(op: Op, types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    """The call, or None where the reference is as good."""
    make = PREPARED.get(op)
    return None if make is None else make(types, attrs)


def _cast(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    source, target = types[0].dtype, attrs["dtype"]
    cut = source.kind == "c" or (source.kind == "f" and target.kind in "ui")       # what lies beyond the type's ends
    return None if cut else (np.ndarray.astype, (target.numpy,))


def _take(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    return (np.ndarray.take, (attrs["axis"],)) if types[1].dtype.kind == "i" else None


def _gather(types: Types, attrs: Mapping[str, Any]) -> Prepared | None:
    axis, grid = attrs["axis"], np.indices(types[1].shape, sparse=True)
    before, behind = grid[:axis], grid[axis + 1:]
    return (lambda x, at: x[(*before, at, *behind)], ()) if types[1].dtype.kind == "i" else None


PREPARED: dict[Op, Callable[[Types, Mapping[str, Any]], Prepared | None]] = {
    OPS["cast"]: _cast,
    OPS["take"]: _take,
    OPS["gather"]: _gather,
}
