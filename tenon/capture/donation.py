"""Which tensors may give their memory to the values that a program assigns to them: those that nobody else can see.

A state or an array that somebody else holds (a view, a detached tensor, a tape, an operator in another thread) has more
references than that of its tensor.  They are compared with the counts of a tensor that is surely alone, taken by the
same code, so that it does not matter how this Python counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tenon.tensor import Tensor

Sharing = tuple[set[int], set[int], bool]


def are_alone(holders: Sequence[Tensor], arrays: Sequence[Any], positions: Sequence[int]) -> bool:
    """Whether the tensors at these positions, whose arrays the caller has in a list, share nothing with anybody."""
    return _sharing(holders, arrays, positions) == _ALONE


def _sharing(holders: Sequence[Tensor], arrays: Sequence[Any], positions: Sequence[int]) -> Sharing:
    """How often states and arrays are referred to, and whether some array lies in the memory of another."""
    states, chosen = [holders[k].own for k in positions], [arrays[k] for k in positions]
    return set(map(getrefcount, states)), set(map(getrefcount, chosen)), any(x.base is not None for x in chosen)


def _one_alone() -> Sharing:
    holders = [Tensor(np.empty(1, np.float32))]
    return _sharing(holders, [x.own.payload for x in holders], [0])


_ALONE = _one_alone()
