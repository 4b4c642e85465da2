"""Random numbers of PyTorch's generator, drawn as PyTorch's kernels draw them, apart from what is done with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

LIBRARY = torch.library.Library("tenon", "FRAGMENT")
LIBRARY.define("mask(Tensor like, float kept) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))


def _mask(like: torch.Tensor, kept: float) -> torch.Tensor:
    return torch.empty_like(like, dtype=torch.bool).bernoulli_(kept)


def _mask_without_elements(like: torch.Tensor, kept: float) -> torch.Tensor:
    return torch.empty_like(like, dtype=torch.bool)


LIBRARY.impl("mask", _mask, "CPU")
LIBRARY.impl("mask", _mask_without_elements, "Meta")


def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Dropout with the mask that PyTorch's kernel draws, which depends on how x lies in memory."""
    if train is False or p == 0 or not x.numel():
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask: Any = torch.ops.tenon.mask.default(x, 1 - p)
    return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask


DRAWING: dict[Any, Callable[..., Any]] = {aten.native_dropout.default: native_dropout}
