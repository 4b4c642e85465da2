"""The arguments of a call, and what a saved function takes -> the leaves that its graph reads, or a clear error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tenon.capture.guards import same_atom
from tenon.capture.pytree import Structure, form
from tenon.errors import ArgumentError, DTypeError, ShapeError, TenonError
from tenon.serialization.saved_function import Function
from tenon.serialization.structure_json import Fields
from tenon.tensor import Tensor, asarray
from tenon.types import TensorType


def leaves_of(function: Function, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
    """The leaves of a call, tensors where the function takes tensors; raises ArgumentError where they do not fit."""
    given = dict(keywords)
    for name in function.positional[len(args):]:
        if name in given:
            args = (*args, given.pop(name))
    positional, named = function.structure.children
    if len(args) != len(positional.children) or given.keys() != set(named.labels):
        raise ArgumentError(f"{function.name} takes ({signature(function)}), and was given {len(args)} positional "
                            f"arguments{''.join(f', {name}' for name in given)}")
    leaves = list(_leaves(function.structure, (args, given), function.name))
    types = dict(zip((k for k in range(len(leaves)) if k not in function.values), function.variants[0].types,
                     strict=True))
    for k, leaf in enumerate(leaves):
        if k in types:
            leaves[k] = _tensor(function, k, leaf, types[k])
        elif not same_atom(leaf, function.values[k]):
            raise ArgumentError(f"{function.name} was saved for {function.arguments[k]} = {function.values[k]!r}, and "
                                f"is given {leaf!r:.60}", hint="a number that changes is saved as a tensor")
    return leaves


def signature(function: Function) -> str:
    """The arguments in words: `x: f32[B, 3], mode = 'mean'`."""
    types = iter(function.variants[0].types)
    return ", ".join(f"{name} = {function.values[k]!r}" if k in function.values else f"{name}: {next(types)}"
                     for k, name in enumerate(function.arguments))


def _leaves(expected: Structure, value: Any, where: str) -> Iterator[Any]:
    """The leaves of a nest that has the expected structure, in its order."""
    kind = expected.kind
    if kind is None:
        yield value
        return
    if kind is dict:
        fits = isinstance(value, Mapping) and value.keys() == {*expected.labels}
        parts = [value[key] for key in expected.labels] if fits else []
    elif kind is Fields:
        fits = all(hasattr(value, name) for name in expected.labels)
        parts = [getattr(value, name) for name in expected.labels] if fits else []
    else:
        fits = isinstance(value, (list, tuple)) and len(value) == len(expected.children)
        parts = list(value) if fits else []
    if not fits:
        raise ArgumentError(f"{where} takes {form(expected)}, and is given {_shown(value)}")
    for label, child, part in zip(_labels(expected), expected.children, parts, strict=True):
        yield from _leaves(child, part, f"{where}{label}")


def _labels(structure: Structure) -> list[str]:
    if structure.kind in (list, tuple):
        return [f"[{k}]" for k in range(len(structure.children))]
    return [f"[{label!r}]" for label in structure.labels]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(repr, value))}"[:100]
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return str(value.type) if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _tensor(function: Function, k: int, leaf: Any, type: TensorType) -> Tensor:
    """The tensor that is an argument; numbers and lists get the type, arrays and tensors have it."""
    where = f"{function.name}: {function.arguments[k]}"
    if isinstance(leaf, Tensor):
        found = leaf
    elif isinstance(leaf, (np.ndarray, np.generic)):
        found = asarray(leaf)
    elif isinstance(leaf, (bool, int, float, complex, list, tuple)):
        try:
            found = asarray(leaf, dtype=type.dtype)
        except (TenonError, ValueError, TypeError) as error:
            raise ArgumentError(f"{where} takes {type}, and is given {leaf!r:.60}: {error}") from None
    else:
        raise ArgumentError(f"{where} takes {type}, and is given {_shown(leaf)}")
    if found.dtype is not type.dtype:
        raise DTypeError(f"{where} takes {type}, and is given {found.type}", hint=f"x.astype({type.dtype.name!r})")
    if found.ndim != len(type.shape):
        raise ShapeError(f"{where} takes {type}, and is given {found.type}")
    return found
