"""`tn.autograd`: gradients of tensors that have been computed, and rules of one's own, by PyTorch's names."""

from typing import Any

from tenon.autograd import function as function
from tenon.autograd import functional_derivatives as functional
from tenon.autograd.functional_derivatives import gradcheck as gradcheck
from tenon.eager.grad_mode import enable_grad as enable_grad
from tenon.eager.grad_mode import no_grad as no_grad
from tenon.eager.grad_mode import refusing_nan
from tenon.tensor import Tensor, is_tensor, tensor
from tenon.transforms.autograd import Function as Function
from tenon.transforms.autograd import FunctionContext as FunctionContext
from tenon.transforms.autograd import grad as grad

__all__ = ["Function", "FunctionContext", "Variable", "backward", "detect_anomaly", "enable_grad", "function",
           "functional", "grad", "gradcheck", "no_grad", "set_detect_anomaly"]


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> None:
    """`x.backward(gradient)` of one tensor or several; gradients add up in the leaves, or in `inputs` alone."""
    grad_tensors = grad_variables if grad_tensors is None else grad_tensors
    found = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    given = list(grad_tensors) if isinstance(grad_tensors, (list, tuple)) else [grad_tensors] * len(found)
    for k, (x, gradient) in enumerate(zip(found, given, strict=True)):
        x.backward(gradient, retain_graph or k + 1 < len(found), create_graph, inputs)


class set_detect_anomaly:
    """Let `backward` raise GradientError for NaN from now on, or not; as a context, until its end.

    Eager code alone looks for it; `tn.debug.check` looks into compiled steps, and names the operator.

    >>> with tn.autograd.set_detect_anomaly(True):
    ...     (tn.zeros(1, requires_grad=True).sqrt() * 0).sum().backward()
    Traceback (most recent call last):
    tenon.errors.GradientError: backward(): a gradient f32[1] has NaN among its elements
    ...
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._token = refusing_nan.set(bool(mode and check_nan))

    def __enter__(self) -> None:
        """It is set already."""

    def __exit__(self, *_: object) -> None:
        refusing_nan.reset(self._token)


def detect_anomaly(check_nan: bool = True) -> set_detect_anomaly:
    """`set_detect_anomaly(True)`, for a `with`."""
    return set_detect_anomaly(True, check_nan)


def Variable(data: Any, requires_grad: bool = False) -> Tensor:
    """The tensor itself, or a leaf with its elements that requires a gradient."""
    found: Tensor = data if is_tensor(data) else tensor(data)
    return found.detach().requires_grad_() if requires_grad else found
