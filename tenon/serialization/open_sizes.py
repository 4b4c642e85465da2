"""The sizes that a saved function is called with, where they are symbols themselves: within a capture of open sizes.

    open_sizes([f32[B, 3]], [(N * 2, 3)])       # {"B": N * 2}

What is not certain of them is asked of the capture, which relies on the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.dims.size_assumptions import Assumptions
from tenon.dims.symbolic_dim import Dim, substitute, symbols
from tenon.types import TensorType


def open_sizes(types: Sequence[TensorType], shapes: Sequence[Sequence[Dim]],
               assumptions: Assumptions) -> dict[str, Dim] | None:
    """What the symbols of the types are; None where the shapes are not of these types."""
    sizes: dict[str, Dim] = {}
    pairs = [pair for type, shape in zip(types, shapes, strict=True) for pair in zip(type.shape, shape, strict=True)]
    for dim, size in pairs:
        if (name := _alone(dim)) is not None:
            sizes.setdefault(name, size)
    known = {name for dim, _ in pairs for name in symbols(dim)} <= sizes.keys()
    same = known and all(substitute(dim, sizes) == size for dim, size in pairs)
    return sizes if same and _hold(assumptions, sizes) else None


def _alone(dim: Dim) -> str | None:
    """The symbol that a dimension is."""
    names = symbols(dim)
    return next(iter(names)) if len(names) == 1 and str(dim) in names else None


def _hold(assumptions: Assumptions, sizes: Mapping[str, Dim]) -> bool:
    """Whether what was assumed of the symbols is so."""
    questions = [((substitute(left, sizes), relation, substitute(right, sizes)), answer)
                 for (left, relation, right), answer in assumptions.recorded.items()]
    return all((left == right if relation == "==" else left < right) is answer
               for (left, relation, right), answer in questions)
