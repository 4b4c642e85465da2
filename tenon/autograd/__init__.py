"""`tn.autograd`: gradients of tensors that have been computed, and rules of one's own, by PyTorch's names."""

from typing import Any

from tenon.autograd import functional_derivatives as functional
from tenon.autograd.functional_derivatives import gradcheck as gradcheck
from tenon.eager.grad_mode import enable_grad as enable_grad
from tenon.eager.grad_mode import no_grad as no_grad
from tenon.tensor import Tensor, tensor
from tenon.transforms.autograd import Function as Function
from tenon.transforms.autograd import FunctionContext as FunctionContext
from tenon.transforms.autograd import grad as grad

__all__ = ["Function", "FunctionContext", "Variable", "enable_grad", "functional", "grad", "gradcheck", "no_grad"]


def Variable(data: Any, requires_grad: bool = False) -> Tensor:
    """The tensor itself, or a leaf with its elements that requires a gradient."""
    found = data if isinstance(data, Tensor) else tensor(data)
    return found.detach().requires_grad_() if requires_grad else found
