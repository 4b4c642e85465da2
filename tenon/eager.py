"""What an operator call on tensors means: evaluate it at once, and record it where a gradient may be wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tenon.autodiff import call
from tenon.backends.base import Executable
from tenon.dims import SymbolicDim
from tenon.errors import ADDRESSABLE, DTypeError, TenonError, out_of_memory, step_error
from tenon.graph.build import agree, canonical_attrs, literal
from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Graph, Literal
from tenon.graph.kernels import kernel_for
from tenon.graph.op import Op, set_default_interpreter
from tenon.ops import shape as shape_ops
from tenon.recording import is_grad_enabled
from tenon.state import Payload
from tenon.tape import TapeNode, linked, saved
from tenon.tensor import Tensor, tensor
from tenon.types import DType, TensorType


class TensorInterpreter:
    """An operator call on tensors: evaluate it, and record it on the tape where a gradient may be wanted."""

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """The output payloads of inputs that are Tensors, Literals or None, of agreed types."""
        raise NotImplementedError

    def lift(self, x: Any) -> Any:
        """Arrays become tensors; numbers, literals and None stay."""
        if x is None or isinstance(x, (Tensor, Literal, SymbolicDim, bool, int, float, complex)):
            return x
        if isinstance(x, (np.ndarray, np.generic)):
            return tensor(x)
        raise DTypeError(f"expected a tensor, an array or a number, not {type(x).__name__}")

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The output tensors of `op`."""
        lifted = tuple(map(self.lift, inputs))
        record = is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in lifted)
        pairs = agree(op, lifted)
        if op.expand is not None and (op.vjp is None if record else self.opens(op)):
            types = tuple(None if x is None or d is None else TensorType(d, x.shape if isinstance(x, Tensor) else ())
                          for x, d in pairs)
            agreed = tuple(self.cast(x, d) for x, d in pairs) if op.promote else lifted
            return op.expand(*agreed, **canonical_attrs(op, types, attrs))
        agreed = tuple(self.cast(x, d) for x, d in pairs)
        types = tuple(None if x is None else x.type for x in agreed)
        canonical = canonical_attrs(op, types, attrs)
        payloads = self.evaluate(op, agreed, canonical)
        node = TapeNode(op, tuple(map(saved, agreed)), canonical, payloads) if record else None
        outputs = tuple(linked(p, node, k) if node else Tensor(p) for k, p in enumerate(payloads))
        return outputs if len(outputs) > 1 else outputs[0]

    def opens(self, op: Op) -> bool:
        """Whether a composite is run by its definition where no gradient is recorded."""
        return True

    def cast(self, x: Any, dtype: DType | None) -> Any:
        """`x` as a Tensor or Literal of this type."""
        if x is None or dtype is None:
            return None
        if isinstance(x, Tensor):
            return x if x.dtype is dtype else shape_ops.cast(x, dtype=dtype)
        if isinstance(x, SymbolicDim):
            return shape_ops.dimension(size=x, dtype=dtype)
        return literal(x.value if isinstance(x, Literal) else x, dtype)


class Eager(TensorInterpreter):
    """Evaluate at once on NumPy arrays."""

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        arrays: list[Any] = [None if x is None else np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal)
                  else x._concrete(op.name) for x in inputs]
        if op is call:
            return tuple(program_of(attrs["body"]).run(arrays))
        given = [None if x is None else x.type for x in inputs]
        inferred = op.type(*given, **attrs)
        types = inferred if isinstance(inferred, tuple) else (inferred,)
        try:
            return evaluate_op(op, arrays, attrs, types, kernel_for(op, given, attrs))
        except TenonError:
            raise
        except Exception as error:
            if (too_large := _too_large(op, types, error)) is not None:
                raise too_large from None
            raise step_error(error, op.name) from error


def _too_large(op: Op, types: Sequence[TensorType], error: Exception) -> TenonError | None:
    """The error of an output that does not fit memory, when that is what NumPy says."""
    if not isinstance(error, (MemoryError, ValueError)):
        return None
    largest = max(types, key=lambda type: int(type.size))
    needed = int(largest.size) * largest.dtype.itemsize
    no_memory = isinstance(error, MemoryError) or needed > ADDRESSABLE
    return out_of_memory(op.name, largest, needed) if no_memory else None


@lru_cache(maxsize=1024)
def program_of(graph: Graph) -> Executable:
    """The compiled form of a graph, made once."""
    from tenon.pipeline import compile  # local: the compiler is loaded when something is first compiled

    return compile(graph)


eager = Eager()
set_default_interpreter(eager)
