"""Tensors, in dicts and lists, <-> one safetensors file.

The weights can be read by every safetensors tool.  Where the object is more than a flat dict of tensors, its structure
stands as JSON in the header under "tenon".  Reading never runs anything; `tenon.tensor_file` checks every bound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon import tensor_file
from tenon.errors import ArgumentError, DTypeError
from tenon.nn.module import Module
from tenon.tensor import Tensor

STRUCTURE = "tenon"


def save(obj: Any, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write a module's state, or nested dicts and lists of tensors, arrays, numbers, strings and None.

    The file is complete, or the one before it still there: it is written under another name and then renamed.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> tn.save({"w": tn.ones(2), "epoch": 3}, path)
    >>> tn.load(path)
    {'w': tensor([1., 1.]), 'epoch': 3}
    """
    tensors: dict[str, np.ndarray] = {}
    structure = _flatten(obj.state_dict() if isinstance(obj, Module) else obj, "", tensors)
    header = _texts(metadata or {})
    if structure != {name: {"tensor": name} for name in tensors}:
        header[STRUCTURE] = json.dumps(structure)
    tensor_file.write(path, tensors, header)


def _texts(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as the file holds them; raises ArgumentError for what is no text."""
    for name, text in metadata.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ArgumentError(f"save: metadata are texts by name, not {name!r}: {text!r}")
    return dict(metadata)


def load(path: str | os.PathLike[str]) -> Any:
    """What `save` wrote, or the tensors of any safetensors file by name.

    Raises ArgumentError where the file is no safetensors file or is damaged.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise ArgumentError(f"load: a path was expected, not {type(path).__name__}")
    if os.path.isdir(path):
        raise ArgumentError(f"load: {os.fspath(path)!r} is a directory", hint="give the file that tn.save wrote in it")
    try:
        arrays, header = tensor_file.read(path)
    except tensor_file.DamagedFile as error:
        raise ArgumentError(f"{os.fspath(path)!r} is not a safetensors file, or is damaged: {error.what}") from None
    tensors = {name: Tensor(array) for name, array in arrays.items()}
    if STRUCTURE not in header:
        return tensors
    try:
        return _build(json.loads(header[STRUCTURE]), tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentError(f"{os.fspath(path)!r} has a damaged structure in its header: {error!r}") from None


def _flatten(obj: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """The structure of `obj` in JSON, its tensors collected under names that say where they stand."""
    if isinstance(obj, (Tensor, np.ndarray, np.generic)):
        return {"tensor": _collect(np.asarray(obj), name or "tensor", tensors)}
    if isinstance(obj, Mapping):
        for key in obj:
            if not isinstance(key, str):
                raise ArgumentError(f"save: a key of a dict must be a string, not {key!r}")
        parts = {key: _flatten(x, f"{name}.{key}" if name else key, tensors) for key, x in obj.items()}
        return parts if name == "" and not {"tensor", "dict", "list"} & parts.keys() else {"dict": parts}
    if isinstance(obj, (list, tuple)):
        return {"list": [_flatten(x, f"{name}.{k}" if name else str(k), tensors) for k, x in enumerate(obj)]}
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    raise ArgumentError(f"save: {type(obj).__name__} cannot be saved{f' (at {name!r})' if name else ''}",
                        hint="save takes modules, dicts, lists, tensors, numbers, strings and None")


def _collect(array: np.ndarray, name: str, tensors: dict[str, np.ndarray]) -> str:
    if array.dtype == np.complex128:
        raise DTypeError(f"save: {name!r} is complex128, which safetensors files do not hold",
                         hint="save its real and imaginary parts")
    while name in tensors or name == tensor_file.METADATA:
        name += "_"
    tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
    return name


def _build(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(structure, dict):
        if structure.keys() == {"tensor"} and isinstance(structure["tensor"], str):
            return tensors[structure["tensor"]]
        if structure.keys() == {"list"}:
            return [_build(x, tensors) for x in structure["list"]]
        if structure.keys() == {"dict"}:
            structure = structure["dict"]
        return {key: _build(x, tensors) for key, x in structure.items()}
    return structure
