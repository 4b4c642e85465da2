"""Gradients of tensors that have been computed, for those who come from PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.autodiff import backward
from tenon.eager.backward_arrays import descend, is_plain
from tenon.eager.grad_mode import differentiating
from tenon.eager.tape import TapeNode, tape_of
from tenon.errors import ArgumentError, GradientError, ShapeError
from tenon.ops.creation import ones_like, zeros_like
from tenon.ops.joining_and_axes import stack
from tenon.tensor import Tensor, shown
from tenon.tensor_state import recorder
from tenon.transforms.autograd_function import AutogradFunction as Function
from tenon.transforms.autograd_function import FunctionContext
from tenon.transforms.differentiate import depending

__all__ = ["Function", "FunctionContext", "grad"]

SMALL_ARRAY_ELEMENTS = 4096  # elements of an array, which NumPy goes through while Python calls an operator


def grad(outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], grad_outputs: Any = None,
         retain_graph: bool | None = None, create_graph: bool = False,
         only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> tuple[Tensor | None, ...]:
    """The gradient of the sum of `outputs`, weighted with `grad_outputs`, with respect to each of `inputs`.

    Unlike `backward()` it leaves every `.grad` alone (`only_inputs` says so), and inputs need not be leaves.
    `create_graph` records the computation, for higher derivatives; without `retain_graph` (default: `create_graph`) the
    tape is released.  Raises GradientError for an input that the outputs do not depend on, unless `allow_unused`, which
    gives None for it, or `materialize_grads`, which gives zeros.  With `is_grads_batched` the weights have a first
    axis, and so have the gradients: one of each.  The hooks of leaves see theirs, and may replace them.

    >>> x = tn.tensor(3.0, requires_grad=True)
    >>> slope, = tn.autograd.grad(x * x, x, create_graph=True)
    >>> tn.autograd.grad(slope, x)
    (tensor(2.),)
    """
    ends = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    starts = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    weights = [None] * len(ends) if grad_outputs is None else \
        list(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else [grad_outputs]
    if len(weights) != len(ends):
        raise ArgumentError(f"autograd.grad: {len(weights)} grad_outputs were given for {len(ends)} outputs")
    for what, tensors in (("output", ends), ("input", starts)):
        for k, x in enumerate(tensors):
            if not x.requires_grad:
                raise GradientError(f"autograd.grad: {what} {k} does not require a gradient",
                                    hint="pass requires_grad=True where the inputs are made")
    if is_grads_batched:
        return _batched(ends, starts, weights, allow_unused, retain_graph, create_graph, materialize_grads)
    with differentiating(create_graph):
        tape = tape_of(ends)
        _refuse_earlier(tape, ends, starts)
        seeds = list(map(_seed, ends, weights))
        plain = None if create_graph else _on_arrays(tape, ends, seeds, starts)
        found = tuple(map(shown, starts, _by_operators(tape, ends, seeds, starts) if plain is None else plain))
    if not (create_graph if retain_graph is None else retain_graph):
        TapeNode.release_all(tape)
    if materialize_grads:
        return tuple(zeros_like(x) if g is None else g for g, x in zip(found, starts, strict=True))
    if not allow_unused and any(g is None for g in found):
        unused = next(k for k, g in enumerate(found) if g is None)
        raise GradientError(f"autograd.grad: the outputs do not depend on input {unused}",
                            hint="allow_unused=True gives None for it")
    return found


def _batched(ends: list[Tensor], starts: list[Tensor], weights: list[Any], allow_unused: bool | None,
             retain: bool | None, create_graph: bool, zeros: bool) -> tuple[Tensor | None, ...]:
    """The gradients for each weighting of a batch, stacked."""
    count = next(w.shape[0] for w in weights if w is not None)
    rows = []
    for k in range(count):
        row = [w if w is None else w[k] for w in weights]
        keep = k + 1 < count or (create_graph if retain is None else retain)
        rows.append(grad(ends, starts, row, keep, create_graph, True, allow_unused, False, zeros))
    return tuple(None if column[0] is None else stack(column) for column in zip(*rows, strict=True))


def _refuse_earlier(tape: Sequence[TapeNode], ends: Sequence[Tensor], starts: Sequence[Tensor]) -> None:
    """Stop a capture whose tape goes on outside of it: only what runs eagerly can follow that."""
    if (capture := recorder.get()) is None:
        return
    slots = [x.slot for x in starts]
    for x in (*ends, *(x for node in tape for x in node.inputs if isinstance(x, Tensor))):
        if isinstance(leaf := x.slot, Tensor) and not any(leaf is slot for slot in slots):
            capture.refuse_earlier(leaf)


def _by_operators(tape: Sequence[TapeNode], ends: Sequence[Tensor], seeds: Sequence[Tensor],
                  starts: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """The gradients of `starts`, computed by operator calls, which may be recorded; and of nothing else."""
    slots = [x.slot for x in starts]
    reached = depending(tape, slots)
    gradients: dict[Any, Any] = {}
    for end, seed in zip(ends, seeds, strict=True):
        gradients[end.slot] = gradients[end.slot] + seed if end.slot in gradients else seed
    backward(tape, gradients, lambda x: isinstance(x, Tensor) and x.slot in reached)
    return tuple(gradients.get(slot) for slot in slots)


def _on_arrays(tape: Sequence[TapeNode], ends: Sequence[Tensor], seeds: Sequence[Tensor],
               starts: Sequence[Tensor]) -> tuple[Tensor | None, ...] | None:
    """The same as `backward()` does it, which goes down to all leaves; None where that takes more, or is not to be.

    Where it would find gradients that nobody asks for, it is taken if arrays are so small that a call counts more.
    """
    if not is_plain(tape):
        return None
    slots = {x.slot for x in starts}
    if any(x.own.node is not None for x in starts) or any(
            x.slot not in slots for node in tape for x in node.inputs
            if isinstance(x, Tensor) and x.own.node is None and x.own.requires_grad):
        reached = depending(tape, slots)
        tape = [node for node in tape if any(isinstance(x, Tensor) and x.slot in reached for x in node.inputs)]
        arrays: list[Any] = [array for node in tape for array in node.payloads]
        if any(array.size > SMALL_ARRAY_ELEMENTS for array in arrays) or not {x.own.node
                                                                              for x in starts}.isdisjoint(tape):
            return None
    gradients = descend(tape, ends, [seed.own.payload for seed in seeds])      # type: ignore[misc]
    return tuple(gradients.get(_place(x)) for x in starts)


def _place(x: Tensor) -> Any:
    """Under what `descend` leaves the gradient of a tensor."""
    node = x.own.node
    return x.slot if node is None or len(node.payloads) != 1 else node


def _seed(end: Tensor, weight: Any) -> Tensor:
    if weight is None:
        if end.shape != ():
            raise GradientError(f"autograd.grad: an output is {end.type}, no scalar, and has no grad_outputs")
        ones: Tensor = ones_like(end)
        return ones
    if not isinstance(weight, Tensor) or weight.shape != end.shape:
        shown = weight.type if isinstance(weight, Tensor) else type(weight).__name__
        raise ShapeError(f"autograd.grad: grad_outputs {shown} do not fit the output {end.type}")
    return weight
