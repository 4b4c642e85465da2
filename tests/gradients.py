"""Gradients -> nothing, or an assertion: reverse mode against central differences in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from tenon.tensor import Tensor


def check_gradient(fn: Callable[..., Any], *arrays: Any, order: int = 1, step: float = 1e-6,
                   tolerance: float = 1e-5) -> None:
    """The gradient of `fn` (all its floating outputs, weighted at random) with respect to every array.

    `order=2` checks the gradient of the gradient too.
    """
    rng = np.random.default_rng(1)
    outputs = _listed(fn(*map(tn.tensor, arrays)))
    weights = [_weight(rng, y) for y in outputs]

    def scalar(*inputs: Tensor) -> Any:
        total: Any = 0.0
        for y, w in zip(_listed(fn(*inputs)), weights, strict=True):
            if w is not None:
                total = total + _real_sum(y, w)
        return total
    _compare(scalar, arrays, step, tolerance)
    if order == 2:
        kept = [_weight(rng, tn.tensor(a)) for a in arrays]

        def slope(*inputs: Tensor) -> Any:
            total: Any = 0.0
            for gradient, w in zip(_gradients(scalar, inputs, True), kept, strict=True):
                total = total + _real_sum(gradient, w)
            return total
        _compare(slope, arrays, step, tolerance)


def _gradients(scalar: Callable[..., Any], inputs: Any, create_graph: bool = False) -> list[Any]:
    """The gradients of a scalar, as tensors that may be differentiated again."""
    fresh = [x if x.requires_grad else x.detach().requires_grad_() for x in inputs]
    linked = [x + 0.0 for x in fresh]
    for x in linked:
        assert x.node is not None
    loss = scalar(*linked)
    from tenon.autodiff import backward, ones_like, zeros_like
    from tenon.eager.grad_mode import recording_is
    from tenon.eager.tape import tape_of
    from tenon.tensor import _carries_gradient
    with recording_is(create_graph):
        found = backward(tape_of([loss]), {loss.slot: ones_like(loss)}, _carries_gradient)
        return [found[x.slot] if x.slot in found else zeros_like(x) for x in linked]


def _compare(scalar: Callable[..., Any], arrays: Any, step: float, tolerance: float) -> None:
    found = _gradients(scalar, [tn.tensor(a) for a in arrays])
    for k, array in enumerate(arrays):
        expected = np.zeros_like(array)
        parts = [1.0, 1j] if np.iscomplexobj(array) else [1.0]
        for index in np.ndindex(array.shape):
            for part in parts:
                values = []
                for sign in (1, -1):
                    moved = array.copy()
                    moved[index] += sign * step * part
                    inputs = [moved if j == k else a for j, a in enumerate(arrays)]
                    values.append(scalar(*(tn.tensor(a).requires_grad_() for a in inputs)).item())
                expected[index] += part * (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(found[k].numpy(), expected, rtol=tolerance, atol=tolerance * max(1,
                                                                                                    np.abs(expected).max(initial=0)))


def _listed(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _weight(rng: Any, y: Any) -> Any:
    if y.dtype.kind not in "fc":
        return None
    w = rng.standard_normal(y.shape)
    return w + 1j * rng.standard_normal(y.shape) if y.dtype.kind == "c" else w


def _real_sum(y: Any, w: Any) -> Any:
    if y.dtype.kind == "c":
        return tn.real(y * tn.tensor(np.conj(w))).sum()
    return (y * tn.tensor(w)).sum()
