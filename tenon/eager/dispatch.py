"""What an operator call on tensors means: evaluate it at once, and record it where a gradient may be wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tenon.autocast import autocasting, holds_recast, recast
from tenon.autodiff import call
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.eager.call_cache import remembered_call
from tenon.eager.call_table import PLAN, cached_calls, describe_attrs
from tenon.eager.compiled_ops import heavy_program, run_whole
from tenon.eager.errstate import quiet
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.recipes import recipe_of
from tenon.eager.tape import TapeNode, linked, saved
from tenon.eager.ufunc_fast_path import give_quick_calls
from tenon.errors import ADDRESSABLE, OF_NUMPY, TenonError, out_of_memory, step_error
from tenon.graph.build import agree, canonical_attrs, expansion, literal
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.interpret import as_type, evaluate_op
from tenon.graph.ir import Graph, Literal
from tenon.graph.kernels import KERNELS, kernel_for
from tenon.graph.op import Op, set_call_cache, set_default_interpreter
from tenon.locks import unforked
from tenon.ops import shape as shape_ops
from tenon.ops.loops import while_gradient
from tenon.ops.placing import MOVES
from tenon.program.backend_interface import Executable
from tenon.records import dataclass
from tenon.tensor import Tensor, tensor
from tenon.tensor_state import Elsewhere, Payload, recorder
from tenon.types import DType, TensorType, no_operand


class TensorInterpreter:
    """An operator call on tensors: evaluate it, and record it on the tape where a gradient may be wanted."""

    records = False

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """The output payloads of inputs that are Tensors, Literals or None, of agreed types."""
        raise NotImplementedError

    def lift(self, x: Any) -> Any:
        """Arrays become tensors; numbers, literals and None stay."""
        if x is None or isinstance(x, (Tensor, Literal, SymbolicDim, bool, int, float, complex)):
            return x
        if isinstance(x, (np.ndarray, np.generic)):
            return tensor(x)
        raise no_operand(x)

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The output tensors of `op`."""
        lifted = tuple(map(self.lift, inputs))
        record = is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in lifted)
        pairs, narrow = agree_recast(op, lifted), autocasting()
        if op.expand is not None:
            types = tuple(None if x is None or d is None else TensorType(d, x.shape if isinstance(x, Tensor) else ())
                          for x, d in pairs)
            opens = op.vjp is None if record else self.opens(op)
            if opens or (narrow is not None and holds_recast(op, types, attrs)):
                agreed = tuple(self.cast(x, d) for x, d in pairs) if op.promote else lifted
                return op.expand(*agreed, **canonical_attrs(op, types, attrs))
        agreed = tuple(self.cast(x, d) for x, d in pairs)
        types = tuple(None if x is None else x.type for x in agreed)
        canonical = canonical_attrs(op, types, attrs)
        payloads = self.evaluate(op, self.without_gradient(agreed) if record else agreed, canonical)
        node = TapeNode(op, tuple(map(saved, agreed)), canonical, payloads) if record else None
        outputs = tuple(linked(p, node, k) if node else Tensor(p) for k, p in enumerate(payloads))
        return outputs if len(outputs) > 1 else outputs[0]

    def opens(self, op: Op) -> bool:
        """Whether a composite is run by its definition where no gradient is recorded."""
        return True

    def without_gradient(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of a recorded call, those cut off from the tape marked so where a graph is recorded too."""
        return inputs

    def cast(self, x: Any, dtype: DType | None) -> Any:
        """`x` as a Tensor or Literal of this type."""
        if x is None or dtype is None:
            return None
        if isinstance(x, Tensor):
            x = x if x.weak is None else x.detach()
            return x if x.dtype is dtype else shape_ops.cast(x, dtype=dtype)
        if isinstance(x, SymbolicDim):
            return shape_ops.dimension(size=x, dtype=dtype)
        return literal(x.value if isinstance(x, Literal) else x, dtype)


def agree_recast(op: Op, inputs: tuple[Any, ...]) -> list[tuple[Any, DType | None]]:
    """The inputs with the types that they are cast to, by the operator and by `autocast`."""
    pairs, narrow = agree(op, inputs), autocasting()
    if not op.autocast or narrow is None:
        return pairs
    return list(zip(inputs, recast(op, [dtype for _, dtype in pairs], narrow), strict=True))


@dataclass(frozen=True, eq=False)
class CallPlan:
    """All that calls with the same types and attributes have in common."""

    run: Callable[..., Any]                 # arrays -> what the reference returns
    attrs: Mapping[str, Any]                # in their one IR form
    types: tuple[TensorType, ...]           # of the outputs
    numbers: tuple[DType | None, ...]       # the types of the inputs where there are numbers among them
    several: bool                           # outputs
    dtype: np.dtype[Any]                    # of the first output


NUMBERS = frozenset((bool, int, float, complex, type(None)))
ARRAYS = (np.ndarray, type(None))


class Eager(TensorInterpreter):
    """Evaluate at once on NumPy arrays.

    The first call with these types and attributes infers and checks; those that follow find its plan.  Where NumPy
    raises, or where there is no plan, the call is made in full, which says what is wrong.
    """

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The output tensors of `op`."""
        arrays: list[Any] = []
        special = KERNELS or recorder.get() is not None \
            or ((op.autocast or op.expand is not None) and autocasting() is not None)
        key = None if special else _key(op, inputs, attrs, arrays)
        plan = None if key is None else cached_calls.get(key)
        if key is None or type(plan) is not CallPlan:
            if key is None and (away := elsewhere(inputs)) is not None:
                return away.interpreter.apply(op, inputs, attrs)
            result = super().apply(op, inputs, attrs)       # before the plan is made, since it may raise
            if key is not None:
                recorded = key[-1]
                cached_calls.note(key, 1, lambda: _plan(op, arrays, attrs, recorded))
            return result
        agreed = inputs
        try:
            if plan.numbers:
                agreed = tuple([_number(x, d) if type(x) in NUMBERS else x
                                for x, d in zip(inputs, plan.numbers, strict=True)])
                arrays = [np.asarray(x.value, x.type.dtype.numpy) if type(x) is Literal else a
                          for a, x in zip(arrays, agreed, strict=True)]
            out = plan.run(*arrays)
        except OF_NUMPY:
            return super().apply(op, inputs, attrs)
        record = key[-1]
        if plan.several:
            payloads = tuple(map(as_type, out, plan.types))
            node = TapeNode(op, tuple(map(saved, agreed)), plan.attrs, payloads) if record else None
            return tuple(linked(p, node, k) if node else Tensor(p) for k, p in enumerate(payloads))
        payload = out if type(out) is np.ndarray and out.dtype is plan.dtype else as_type(out, plan.types[0])
        if record:
            return linked(payload, TapeNode(op, tuple(map(saved, agreed)), plan.attrs, (payload,)), 0)
        return Tensor(payload)

    def opens(self, op: Op) -> bool:
        """Composites with a reference of ours stay whole, those that may be worth machine code too, and what needs
        the run of one graph."""
        whole = op.numpy_work is not None or op is while_gradient
        return not whole and (op.ref is None or not op.is_own or "body" in op.signature.attrs)

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        away = elsewhere(inputs)
        if away is not None or op in MOVES:
            return (_movers[-1] if away is None else away.interpreter).evaluate(op, inputs, attrs)
        return self.on_arrays(op, inputs, attrs)

    def on_arrays(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
        """The outputs, wherever the elements of the inputs are."""
        arrays: list[Any] = [None if x is None else np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal)
                  else x._concrete(op.name) for x in inputs]
        if op is call:
            return tuple(program_of(attrs["body"]).run(arrays))
        given = [None if x is None else x.type for x in inputs]
        inferred = op.type(*given, **attrs)
        types = inferred if isinstance(inferred, tuple) else (inferred,)
        try:
            kernel = kernel_for(op, given, attrs)
            if kernel is None and not any(isinstance(x, Literal) for x in inputs) \
                    and (program := heavy_program(op, given, types, attrs)) is not None:
                return tuple(program.run([a for a in arrays if a is not None]))
            return evaluate_op(op, arrays, attrs, types, kernel)
        except TenonError:
            raise
        except Exception as error:
            if (too_large := _too_large(op, types, error)) is not None:
                raise too_large from None
            raise step_error(error, op.name) from error


_movers: list[TensorInterpreter] = []


def set_mover(mover: TensorInterpreter) -> None:
    """Let `mover` evaluate what brings tensors in plain memory to other devices."""
    _movers.append(mover)


def elsewhere(inputs: Sequence[Any]) -> Elsewhere | None:
    """The payload of the first tensor among the inputs that has no array."""
    for x in inputs:
        if isinstance(x, Tensor) and isinstance(payload := x.payload, Elsewhere):
            return payload
    return None


def _key(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], arrays: list[Any]) -> tuple[Any, ...] | None:
    """What a plan is found by: operator, types, attributes, and whether the call is recorded; None where it has none.

    Fills `arrays` with the inputs, tensors as arrays.
    """
    record, recording = False, is_grad_enabled()
    key: list[Any] = [PLAN, op]
    for x in inputs:
        if isinstance(x, Tensor):
            state = x.own
            array = state.payload
            if type(array) is not np.ndarray:
                return None
            key += array.dtype, array.shape
            record = record or (recording and state.requires_grad)
            arrays.append(array)
        else:
            kind = type(x)
            if kind not in NUMBERS and kind is not Literal:
                return None
            key.append(x.type.dtype if kind is Literal else kind)
            arrays.append(x)
    if not describe_attrs(attrs, key):
        return None
    key.append(record)
    return tuple(key)


