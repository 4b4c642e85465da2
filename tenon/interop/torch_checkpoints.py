"""A checkpoint of PyTorch's -> tensors by name; PyTorch reads it, as weights only: nothing in it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tenon.dlpack import imported
from tenon.errors import ArgumentError
from tenon.tensor import Tensor

HOLDERS = ("state_dict", "model_state_dict", "model", "module", "net")     # under which training programs keep weights


def read_torch_checkpoint(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, mapped from the file where its format allows.

    Raises ArgumentError where PyTorch is not installed, cannot read the file as weights, or finds no weights in it.
    """
    try:
        import torch  # local: optional
    except ImportError:
        raise ArgumentError(f"load_weights: reading {os.fspath(path)!r} takes PyTorch, which is not installed",
                            hint="pip install tenon-graph[torch], or save the weights as safetensors") from None
    try:
        found = _loaded(torch, path)
    except Exception as error:      # of many kinds, by the state of the file
        raise ArgumentError(f"load_weights: PyTorch cannot read {os.fspath(path)!r} as weights",
                            why=str(error).splitlines()[0][:200] if str(error) else type(error).__name__) from error
    weights = _weights(torch, found)
    if not weights:
        raise ArgumentError(f"load_weights: {os.fspath(path)!r} holds no weights by name",
                            hint=f"a state dict, itself or under one of {', '.join(HOLDERS)}")
    return {name: Tensor(imported(x.detach().resolve_conj(), None)) for name, x in weights.items()}


def _loaded(torch: Any, path: str | os.PathLike[str]) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:            # of the format that cannot be mapped
        return torch.load(path, map_location="cpu", weights_only=True)


def _weights(torch: Any, found: Any) -> dict[str, Any]:
    """The tensors that stand in a dictionary by name, or in one that stands in it."""
    if not isinstance(found, Mapping):
        return {}
    here = {name: x for name, x in found.items() if isinstance(name, str) and isinstance(x, torch.Tensor)}
    inner = next((found[name] for name in HOLDERS if isinstance(found.get(name), Mapping)), None)
    return here or ({} if inner is None else _weights(torch, inner))
