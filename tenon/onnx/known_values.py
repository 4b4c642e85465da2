"""What stands for an ONNX value while a model is evaluated.

A value is one of: `Known`, an array that does not depend on the inputs' elements; a tensor; a list, for a sequence;
None, for an optional that is empty.  Arrays of types that Tenon lacks (text, float8, int4) are always `Known`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import tenon as tn
from tenon.capture.code_monitor import unwatched
from tenon.context_values import during
from tenon.errors import TenonError
from tenon.graph.op import innermost
from tenon.tensor_state import recorder
from tenon.types import DTYPES


class UnsupportedError(TenonError, NotImplementedError):
    """A model asks for something that Tenon does not do; the message names the operator, its opset and the node."""


class TooLargeError(TenonError, MemoryError):
    """A value that is larger than a value may be."""


MAX_FOLDED = 1 << 24        # bytes of a result that is computed before a run
most_bytes: ContextVar[int] = ContextVar("most_bytes", default=1 << 33)


def most_bytes_of(count: int) -> AbstractContextManager[Any]:
    """A block in which values have no more bytes than these."""
    return during(most_bytes, count)


def at_most(count: int) -> AbstractContextManager[None]:
    """The same where a smaller limit may hold already."""
    return most_bytes_of(min(count, most_bytes.get()))


def check_bytes(shape: Sequence[int], itemsize: int, label: str) -> None:
    """Raise TooLargeError before memory for such a value is taken."""
    if math.prod(shape) * itemsize > most_bytes.get():
        raise TooLargeError(f"{label}: a value of sizes {list(shape)} has more than {most_bytes.get():,} bytes",
                            hint="tn.onnx.load(..., memory_limit=...) allows more")


class Known:
    """An array whose elements are known, and the tensor with these elements, made when it is first asked for."""

    __slots__ = ("_tensor", "array")

    def __init__(self, array: Any):
        self.array = np.asarray(array)
        self._tensor: tn.Tensor | None = None

    @property
    def is_regular(self) -> bool:
        """Whether Tenon has the type of its elements."""
        return self.array.dtype in REGULAR

    def tensor(self) -> tn.Tensor:
        """The same as a tensor; it is one object, so that a compiled program packs a weight once."""
        if self._tensor is None:
            if not self.is_regular:
                raise UnsupportedError(f"there are no tensors of {type_name(self.array)}")
            with outside():
                self._tensor = tn.tensor(np.ascontiguousarray(self.array).reshape(self.array.shape))
        return self._tensor


REGULAR = frozenset(dtype.numpy for dtype in DTYPES)


@contextmanager
def outside() -> Iterator[None]:
    """Compute at once in this block, also within a capture: what is known takes no part in the graph."""
    with unwatched():
        first, second = innermost.set(None), recorder.set(None)
        try:
            yield
        finally:
            recorder.reset(second)
            innermost.reset(first)


def host(x: Any) -> Any:
    """The elements of a value.  Where a graph is captured, and only a run would tell them, the capture ends here."""
    if isinstance(x, Known):
        return x.array
    if isinstance(x, tn.Tensor):
        return x.numpy()
    return x


def ints(x: Any) -> list[int]:
    """The elements as whole numbers of Python."""
    return [int(k) for k in np.asarray(host(x)).reshape(-1)]


def as_tensor(x: Any) -> Any:
    """A value as what operators of Tenon take."""
    return x.tensor() if isinstance(x, Known) else x


def as_value(x: Any) -> Any:
    """What an operator returned, as a value."""
    if isinstance(x, (np.ndarray, np.generic)):
        return Known(x)
    return [as_value(y) for y in x] if isinstance(x, list) else x


def is_known(x: Any) -> bool:
    """Whether the elements of a value are known."""
    return isinstance(x, Known) or x is None or (isinstance(x, list) and all(map(is_known, x)))


def known_bytes(x: Any) -> int:
    """How much memory a known value takes."""
    return sum(map(known_bytes, x)) if isinstance(x, list) else x.array.nbytes if isinstance(x, Known) else 0


def type_name(array: Any) -> str:
    """The name of an array's element type."""
    return "string" if array.dtype.kind in "OUS" else str(array.dtype)


def settled(x: Any) -> Any:
    """A value that was computed outside of the graph, as one that is known."""
    if isinstance(x, tn.Tensor):
        return Known(x.numpy())
    return [settled(y) for y in x] if isinstance(x, list) else x


def known_where_possible(function: Any, *args: Any) -> Any:
    """`function` of tensors, or None; what is known is computed at once."""
    if all(map(is_known, args)):
        try:
            with outside(), at_most(MAX_FOLDED):
                return settled(function(*args))
        except TooLargeError:
            pass
    return function(*args)


def moved(function: Any, arrays: Sequence[np.ndarray]) -> Any:
    """`function` of arrays of any type, which it only moves: it is given codes in the place of their elements."""
    first = arrays[0]
    if first.dtype.kind in "OUS":
        table, codes = np.unique(np.concatenate([x.astype(str).reshape(-1) for x in arrays]), return_inverse=True)
        stops = np.cumsum([x.size for x in arrays])[:-1]
        coded = [part.reshape(x.shape) for part, x in zip(np.split(codes, stops), arrays, strict=True)]
        return _decoded(function(*map(tn.tensor, coded)), lambda x: table[x].astype(object))
    words = np.dtype(f"u{first.dtype.itemsize}")
    return _decoded(function(*[tn.tensor(x.view(words)) for x in arrays]), lambda x: x.view(first.dtype))


def _decoded(found: Any, decode: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(_decoded(x, decode) for x in found)
    return [_decoded(x, decode) for x in found] if isinstance(found, list) else Known(decode(found.numpy()))
