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

from tenon.runtime.buffer_pool import MIN_POOLED_BYTES, Lease, take
from tenon.tensor import Tensor

Sharing = tuple[set[int], set[int], set[int]]


def are_alone(holders: Sequence[Tensor], arrays: Sequence[Any], positions: Sequence[int]) -> bool:
    """Whether the tensors at these positions, whose arrays the caller has in a list, share nothing with anybody."""
    states, elements, memory = _sharing(holders, arrays, positions)
    return states == _ALONE[0] and elements == _ALONE[1] and memory <= _ALONE[2]


def move_to_lines(holders: Sequence[Tensor], arrays: list[Any], positions: Sequence[int]) -> None:
    """Give tensors that are alone, if they are large, memory that begins where a line of the cache does.

    NumPy's own seldom does, and a program that changes it in place would read and write each line twice for good (a
    step of an MLP with Adam: 2 %).  Memory that is leased begins there, so a tensor moves once.
    """
    for k in positions:
        array = arrays[k]
        if array.base is None and array.nbytes >= MIN_POOLED_BYTES:
            moved = take(array.shape, array.dtype)
            moved[...] = array
            holders[k].own.payload = arrays[k] = moved


def _sharing(holders: Sequence[Tensor], arrays: Sequence[Any], positions: Sequence[int]) -> Sharing:
    """How often states, arrays and the memory that the arrays lease are referred to; 0 for memory of another array."""
    states, chosen = [holders[k].own for k in positions], [arrays[k] for k in positions]
    bases = [x.base for x in chosen if x.base is not None]          # no name for one of them stays: it would count
    memory = set(map(getrefcount, bases)) if all(type(x) is Lease for x in bases) else {0}
    return set(map(getrefcount, states)), set(map(getrefcount, chosen)), memory


def _one_alone() -> Sharing:
    holders = [Tensor(take((MIN_POOLED_BYTES,), np.dtype(np.uint8)))]
    return _sharing(holders, [x.own.payload for x in holders], [0])


_ALONE = _one_alone()
