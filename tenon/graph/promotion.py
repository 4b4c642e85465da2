"""How the inputs of an operator agree on an element type, written once at the surface; the IR states the result.

A promotion takes one entry an input (a DType, the class of a Python scalar, or None for an input left out) and
returns the DType that each input is cast to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

from tenon.types import (
    DEFAULT_OF_KIND,
    DType,
    as_dtype,
    bool_,
    floating_of,
    int64,
    promote_scalar,
    promote_types,
)

Kinds = tuple[Any, ...]
Promotion = Callable[[Kinds], tuple[DType | None, ...]]


@lru_cache(maxsize=4096)
def common(kinds: Kinds) -> DType:
    """The type that all inputs combine to; Python scalars only raise the kind."""
    dtypes = [kind for kind in kinds if isinstance(kind, DType)]
    scalars = [kind for kind in kinds if isinstance(kind, type)]
    start = reduce(promote_types, dtypes) if dtypes else reduce(promote_types, map(as_dtype, scalars))
    return reduce(promote_scalar, scalars, start)


def _spread(dtype: DType, kinds: Kinds) -> tuple[DType | None, ...]:
    return tuple(None if kind is None else dtype for kind in kinds)


@lru_cache(maxsize=4096)
def same(kinds: Kinds) -> tuple[DType | None, ...]:
    """All inputs get their common type."""
    return _spread(common(kinds), kinds)


@lru_cache(maxsize=4096)
def floating(kinds: Kinds) -> tuple[DType | None, ...]:
    """All inputs get their common type, or the default float where that holds no fractions."""
    return _spread(floating_of(common(kinds)), kinds)


@lru_cache(maxsize=4096)
def numeric(kinds: Kinds) -> tuple[DType | None, ...]:
    """All inputs get their common type; booleans count as integers."""
    dtype = common(kinds)
    return _spread(int64 if dtype is bool_ else dtype, kinds)


@lru_cache(maxsize=4096)
def logical(kinds: Kinds) -> tuple[DType | None, ...]:
    """All inputs become booleans."""
    return _spread(bool_, kinds)


@lru_cache(maxsize=4096)
def condition_first(kinds: Kinds) -> tuple[DType | None, ...]:
    """The first input becomes a boolean, the rest their common type."""
    return (bool_, *same(kinds[1:]))


@lru_cache(maxsize=4096)
def separate(kinds: Kinds) -> tuple[DType | None, ...]:
    """Every input keeps its own type; a Python scalar gets the default of its kind."""
    return tuple(kind if kind is None or isinstance(kind, DType) else DEFAULT_OF_KIND[as_dtype(kind).kind]
                 for kind in kinds)


@lru_cache(maxsize=4096)
def like_first(kinds: Kinds) -> tuple[DType | None, ...]:
    """Every input is cast to the type of the first; for scatter-like operators that write into it."""
    return _spread(separate(kinds[:1])[0] or bool_, kinds)
