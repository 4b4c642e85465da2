"""ATen's operators on lists of tensors, as `foreach=True` of optimizers has them -> the operator of each tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def _with_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """`addcmul` and `addcdiv`, whose last argument has a name."""
    return lambda x, y, z, value=1: function(x, y, z, value=value)


SINGLE: dict[str, Callable[..., Any]] = {
    "norm": torch.linalg.vector_norm, "copy": aten.copy, "zero": torch.zeros_like, "maximum": torch.clamp_min,
    "minimum": torch.clamp_max, "addcmul": _with_value(torch.addcmul), "addcdiv": _with_value(torch.addcdiv),
    "powsum": lambda x, ord=2, dtype=None: x.abs().pow(ord).sum(dtype=dtype)}


def _of_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of lists, which hold an argument for each, and of what is the same for all."""
    def of_lists(*arguments: Any, **keywords: Any) -> list[Any]:
        count = next(len(x) for x in arguments if isinstance(x, Sequence))
        return [function(*[x[k] if isinstance(x, Sequence) else x for x in arguments], **keywords)
                for k in range(count)]
    return of_lists


def _list_operators() -> dict[Any, Callable[..., Any]]:
    """Those that make new tensors, with what they stand for; a tensor of numbers, one for each, stays with PyTorch."""
    found = {}
    for packet in (*(name for name in dir(aten) if name.startswith("_foreach_")), "_foreach_copy", "_foreach_zero"):
        name = packet.removeprefix("_foreach_")
        if name.endswith("_"):
            continue
        function = SINGLE.get(name) or getattr(torch, name)
        for overload in getattr(aten, packet).overloads():
            if not (overload.endswith("out") or (name.startswith("addc") and overload == "Tensor")):
                found[getattr(getattr(aten, packet), overload)] = _of_each(function)
    return found


LIST_OPERATORS = _list_operators()
