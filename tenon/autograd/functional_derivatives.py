"""`tn.autograd.functional`: derivatives of functions as PyTorch's programs ask for them, and `gradcheck`.

`tn.jacobian`, `tn.hessian`, `tn.vjp`, `tn.jvp` and `tn.hvp` are the same without these forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, GradientError
from tenon.ops.creation import ones_like
from tenon.tensor import Tensor, tensor
from tenon.transforms import gradients, jacobians

__all__ = ["gradcheck", "hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]


def jacobian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The Jacobian of `func` at `inputs`: a block for a tensor, a tuple of them for a tuple.

    >>> tn.autograd.functional.jacobian(lambda x: x * x, tn.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    return jacobians.jacobian(func, _places(inputs))(*_given(inputs))


def hessian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of the scalar that `func` gives: a block for a tensor, tuples of tuples for a tuple."""
    return jacobians.hessian(func, _places(inputs))(*_given(inputs))


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """What `func` gives, and `v` times its Jacobian; `v` may be left out for a scalar."""
    outputs, pullback = gradients.vjp(func, *_given(inputs))
    return outputs, _like(inputs, pullback(_ones_for_a_scalar("vjp", outputs) if v is None else v))


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """What `func` gives, and its Jacobian times `v`; `v` may be left out for one number."""
    given = _given(inputs)
    return gradients.jvp(func, given, _given(_ones_for_a_scalar("jvp", inputs) if v is None else v))


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The scalar that `func` gives, and its second derivatives times `v`."""
    given = _given(inputs)
    found = jacobians.hvp(func, given, _given(_ones_for_a_scalar("hvp", inputs) if v is None else v))
    return func(*given), _like(inputs, found)


vhp = hvp       # second derivatives are symmetric


def gradcheck(func: Function, inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, **options: Any) -> bool:
    """Whether gradients are those of differences, for every input that requires a gradient; best in float64.

    Raises GradientError where they are not, or returns False.

    >>> tn.autograd.gradcheck(tn.sin, tn.tensor([0.0, 1.0], dtype="float64", requires_grad=True))
    True
    """
    given = _given(inputs)
    chosen = [k for k, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    if not chosen:
        raise ArgumentError("gradcheck: no input requires a gradient", hint="x.requires_grad_() before")
    for k in chosen:
        found, wanted = (rows(func, given, k, eps) for rows in (_by_rule, _by_differences))
        if not all(np.allclose(x, y, rtol, atol) for x, y in zip(found, wanted, strict=True)):
            if not raise_exception:
                return False
            apart = max(float(np.abs(x - y).max(initial=0)) for x, y in zip(found, wanted, strict=True))
            raise GradientError(f"gradcheck: the gradient of input {k} is not that of differences, they are "
                                f"{apart:.2g} apart", hint="gradients of float32 are rougher than eps: pass float64")
    return True


# ---------------------------------------------------------------- for both

def _given(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


def _places(inputs: Any) -> int | tuple[int, ...]:
    return tuple(range(len(inputs))) if isinstance(inputs, (tuple, list)) else 0


def _like(inputs: Any, found: Sequence[Any]) -> Any:
    return tuple(found) if isinstance(inputs, (tuple, list)) else found[0]


def _ones_for_a_scalar(name: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor) or x.size != 1:
        raise ArgumentError(f"{name}: v is needed where there is more than one number")
    found: Tensor = ones_like(x)
    return found


def _by_rule(func: Function, given: tuple[Any, ...], k: int, eps: float) -> list[np.ndarray]:
    """The Jacobians of all results for an input, as matrices with a row a number of the input."""
    found = []
    for output in range(len(_given(func(*given)))):
        def chosen(x: Any, output: int = output) -> Any:
            return _given(func(*given[:k], x, *given[k + 1:]))[output]
        block = jacobians.jacrev(chosen)(given[k].detach()).numpy()
        found.append(block.reshape(-1, math.prod(given[k].shape)).T)
    return found


def _by_differences(func: Function, given: tuple[Any, ...], k: int, eps: float) -> list[np.ndarray]:
    start = given[k].detach().numpy()
    rows: list[list[np.ndarray]] = []
    for at in np.ndindex(start.shape):
        sides = []
        for step in (eps, -eps):
            moved = start.copy()
            moved[at] += step
            sides.append([y.detach().numpy().astype(np.float64).ravel()
                          for y in _given(func(*given[:k], tensor(moved), *given[k + 1:]))])
        rows.append([(ahead - behind) / (2 * eps) for ahead, behind in zip(*sides, strict=True)])
    return [np.stack(column) for column in zip(*rows, strict=True)]