def _plan(op: Op, arrays: Sequence[Any], attrs: dict[str, Any], record: bool) -> CallPlan | None:
    """The plan for calls like this one, which went well; None where every call is to be made in full."""
    composite = op.expand is not None
    whole = not composite or (op.vjp is not None if record else op.is_own)
    if op is call or op is while_gradient or op in MOVES or op.effect or op.data_dependent or not whole:
        return None
    given = [x.dtype if isinstance(x, np.ndarray) else None for x in arrays]
    dtypes = [dtype for _, dtype in agree(op, tuple(Tensor(x) if isinstance(x, np.ndarray) else x for x in arrays))]
    if any(g is not None and (d is None or d.numpy != g) for g, d in zip(given, dtypes, strict=True)):
        return None                         # an input is cast, which is a call of its own
    types = tuple(None if d is None else TensorType(d, x.shape if isinstance(x, np.ndarray) else ())
                  for x, d in zip(arrays, dtypes, strict=True))
    canonical = canonical_attrs(op, types, attrs)
    inferred = op.type(*types, **canonical)
    outputs = inferred if isinstance(inferred, tuple) else (inferred,)
    if composite and op.ref is None and op.promote is None and any(not isinstance(x, ARRAYS) for x in arrays):
        return None                         # what numbers mean is up to the definition
    run = _runner(op, types, outputs, canonical, all(isinstance(x, ARRAYS) for x in arrays))
    if run is None and not record:
        return None
    run = run or partial(_run_reference, op, canonical, outputs)
    return CallPlan(run, canonical, outputs, () if None not in given else tuple(dtypes), len(outputs) > 1,
                outputs[0].dtype.numpy)


