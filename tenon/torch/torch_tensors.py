"""PyTorch's tensors <-> memory as Tenon's programs see it, without copies where elements lie as they were promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tenon.tensor import Tensor, asarray
from tenon.torch.aten_call import dtype_of
from tenon.torch.memory_order import MemoryOrder

SHORT_FLOATS = {torch.bfloat16: np.dtype(np.int16)}     # which NumPy does not know, and PyTorch does not take from it


def lying_as(tensor: torch.Tensor, place: MemoryOrder) -> torch.Tensor:
    """The tensor where its elements lie like this, or a copy that does; signs that PyTorch has not applied yet are."""
    tensor = tensor.resolve_conj().resolve_neg()
    if place.is_plain:
        return tensor if tensor.is_contiguous() else tensor.contiguous()
    if tensor.stride() == place.strides or _lies_as(tensor, place):
        return tensor
    once = tensor[tuple(slice(0, 1) if k in place.repeated else slice(None) for k in range(tensor.ndim))]
    return once.permute(place.order).contiguous()


def _lies_as(tensor: torch.Tensor, place: MemoryOrder) -> bool:
    """The same where axes of one element have any stride."""
    return all(n == 1 or step == wanted for n, step, wanted in zip(tensor.shape, tensor.stride(), place.strides))


def as_tensor(array: np.ndarray[Any, Any], place: MemoryOrder, dtype: torch.dtype) -> torch.Tensor:
    """A result as PyTorch's tensor, in the array's memory."""
    if not array.size:
        return torch.empty_strided(tuple(map(int, place.shape)), place.strides, dtype=dtype)
    tensor = torch.from_numpy(array.view(SHORT_FLOATS[dtype])).view(dtype) if dtype in SHORT_FLOATS \
        else torch.from_numpy(array)
    return tensor if place.is_plain else tensor.as_strided(tuple(map(int, place.shape)), place.strides)


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The memory of a tensor as an array."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    known = tensor.view(torch.int16) if tensor.dtype in SHORT_FLOATS else tensor
    array: np.ndarray[Any, Any] = known.numpy()
    return array.view(dtype_of(tensor.dtype).numpy)


def copied(tensor: torch.Tensor) -> Tensor:
    """A tensor of Tenon with the same elements, in memory of its own."""
    return Tensor(np.array(array_of(tensor), order="C", copy=True))


def shared(tensor: torch.Tensor) -> Tensor:
    """A tensor of Tenon that shows the memory of PyTorch's."""
    return asarray(array_of(tensor))
