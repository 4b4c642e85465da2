"""The leaves of a call -> what makes calls different functions: types, flags, identities, plain values.

Numbers and texts are told apart by their type here: their values are compared capture by capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.capture.guard_places import CHANGING
from tenon.capture.guards import is_atom, is_value
from tenon.graph.structural_key import exactly
from tenon.tensor import Tensor
from tenon.tensor_state import Elsewhere


def leaf_key(leaf: Any) -> Any:
    """What makes calls with other values of this leaf different functions."""
    if isinstance(leaf, Tensor):
        own = leaf.own
        if isinstance(own.payload, Elsewhere):
            return (own.payload.dtype, own.payload.ndim, own.requires_grad, own.grad is None, own.payload.device)
        return (own.payload.dtype, own.payload.ndim, own.requires_grad, own.grad is None)
    if isinstance(leaf, slice):
        return (slice, *(exactly(x) if is_atom(x) else leaf_key(x) for x in (leaf.start, leaf.stop, leaf.step)))
    if type(leaf) in CHANGING:
        return type(leaf)       # their values are compared capture by capture
    if type(leaf) is frozenset and is_value(leaf):
        return exactly(leaf)
    return exactly(leaf) if is_atom(leaf) else (type(leaf), id(leaf))


def aliases(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Which tensors among the leaves are the same object."""
    ids = [id(x) for x in leaves if isinstance(x, Tensor)]
    return () if len(set(ids)) == len(ids) else tuple(ids.index(i) for i in ids)
