"""A saved function, and files with its arguments -> its results.  `tenon run` does this.

Inputs are `.npy` files, in the order of the arguments or by name (`x=x.npy`), or numbers (`n=3`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon import tensor_file
from tenon.capture.pytree import flatten
from tenon.errors import ArgumentError
from tenon.serialization.bind_arguments import signature
from tenon.serialization.loaded_model import LoadedFunction, LoadedModel
from tenon.serialization.save_load import load
from tenon.serialization.saved_function import Function
from tenon.tensor import Tensor
from tenon.types import TensorType


def function_of(path: str, name: str | None = None) -> LoadedFunction:
    """A function of a file, the first where none is named; raises ArgumentError where there is none."""
    model = load(path)
    if not isinstance(model, LoadedModel):
        raise ArgumentError(f"{path} holds tensors, and no function", hint="tn.save(path, function, inputs) writes one")
    functions: dict[str, LoadedFunction] = model.functions
    if name is not None and name not in functions:
        raise ArgumentError(f"{path} has no function {name!r}", hint=f"there are {', '.join(functions)}")
    return functions[name] if name is not None else next(iter(functions.values()))


def run_file(path: str, inputs: Sequence[str], name: str | None = None) -> dict[str, Any]:
    """The results of a function by where they stand in what it returns: tensors and other values."""
    loaded = function_of(path, name)
    args, keywords = loaded.function.structure.build(_leaves(loaded.function, inputs))
    leaves, structure = flatten(loaded(*args, **keywords))
    several = structure.kind is not None
    return {f"result_{k}" if several else "result": x.detach() if isinstance(x, Tensor) else x
            for k, x in enumerate(leaves)}


def write_results(path: str, results: dict[str, Any]) -> None:
    """Write the tensors among them: one to a `.npy` file, any number to a safetensors file."""
    arrays = {key: np.ascontiguousarray(x.numpy()) for key, x in results.items() if isinstance(x, Tensor)}
    if os.path.splitext(path)[1] != ".npy":
        tensor_file.write(path, arrays, {})
    elif len(arrays) == 1:
        np.save(path, next(iter(arrays.values())), allow_pickle=False)
    else:
        raise ArgumentError(f"there are {len(arrays)} tensors, and a .npy file holds one",
                            hint="name a .safetensors file")


def _leaves(function: Function, inputs: Sequence[str]) -> list[Any]:
    """The leaves of the arguments; raises ArgumentError where one is missing, or there are too many."""
    types = dict(zip((k for k in range(len(function.arguments)) if k not in function.values),
                     function.variants[0].types, strict=True))
    found = dict(function.values)
    waiting = [k for k in types if not any(text.partition("=")[0] == function.arguments[k] for text in inputs)]
    for text in inputs:
        named, equals, value = text.partition("=")
        if equals and named in function.arguments:
            k = function.arguments.index(named)
        elif waiting:
            k, value = waiting.pop(0), text
        else:
            raise ArgumentError(f"{function.name} takes ({signature(function)}), and there is an input {text!r} more")
        found[k] = _value(value, types[k]) if k in types else found[k]
    if missing := [function.arguments[k] for k in types if k not in found]:
        raise ArgumentError(f"{function.name} takes ({signature(function)}), and there is no input for {missing[0]}",
                            hint=f"--input {missing[0]}=FILE.npy")
    return [found[k] for k in range(len(function.arguments))]


def _value(text: str, type: TensorType) -> Any:
    """The array of a file, or a number."""
    if not os.path.isfile(text):
        try:
            number = float(text)
        except ValueError:
            raise ArgumentError(f"there is no file {text!r}") from None
        return int(text) if type.dtype.kind in "iu" and math.isfinite(number) and number.is_integer() else number
    try:
        array = np.load(text, mmap_mode=None, allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError, MemoryError) as error:
        raise ArgumentError(f"{text} is no .npy file that holds numbers: {error}") from None
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{text} holds several arrays, and one was expected", hint="give .npy files")
    raw = array.dtype.kind == "V" and array.dtype.itemsize == type.dtype.itemsize
    return array.view(type.dtype.numpy) if raw else array       # NumPy has no name for bfloat16
