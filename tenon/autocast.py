"""`tn.autocast`: products in a narrow floating type, sums in float32, without casts in the user's code.

An operator says by its field `autocast` what it is: "narrow" ones (matmul, convolutions, attention) are worth the
narrow type, "wide" ones (reductions, softmax, norms, losses) lose digits in it.  All others take what comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar, Token
from typing import Any

from tenon.context_values import during
from tenon.errors import ArgumentError
from tenon.graph.build import canonical_attrs, expansion
from tenon.graph.op import Op
from tenon.types import DType, TensorType, as_dtype, bfloat16, float16, float32

NARROW = (bfloat16, float16)
OF_DEVICES = ("cpu", "cuda", "mps", "xpu")      # what PyTorch's programs name first
narrowing: ContextVar[DType | None] = ContextVar("narrow", default=None)

autocasting = narrowing.get       # the narrow type in force; None outside of `autocast`


class autocast(ContextDecorator):
    """A context (or decorator) in which matrix products and convolutions are computed in `dtype`, and sums in float32.

    Inputs of float32, float16 and bfloat16 are cast, gradients flow back through the casts, so parameters and their
    gradients stay float32.  Gradients are computed in the types of the forward pass; with bfloat16, whose range is
    that of float32, the loss needs no scaling.  `enabled=False` switches it off inside.

    The first argument is the type, or a device as PyTorch has it: `autocast("cuda", tn.float16)`; all are the CPU's.
    Raises ArgumentError unless `dtype` is bfloat16 or float16.

    >>> x = tn.ones((2, 3))
    >>> with tn.autocast():
    ...     y = x @ x.T
    >>> y.dtype, (y + x.sum()).dtype
    (tenon.bfloat16, tenon.float32)
    """

    def __init__(self, device_type: Any = "cpu", dtype: Any = None, enabled: bool = True, cache_enabled: Any = None):
        if dtype is None and str(device_type).split(":")[0] not in OF_DEVICES:
            dtype = device_type
        chosen = bfloat16 if dtype is None else as_dtype(dtype)
        if chosen not in NARROW:
            raise ArgumentError(f"autocast: dtype={chosen.name}, expected bfloat16 or float16")
        self.dtype = chosen if enabled else None
        self._tokens: list[Token[DType | None]] = []

    def __enter__(self) -> autocast:
        self._tokens.append(narrowing.set(self.dtype))
        return self

    def __exit__(self, *_: object) -> None:
        narrowing.reset(self._tokens.pop())

    def _recreate_cm(self) -> autocast:
        """For a decorated function, which may run in several threads at once."""
        return type(self)(dtype=self.dtype, enabled=self.dtype is not None)


def autocast_is(narrow: DType | None) -> AbstractContextManager[Any]:
    """The block under this narrow type, or none."""
    return during(narrowing, narrow)


def is_autocast_enabled(device_type: Any = None) -> bool:
    """Whether `tn.autocast` is in force here."""
    return autocasting() is not None


def get_autocast_dtype(device_type: Any = None) -> DType | None:
    """The narrow type of the `tn.autocast` in force; None outside of it."""
    return autocasting()


def recast(op: Op, dtypes: Sequence[DType | None], narrow: DType) -> tuple[DType | None, ...]:
    """The types of an operator's inputs under `autocast`, from those that they agreed on."""
    if op.autocast == "narrow":
        return tuple(narrow if dtype is float32 or dtype in NARROW else dtype for dtype in dtypes)
    if op.autocast == "wide":
        return tuple(float32 if dtype in NARROW else dtype for dtype in dtypes)
    return tuple(dtypes)


def holds_recast(op: Op, types: tuple[TensorType | None, ...], attrs: dict[str, Any]) -> bool:
    """Whether a composite that takes what comes has operators in its definition that `recast` says something about."""
    if op.autocast:
        return False
    body = expansion(op, types, canonical_attrs(op, types, attrs))
    return any(node.op.autocast or (node.op.expand is not None and holds_recast(
        node.op, tuple(None if x is None else x.type for x in node.inputs), dict(node.attrs))) for node in body.nodes)
