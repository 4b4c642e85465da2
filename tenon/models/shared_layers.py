"""Pieces that several models have: activations by the names in `config.json`, heads of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.errors import ArgumentError
from tenon.ops.activations import gelu, relu, silu
from tenon.ops.exponential import sigmoid
from tenon.ops.joining_and_axes import reshape
from tenon.ops.shape import permute

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu, "relu": relu, "silu": silu, "swish": silu,
    "gelu_new": lambda x: gelu(x, approximate="tanh"), "gelu_pytorch_tanh": lambda x: gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * sigmoid(x * 1.702)}


def activation(name: str) -> Callable[[Any], Any]:
    """The function that a configuration calls so; raises ArgumentError for a name that is not known."""
    if name not in ACTIVATIONS:
        raise ArgumentError(f"the activation {name!r} is not known", hint=f"there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def split_heads(x: Any, heads: int) -> Any:
    """[N, T, heads * size] as [N, heads, T, size]."""
    return permute(reshape(x, (x.shape[0], x.shape[1], heads, x.shape[2] // heads)), (0, 2, 1, 3))


def merge_heads(x: Any) -> Any:
    """[N, heads, T, size] as [N, T, heads * size]."""
    return reshape(permute(x, (0, 2, 1, 3)), (x.shape[0], x.shape[2], x.shape[1] * x.shape[3]))
