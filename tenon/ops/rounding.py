"""Element by element: to whole numbers, in every direction.  Integers stay as they are; gradients are 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.define import aliases, composite, function, lift, unary


def _rounding(name: str, ref: Callable[..., Any], doc: str, kinds: str = "uif") -> Op:
    return unary(name, ref, lambda s, x: s.call(name, x) if x.dtype.is_floating else x, lambda g, y, x: (None,), doc,
                 promote=same, kinds=kinds)


floor = _rounding("floor", np.floor, "The largest whole number that is not above.")
ceil = _rounding("ceil", np.ceil, "The smallest whole number that is not below.")
trunc = _rounding("trunc", np.trunc, "The whole part: rounded towards 0.")
round_op = _rounding("round", np.round, "The nearest whole number; the even one where two are as near.", kinds="uifc")


@function
def round_(x: Any, decimals: int = 0) -> Any:
    """The nearest number with this many decimals; the even one where two are as near.

    >>> tn.round(tn.tensor([0.5, 1.5, 2.345]), 2)
    tensor([0.5 , 1.5 , 2.34])
    """
    x = lift(x)
    if decimals == 0 or (x.dtype.kind in "ui" and decimals > 0):
        return round_op(x)
    scale = 10.0 ** abs(decimals)
    if x.dtype.kind in "ui":
        return (round_op(x / scale) * scale).astype(x.dtype)
    return round_op(x * scale) / scale if decimals > 0 else round_op(x / scale) * scale


@composite(promote=same, examples=["frac(f32[2, 3]) -> f32[2, 3]"])
def frac(x: Any) -> Any:
    """What `trunc` cuts off; it has the sign of x."""
    return x - trunc(x)


aliases(fix=trunc, rint=round_op)
