"""What users say a function takes -> arguments to capture it with, and the types of their tensors.

    sample = sample_of((x, "f32[B, 3]"), {}, names, {"x": {0: "N"}})

Tensors and arrays stand for their types, texts such as `f32[B, 3]` too, in any nest; other values are part of what is
saved.  Nothing looks at elements: a capture needs types alone, so the arguments take no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from tenon.capture.pytree import Structure, flatten
from tenon.dims.symbolic_dim import Dim, evaluate, substitute, symbol, symbols
from tenon.errors import ArgumentError, GraphError
from tenon.graph.text import parse_type
from tenon.records import dataclass, replace
from tenon.tensor import Tensor
from tenon.types import DType, TensorType, as_dtype

VALUES = (bool, int, float, str, type(None), DType)
# Numbers that stand for symbols: even and odd, small and large, so that what depends on that is captured for each.
SIZES = ((7, 11, 13, 17, 19, 23), (8, 12, 20, 28, 44, 52), (101, 103, 107, 109, 113, 127),
         (96, 112, 128, 144, 160, 176), (1009, 1013, 1019, 1021, 1031, 1033))
MAX_TOGETHER = 3        # symbols of which any may be 1 beside others


@dataclass(frozen=True)
class Sample:
    """The arguments of a call: leaves, of which some are tensors of these types."""

    leaves: tuple[Any, ...]
    structure: Structure
    types: Mapping[int, TensorType]
    sizes: Mapping[str, int]        # of symbols, as the tensors that were given have them

    @property
    def values(self) -> dict[int, Any]:
        """The leaves that are no tensors."""
        return {k: x for k, x in enumerate(self.leaves) if k not in self.types}

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic sizes, in order of appearance."""
        return tuple(dict.fromkeys(name for type in self.types.values() for dim in type.shape
                                   for name in sorted(symbols(dim))))

    def with_sizes(self, known: Mapping[str, Dim]) -> Sample:
        """The same with expressions in the place of symbols."""
        return replace(self, types={k: TensorType(type.dtype, tuple([substitute(dim, known) for dim in type.shape]))
                                    for k, type in self.types.items()})

    def tensors(self, sizes: Mapping[str, int], requires_grad: bool) -> list[Any]:
        """The leaves, each a new tensor with these sizes where it is one."""
        return [_empty(self.types[k], sizes, requires_grad) if k in self.types else x
                for k, x in enumerate(self.leaves)]

    def sizes_to_try(self) -> Iterator[dict[str, int]]:
        """Sizes of the symbols: those at hand, and others of all kinds."""
        names = self.symbols
        if all(self.sizes.get(name, 0) > 1 for name in names):
            yield {name: self.sizes[name] for name in names}
        for listed in SIZES if names else ():
            yield {name: listed[k % len(listed)] + 2 * (k // len(listed)) for k, name in enumerate(names)}

    def without_symbols(self) -> Iterator[Sample]:
        """The same where some sizes are 1, or 0, which no symbol stands for."""
        names = self.symbols
        counts = range(1, len(names) + 1) if len(names) <= MAX_TOGETHER else (1,) if names else ()
        for count in counts:
            for chosen in combinations(names, count):
                yield self.with_sizes(dict.fromkeys(chosen, 1))
        for name in names:
            yield self.with_sizes({name: 0})


def _empty(type: TensorType, sizes: Mapping[str, int], requires_grad: bool) -> Tensor:
    shape = tuple(evaluate(dim, sizes) for dim in type.shape)
    return Tensor(np.broadcast_to(np.zeros((), type.dtype.numpy), shape),
                  requires_grad and type.dtype.is_differentiable)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(positional arguments, keyword arguments): a tuple or list is the former, a dict the latter."""
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs), {}) if type(inputs) in (tuple, list) else ((inputs,), {})


def sample_of(args: tuple[Any, ...], keywords: Mapping[str, Any], names: Sequence[str],
              dynamic: Mapping[str, Any]) -> Sample:
    """The sample of these arguments, the leaves of which have these names."""
    leaves, structure = flatten((args, dict(keywords)))
    if unknown := [name for name in dynamic if name not in names]:
        raise ArgumentError(f"save: dynamic names {unknown[0]!r}, and the arguments are {', '.join(names)}")
    types: dict[int, TensorType] = {}
    sizes: dict[str, int] = {}
    for k, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        type = _type_of(leaf)
        if type is not None:
            types[k], known = _dynamic(name, type, dynamic.get(name))
            sizes.update(known)
        elif not isinstance(leaf, VALUES):
            raise ArgumentError(f"save: the argument {name} is a {leaf.__class__.__name__}, which no file holds",
                                hint="give tensors, arrays, numbers, strings and None, in lists, tuples and dicts")
    return Sample(tuple(leaves), structure, types, sizes)


def _type_of(leaf: Any) -> TensorType | None:
    if isinstance(leaf, TensorType):
        return leaf
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)):
        return TensorType(as_dtype(leaf.dtype), tuple(leaf.shape))
    if isinstance(leaf, str):
        try:
            return parse_type(leaf)
        except GraphError:
            return None         # a text among the arguments
    return None


def _dynamic(name: str, type: TensorType, axes: Any) -> tuple[TensorType, dict[str, int]]:
    """The type with symbols for these axes, and the sizes that they have now."""
    if axes is None:
        return type, {}
    named = dict(axes) if isinstance(axes, Mapping) else {axis: f"{name}_{axis}" for axis in axes}
    shape = list(type.shape)
    sizes: dict[str, int] = {}
    for axis, text in named.items():
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise ArgumentError(f"save: dynamic gives {name} an axis {axis!r}, and it is {type}")
        if not isinstance(text, str) or not text.isidentifier():
            raise ArgumentError(f"save: dynamic calls axis {axis} of {name} {text!r}, which is no name")
        size = shape[axis]
        sizes |= {text: size} if isinstance(size, int) else {}
        shape[axis] = symbol(text)
    return TensorType(type.dtype, tuple(shape)), sizes
