"""Every eager call that is remembered, in one table: what equal calls have in common -> what runs them.

    PLAN, matmul, types, attributes, recorded           -> CallPlan     an operator's call (`dispatch.py`)
    CALL, cross_entropy, recording, arguments           -> Remembered   a call as it is written (`call_cache.py`)
    GRADIENT, matmul, types, attributes, what is wanted -> Recipe       an operator's rule (`vjp_cache.py`)

A number stands for a call that was made in full so many times; 0 for one that is always made so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.tensor import Tensor
from tenon.types import DType

Key = tuple[Any, ...]
PLAN, CALL, GRADIENT = "plan", "call", "gradient"
PLAIN = frozenset((bool, int, str, type(None), DType, type(Ellipsis)))      # equal where they compare so
MAX_CALLS = 16384


class CallTable(dict[Key, Any]):
    """The table; machine code's own one holds a part of it, and is cleared with it."""

    def __init__(self) -> None:
        super().__init__()
        self.native: dict[bytes, Any] = {}

    def note(self, key: Key, times: int, make: Callable[[], Any]) -> None:
        """A call was made in full: the one of that number is made into what runs those after it, if it can be."""
        seen = self.get(key, None)
        if seen is None:
            if len(self) >= MAX_CALLS:
                self.clear()
            seen = 0
        elif type(seen) is not int or seen == 0:
            return
        self[key] = seen + 1 if seen + 1 < times else make() or 0

    def clear(self) -> None:
        super().clear()
        self.native.clear()


cached_calls = CallTable()


def describe(row: Any, key: list[Any], tensors: list[Tensor], arrays: list[Any]) -> bool:
    """Add to the key of a call what its arguments are, and its tensors to the lists; False where there is no key."""
    for x in row:
        kind = type(x)
        if isinstance(x, Tensor):
            state = x.own
            array: Any = state.payload
            if type(array) is not np.ndarray:
                return False
            key += array.dtype, array.shape, state.requires_grad
            tensors.append(x)
            arrays.append(array)
        elif kind in PLAIN:
            key += kind, x
        elif kind is tuple or kind is list:
            key += kind, len(x)
            if not describe(x, key, tensors, arrays):
                return False
        elif kind is float:
            key += kind, x or repr(x)               # 0.0 == -0.0
        elif kind is slice:
            key.append(kind)
            if not describe((x.start, x.stop, x.step), key, tensors, arrays):
                return False
        else:
            return False
    return True


def describe_attrs(attrs: Any, key: list[Any]) -> bool:
    """The same of an operator's attributes, among which there are no tensors."""
    tensors: list[Tensor] = []
    return not attrs or (describe(attrs.values(), key, tensors, []) and not tensors)
