"""A checkpoint of PyTorch's -> tensors by name; PyTorch reads it, as weights only: nothing in it is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tenon.dlpack import imported
from tenon.errors import ArgumentError, DTypeError
from tenon.tensor import Tensor
from tenon.tensor_file import DamagedFile, regular_file

BEGINNINGS = (b"PK\x03\x04", b"\x80\x02\x8a\n")        # of an archive, and of what versions before 1.6 wrote
HOLDERS = ("state_dict", "model_state_dict", "model", "module", "net")     # under which training programs keep weights


def read_torch_checkpoint(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, mapped from the file where its format allows.

    Raises ArgumentError where PyTorch is not installed, cannot read the file as weights, or finds no weights in it.
    """
    torch, found = _read("load_weights", path)
    weights = _weights(torch, found)
    if not weights:
        raise ArgumentError(f"load_weights: {os.fspath(path)!r} holds no weights by name",
                            hint=f"a state dict, itself or under one of {', '.join(HOLDERS)}")
    return {name: _tensor(x) for name, x in weights.items()}


def read_torch_nest(path: str | os.PathLike[str]) -> Any:
    """All that a checkpoint holds: dictionaries, lists and numbers as they are, tensors as Tenon's."""
    torch, found = _read("load", path)

    def ours(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return _tensor(x)
        if isinstance(x, Mapping):
            return {key: ours(value) for key, value in x.items()}
        return type(x)(map(ours, x)) if type(x) in (list, tuple) else x
    return ours(found)


def is_torch_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether it is a file that begins as PyTorch's do."""
    try:
        with regular_file(path) as (file, _):
            return file.read(4) in BEGINNINGS
    except DamagedFile:
        return False


def _tensor(x: Any) -> Tensor:
    """The tensor in the same memory; of eight bits as bfloat16, as out of safetensors files."""
    kind = str(x.dtype).removeprefix("torch.")
    try:
        return Tensor(imported((x.bfloat16() if kind.startswith("float8") else x).detach().resolve_conj(), None))
    except (BufferError, DTypeError):
        way = "x.to_dense()" if "strided" not in str(x.layout) else "x.dequantize()" if x.is_quantized else "x.float()"
        raise ArgumentError(f"load: a tensor {kind}{list(x.shape)} of PyTorch, {_layout(x)}, cannot be taken over",
                            hint=f"save {way} in its place") from None


def _layout(x: Any) -> str:
    return "quantized" if x.is_quantized else str(x.layout).removeprefix("torch.")


def _read(asked: str, path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """PyTorch, and what it reads."""
    try:
        import torch  # local: optional
    except ImportError:
        raise ArgumentError(f"{asked}: reading {os.fspath(path)!r} takes PyTorch, which is not installed",
                            hint="pip install tenon-graph[torch], or save the weights as safetensors") from None
    try:
        return torch, _loaded(torch, path)
    except Exception as error:      # of many kinds, by the state of the file
        raise ArgumentError(f"{asked}: PyTorch cannot read {os.fspath(path)!r} as weights",
                            why=str(error).splitlines()[0][:200] if str(error) else type(error).__name__) from error


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