def _runner(op: Op, types: Sequence[TensorType | None], outputs: Sequence[TensorType], attrs: Mapping[str, Any],
            on_arrays: bool = True) -> Callable[..., Any] | None:
    """What computes an operator on arrays of these types; None for a composite that has no recipe."""
    program = heavy_program(op, types, outputs, attrs) if on_arrays else None
    if program is not None:
        return partial(run_whole, program)
    narrow = any(t is not None and t.dtype.bits == 16 for t in types)
    run = None if narrow else _direct(op, attrs)
    if run is None and op.expand is not None and op.ref is None:
        recipe = recipe_of(expansion(op, tuple(types), attrs))
        return None if recipe is None else partial(run_whole, recipe)
    return run or partial(_run_reference, op, attrs, outputs)


def _direct(op: Op, attrs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The reference alone, where it is NumPy's or ours, so that it only calls NumPy."""
    ref = op.ref
    if isinstance(ref, np.ufunc) or str(getattr(ref, "__module__", "")).startswith("tenon.ops."):
        return None if ref is None else partial(_run_quietly, ref, **attrs)
    return None


def _number(x: Any, dtype: DType | None) -> Any:
    """A number as a literal; those that equal another one with other bits (0.0, -0.0) are not remembered."""
    if x is None or dtype is None:
        return None
    return _literal(x, dtype) if x and type(x) is not complex else literal(x, dtype)


_literal = lru_cache(maxsize=1024, typed=True)(literal)


def _run_quietly(function: Callable[..., Any], *arrays: Any, **attrs: Any) -> Any:
    return quiet.run(function, *arrays, **attrs)


def _run_reference(op: Op, attrs: Mapping[str, Any], types: Sequence[TensorType], *arrays: Any) -> Any:
    half = any(x is not None and x.dtype.itemsize == 2 for x in arrays)     # is computed in float32
    if op.ref is None or half or not op.is_own:
        out = evaluate_op(op, arrays, attrs, types)
        return out if len(types) > 1 else out[0]
    with np.errstate(all="ignore"):
        return op.ref(*arrays, **attrs)


def _too_large(op: Op, types: Sequence[TensorType], error: Exception) -> TenonError | None:
    """The error of an output that does not fit memory, when that is what NumPy says."""
    if not isinstance(error, (MemoryError, ValueError)):
        return None
    largest = max(types, key=lambda type: int(type.size))
    needed = int(largest.size) * largest.dtype.itemsize
    no_memory = isinstance(error, MemoryError) or needed > ADDRESSABLE
    return out_of_memory(op.name, largest, needed) if no_memory else None


@once_a_graph
def program_of(graph: Graph) -> Executable:
    """The compiled form of a graph, made once."""
    with unforked:
        from tenon.pipeline import compile  # local: the compiler is loaded when something is first compiled

    return compile(graph)


eager = Eager()
give_quick_calls()
set_call_cache(remembered_call)
set_default_interpreter(eager)
