"""A file -> what is in it, in lines: functions, what they take and change, tensors, versions (`tenon info`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tenon import tensor_file
from tenon.serialization.bind_arguments import signature
from tenon.serialization.loaded_model import LoadedModel
from tenon.serialization.save_load import load
from tenon.serialization.saved_function import Function
from tenon.serialization.write_model import PREFIX, VERSION, WRITER
from tenon.types import TensorType, as_dtype

MAX_TEXT_CHARACTERS = 200  # characters of a text among the metadata


def describe(path: str | os.PathLike[str]) -> Iterator[str]:
    """What `tenon info` prints of a file; raises as `load` does."""
    model = load(path)
    arrays, metadata = tensor_file.read(path)
    yield f"{os.fspath(path)}: {os.path.getsize(path):,} bytes, {len(arrays)} tensors"
    if isinstance(model, LoadedModel):
        yield f"format {metadata[VERSION]}, written by Tenon {metadata.get(WRITER, '?')}"
        for function in model.model.functions.values():
            yield from _function(function)
    yield from (f"metadata {name}: {text[:MAX_TEXT_CHARACTERS]}" for name, text in metadata.items()
                if not name.startswith(PREFIX) and name != PREFIX[:-1])
    yield from _tensors(arrays, model)


def _function(function: Function) -> Iterator[str]:
    first = function.variants[0]
    results = ", ".join(str(r.type) for r in first.graph.results)
    yield f"function {function.name}({signature(function)}): {len(function.variants)} graphs"
    yield f"  results {results or 'none'}; {len(first.graph.nodes)} nodes"
    changed = sum(1 for _ in first.assigned) + sum(1 for _ in first.gradients)
    if changed:
        yield f"  changes {changed} tensors in every call"


def _tensors(arrays: Mapping[str, np.ndarray], model: Any) -> Iterator[str]:
    trained = {name for name, p in model.named_parameters() if p.requires_grad} \
        if isinstance(model, LoadedModel) else set()
    width = max(map(len, arrays), default=0)
    for name, array in arrays.items():
        type = TensorType(as_dtype(array.dtype), array.shape)
        yield f"tensor {name:{width}}  {type}{'  trained' if name in trained else ''}"
