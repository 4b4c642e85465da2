"""Tensors, in dicts and lists, <-> one safetensors file.

The weights can be read by every safetensors tool.  Where the object is more than a flat dict of tensors, its structure
stands as JSON in the header under "tenon".  Reading never runs anything; `tenon.tensor_file` checks every bound.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon import tensor_file
from tenon.errors import ArgumentError, DTypeError
from tenon.nn.module import Module
from tenon.tensor import Tensor
from tenon.types import complex128

STRUCTURE = "tenon"


def tensors_and_structure(obj: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays by name, metadata) of a module's state, or of nested dicts and lists."""
    tensors: dict[str, np.ndarray] = {}
    structure = structure_of(obj, tensors)
    flat = structure == {name: {"tensor": name} for name in tensors}
    return tensors, {} if flat else {STRUCTURE: json.dumps(structure)}


def structure_of(obj: Any, tensors: dict[str, Any], leaf: Callable[[Any], Any] | None = None) -> Any:
    """The structure of a nest in JSON; its tensors are collected by name, each as `leaf` makes it of a tensor."""
    return _flatten(obj.state_dict() if isinstance(obj, Module) else obj, "", tensors, leaf or _whole)


def texts(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as the file holds them; raises ArgumentError for what is no text."""
    for name, text in metadata.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ArgumentError(f"save: metadata are texts by name, not {name!r}: {text!r}")
    return dict(metadata)


def nest_of(arrays: Mapping[str, np.ndarray], header: Mapping[str, str], path: str) -> Any:
    """What a file holds: the nest that was saved, or its tensors by name."""
    tensors = {name: Tensor(array) for name, array in arrays.items()}
    return nest_from(header[STRUCTURE], tensors, path) if STRUCTURE in header else tensors


def nest_from(structure: str, tensors: Mapping[str, Tensor], path: str) -> Any:
    """The nest of these tensors; raises ArgumentError where the structure, in JSON, is none of theirs."""
    try:
        return _build(json.loads(structure), tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArgumentError(f"{path!r} has a damaged structure in its header: {error!r}") from None


def _flatten(obj: Any, name: str, tensors: dict[str, Any], leaf: Callable[[Any], Any]) -> Any:
    """The structure of `obj` in JSON, its tensors collected under names that say where they stand."""
    if isinstance(obj, (Tensor, np.ndarray, np.generic)):
        return {"tensor": _collect(obj, name or "tensor", tensors, leaf)}
    if isinstance(obj, Module):
        obj = obj.state_dict()
    if isinstance(obj, Mapping):
        for key in obj:
            if not isinstance(key, str):
                raise ArgumentError(f"save: a key of a dict must be a string, not {key!r}")
        parts = {key: _flatten(x, f"{name}.{key}" if name else key, tensors, leaf) for key, x in obj.items()}
        return parts if name == "" and not {"tensor", "dict", "list"} & parts.keys() else {"dict": parts}
    if isinstance(obj, (list, tuple)):
        return {"list": [_flatten(x, f"{name}.{k}" if name else str(k), tensors, leaf) for k, x in enumerate(obj)]}
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return obj
    raise ArgumentError(f"save: {type(obj).__name__} cannot be saved{f' (at {name!r})' if name else ''}",
                        hint="save takes modules, dicts, lists, tensors, numbers, strings and None" + (
                            "; here, x.state_dict()" if hasattr(obj, "state_dict") else ""))


def _collect(x: Any, name: str, tensors: dict[str, Any], leaf: Callable[[Any], Any]) -> str:
    if x.dtype in (np.dtype(np.complex128), complex128):
        raise DTypeError(f"save: {name!r} is complex128, which safetensors files do not hold",
                         hint="save its real and imaginary parts")
    while name in tensors or name == tensor_file.METADATA:
        name += "_"
    tensors[name] = leaf(x)
    return name


def _whole(x: Any) -> np.ndarray:
    array = np.asarray(x)
    return np.ascontiguousarray(array).reshape(array.shape)


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
