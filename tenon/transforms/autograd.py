"""`tn.autograd`: gradients of tensors that have been computed, for those who come from PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.autodiff import backward
from tenon.eager.recording import differentiating
from tenon.eager.tape import tape_of
from tenon.errors import ArgumentError, GradientError, ShapeError
from tenon.ops.creation import ones_like
from tenon.tensor import Tensor
from tenon.transforms.follow import depending


def grad(outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor], grad_outputs: Any = None,
         retain_graph: bool | None = None, create_graph: bool = False,
         allow_unused: bool = False) -> tuple[Tensor | None, ...]:
    """The gradient of the sum of `outputs`, weighted with `grad_outputs`, with respect to each of `inputs`.

    Unlike `backward()` it leaves every `.grad` alone, and inputs need not be leaves.  `create_graph` records the
    computation, for higher derivatives; without `retain_graph` (default: `create_graph`) the tape is released.  Raises
    GradientError for an input that the outputs do not depend on, unless `allow_unused`, which gives None for it.

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
    with differentiating(create_graph):
        tape = tape_of(ends)
        slots = [x.slot for x in starts]
        reached = depending(tape, slots)
        gradients: dict[Any, Any] = {}
        for end, weight in zip(ends, weights, strict=True):
            seed = _seed(end, weight)
            gradients[end.slot] = gradients[end.slot] + seed if end.slot in gradients else seed
        backward(tape, gradients, lambda x: isinstance(x, Tensor) and x.slot in reached)
    if not (create_graph if retain_graph is None else retain_graph):
        for node in tape:
            node.release()
    found = tuple(gradients.get(slot) for slot in slots)
    if not allow_unused and any(g is None for g in found):
        unused = next(k for k, g in enumerate(found) if g is None)
        raise GradientError(f"autograd.grad: the outputs do not depend on input {unused}",
                            hint="allow_unused=True gives None for it")
    return found


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
