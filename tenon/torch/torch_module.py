"""A function of Tenon -> a module of PyTorch: its parameters are PyTorch's, and gradients flow through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tenon.capture.pytree import Structure, flatten
from tenon.eager.grad_mode import enable_grad, no_grad
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.tensor import Tensor
from tenon.torch.aten_call import DTYPES
from tenon.torch.memory_order import in_the_order_of_axes
from tenon.torch.torch_tensors import as_tensor, shared
from tenon.transforms.autograd import grad

OF_TORCH = {ours: theirs for theirs, ours in DTYPES.items()}


def to_module(function: Callable[..., Any]) -> torch.nn.Module:
    """A function or module of Tenon as a module of PyTorch, which takes and gives PyTorch's tensors.

    The parameters of a module become parameters of the new one, and follow them; its buffers stay Tenon's.  Tensors
    may stand in tuples, lists and dicts.

    >>> import torch
    >>> layer = tn.torch.to_module(nn.Linear(3, 2))
    >>> x = torch.ones(4, 3, requires_grad=True)
    >>> layer(x).sum().backward()
    >>> x.grad.shape, layer.weight.grad.shape
    (torch.Size([4, 3]), torch.Size([2, 3]))
    """
    if not callable(function):
        raise ArgumentError(f"to_module takes a function or a module, not {type(function).__name__}")
    return Wrapped(function)


class Wrapped(torch.nn.Module):     # type: ignore[misc]    # nothing is known of PyTorch here
    """What `to_module` returns."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function, self.held = function, []
        named = dict(function.named_parameters()) if isinstance(function, Module) else {}
        for name, parameter in named.items():
            made = torch.nn.Parameter(tensor_of(parameter).clone(), requires_grad=parameter.requires_grad)
            self.register_parameter(name.replace(".", "_"), made)
            self.held.append((parameter, name.replace(".", "_")))

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """The function's results as PyTorch's tensors."""
        leaves, structure = flatten((args, keywords))
        parameters = [getattr(self, name) for _, name in self.held]
        call = WrappedCall(self.function, [x for x, _ in self.held], leaves, structure)
        flat = Through.apply(call, *parameters, *[x for x in leaves if isinstance(x, torch.Tensor)])
        return call.returned(flat if isinstance(flat, tuple) else (flat,))

    def extra_repr(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


class WrappedCall:
    """One call of the function: tensors in, and what came out."""

    def __init__(self, function: Callable[..., Any], held: Sequence[Tensor], leaves: Sequence[Any],
                 structure: Structure):
        self.function, self.held, self.leaves, self.structure = function, held, leaves, structure
        self.results: list[Any] = []
        self.inputs: list[Tensor] = []
        self.form: Structure | None = None

    def run(self, tensors: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[Tensor]:
        """The tensors that the function returns, recorded where a gradient is wanted of something."""
        own, given = tensors[:len(self.held)], iter(tensors[len(self.held):])
        with no_grad():
            for parameter, value in zip(self.held, own, strict=True):
                parameter.assign(shared(value))
        made = [shared(next(given)) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        outside = [x for x in made if isinstance(x, Tensor)]
        for x, want in zip(outside, wanted[len(self.held):], strict=True):
            x.requires_grad = want
        self.inputs = [*self.held, *outside]
        args, keywords = self.structure.build(made)
        with enable_grad() if any(wanted) else no_grad():
            self.results, self.form = flatten(self.function(*args, **keywords))
        return [x for x in self.results if isinstance(x, Tensor)]

    def returned(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The nest that the function returned, of PyTorch's tensors."""
        found = iter(tensors)
        assert self.form is not None
        return self.form.build([next(found) if isinstance(x, Tensor) else x for x in self.results])


class Through(torch.autograd.Function):     # type: ignore[misc]
    """Forward by Tenon, and backward along Tenon's tape."""

    @staticmethod
    def forward(ctx: Any, call: WrappedCall, *tensors: torch.Tensor) -> Any:
        """The function's tensors, as PyTorch's."""
        wanted = list(ctx.needs_input_grad[1:])
        outputs = call.run([x.detach() for x in tensors], wanted)
        ctx.call, ctx.outputs, ctx.wanted = call, outputs, wanted
        found = tuple(tensor_of(x) for x in outputs)
        ctx.mark_non_differentiable(*[t for t, x in zip(found, outputs) if not x.requires_grad])
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable    # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """The gradients of what they were wanted of."""
        pairs = [(x, shared(g.contiguous())) for x, g in zip(ctx.outputs, gradients) if x.requires_grad]
        starts = [x for x, want in zip(ctx.call.inputs, ctx.wanted) if want]
        found = iter(grad([x for x, _ in pairs], starts, [g for _, g in pairs], allow_unused=True))
        listed = (next(found) if want else None for want in ctx.wanted)
        return None, *[None if g is None else tensor_of(g) for g in listed]


def tensor_of(x: Tensor) -> torch.Tensor:
    """A tensor of Tenon as PyTorch's: a copy, since PyTorch may write to it."""
    array = np.array(x.detach().numpy(), order="C", copy=True)
    return as_tensor(array, in_the_order_of_axes(array.shape), OF_TORCH[x.dtype])
