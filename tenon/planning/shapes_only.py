"""Tensors without elements: what is made in `with shapes_only():` has a shape and a type, and takes no memory.

    with shapes_only():
        block = Block(GPT2Config(n_embd=25600, n_head=160))      # 8 billion parameters, 0 bytes
    graph = jit(step).capture(block, x).graph

Every element is the one zero of an array without strides, so whatever captures sees tensors as usual; running a graph
on them would be a mistake, and needs the memory that is saved here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenon.eager.dispatch import TensorInterpreter
from tenon.graph.op import Op, using
from tenon.tensor import Tensor
from tenon.tensor_state import Payload
from tenon.types import as_dtype


class ShapesOnly(TensorInterpreter):
    """The type of each result, without its elements."""

    def opens(self, op: Op) -> bool:
        return False

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        types = op.type(*(None if x is None else x.type for x in inputs), **attrs)
        return tuple(hollow(t.shape, t.dtype) for t in (types if isinstance(types, tuple) else (types,)))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Let operators give shapes and types alone, in this block, in this thread."""
    with using(ShapesOnly()):
        yield


def hollow(shape: Sequence[Any], dtype: Any = "float32") -> np.ndarray[Any, np.dtype[Any]]:
    """An array that takes no memory, and cannot be written to."""
    return np.broadcast_to(np.zeros((), as_dtype(dtype).numpy), tuple(shape))


def hollow_tensor(shape: Sequence[Any], dtype: Any = "float32") -> Tensor:
    """A tensor that takes no memory."""
    return Tensor(hollow(shape, dtype))
