"""Gradients -> True, or an error that names the worst entry: automatic against numeric differentiation.

Central differences in float64 are wrong by about eps^2 and by rounding over eps: with eps = 1e-6 by about 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError, GradientError
from tenon.ops.creation import zeros_like
from tenon.tensor import Tensor, asarray, tensor
from tenon.transforms.differentiate import LeafNest
from tenon.transforms.gradients import vjp
from tenon.types import complex128, float64

Array = np.ndarray[Any, np.dtype[Any]]


def gradcheck(f: Callable[..., Any], inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3) -> bool:
    """Whether every entry of the Jacobian of `f(*inputs)` agrees with central differences.

    Inputs are taken in float64 or complex128.  Raises GradientError naming the worst entry where the two differ by more
    than atol + rtol * |difference quotient|.

    >>> tn.debug.gradcheck(lambda x: tn.sin(x) * x, (tn.tensor([1.0, 2.0]),))
    True
    """
    primals = in_float64(inputs)
    inputs_nest = LeafNest.of(primals)
    if not inputs_nest.tensors:
        raise ArgumentError("gradcheck: no input has floating elements")
    result, pullback = vjp(f, *primals)
    outputs = LeafNest.of(result)
    if not outputs.tensors:
        raise ArgumentError("gradcheck: the function returned nothing with floating elements")

    def values(tensors: Sequence[Tensor]) -> list[Array]:
        with no_grad():
            return [y.numpy() for y in LeafNest.of(f(*inputs_nest.replace(tensors))).tensors]
    numeric = differences(values, inputs_nest.tensors, eps)
    analytic = rows(lambda seeds: [x for x in LeafNest.of(pullback(outputs.fill(seeds))).leaves if x is not None],
                    outputs.tensors, inputs_nest.tensors)
    compare(analytic, numeric, outputs.tensors, inputs_nest.tensors, atol, rtol)
    return True


def gradgradcheck(f: Callable[..., Any], inputs: Any, eps: float = 1e-6, atol: float = 1e-5,
                  rtol: float = 1e-3) -> bool:
    """Whether the gradients of `f(*inputs)` themselves have right gradients: `gradcheck` of the pullback.

    >>> tn.debug.gradgradcheck(lambda x: x * x * x, (2.0,))
    True
    """
    primals = in_float64(inputs)
    outputs = LeafNest.of(f(*primals))
    rng = np.random.default_rng(0)
    seeds = [tensor(rng.standard_normal(y.shape).astype(y.dtype.numpy)) for y in outputs.tensors]

    def gradients(args: Any, seeds: Any) -> Any:
        return [x for x in LeafNest.of(vjp(f, *args)[1](outputs.fill(seeds))).leaves if x is not None]
    return gradcheck(gradients, (primals, seeds), eps, atol, rtol)


def in_float64(inputs: Any) -> tuple[Any, ...]:
    """The inputs with floating elements as float64 (complex ones as complex128)."""
    nest = LeafNest.of(tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,))
    wide: tuple[Any, ...] = nest.replace(
        tensor(x.numpy(), dtype=complex128 if x.dtype.kind == "c" else float64) for x in nest.tensors)
    return wide


# ---------------------------------------------------------------- both Jacobians, in real numbers

def differences(values: Callable[[Sequence[Tensor]], list[Array]], inputs: Sequence[Tensor], eps: float) -> Array:
    """[outputs, inputs]: the difference quotient of every real number that comes out by every one that goes in."""
    columns = []
    for k, x in enumerate(inputs):
        base = x.numpy()
        for index in np.ndindex(base.shape):
            for direction in (1.0, 1j)[:1 + (x.dtype.kind == "c")]:
                ends = []
                for sign in (1, -1):
                    moved = base.copy()
                    moved[index] += sign * eps * direction
                    ends.append(in_real([*values([*inputs[:k], asarray(moved), *inputs[k + 1:]])]))
                columns.append((ends[0] - ends[1]) / (2 * eps))
    return np.stack(columns, 1) if columns else np.zeros((0, 0))


def rows(pull: Callable[[list[Tensor]], list[Tensor]], outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Array:
    """[outputs, inputs]: the gradient of every real number that comes out."""
    found = []
    for k, y in enumerate(outputs):
        for index in np.ndindex(tuple(map(int, y.shape))):
            for direction in (1.0, 1j)[:1 + (y.dtype.kind == "c")]:
                seed = np.zeros(y.shape, y.dtype.numpy)
                seed[index] = direction
                seeds = [zeros_like(other) for other in outputs]
                seeds[k] = asarray(seed)
                found.append(in_real([g.numpy() for g in pull(seeds)]))
    return np.stack(found) if found else np.zeros((0, 0))


def in_real(arrays: Sequence[Array]) -> Array:
    """The elements of all arrays in a row, complex ones as two real numbers."""
    wide = [np.asarray(a, np.complex128 if a.dtype.kind == "c" else np.float64).ravel() for a in arrays]
    return np.concatenate([a.view(np.float64) for a in wide]) if wide else np.zeros(0)


def places(tensors: Sequence[Tensor], what: str) -> list[str]:
    """The name of every real number in a row."""
    found = []
    for k, x in enumerate(tensors):
        parts = ("", )if x.dtype.kind != "c" else (" (real part)", " (imaginary part)")
        found += [f"{what} {k}{list(index) if index else ''}{part}"
                  for index in np.ndindex(tuple(map(int, x.shape))) for part in parts]
    return found


def compare(analytic: Array, numeric: Array, outputs: Sequence[Tensor], inputs: Sequence[Tensor], atol: float,
            rtol: float) -> None:
    """Raise GradientError naming the worst entry, unless all are close."""
    with np.errstate(invalid="ignore"):
        excess = np.abs(analytic - numeric) - (atol + rtol * np.abs(numeric))
    excess = np.where(np.isnan(excess), np.inf, excess)
    wrong = int((excess > 0).sum())
    if not wrong:
        return
    row, column = np.unravel_index(int(np.argmax(excess)), excess.shape)
    where = f"{places(outputs, 'result')[row]} with respect to {places(inputs, 'input')[column]}"
    raise GradientError(
        f"gradcheck: {wrong} of {excess.size} derivatives are wrong; the worst, of {where}, is "
        f"{analytic[row, column]:.6g}, and the central difference is {numeric[row, column]:.6g}",
        hint="a function that is not smooth there, or that draws random numbers, has no such quotient")


