"""First values of parameters, as PyTorch names and draws them; each fills a tensor in place and returns it.

Random values come from Tenon's generator: `tn.manual_seed(0)` before a model is made makes it reproducible.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError, ShapeError
from tenon.pytorch_in_place import for_somebody
from tenon.random import normal, rand, truncated_normal, uniform
from tenon.tensor import Tensor, tensor

GAINS = {"linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
         "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much a nonlinearity shrinks a signal: the factor that makes up for it."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        raise ArgumentError(f"init: no gain is known for {nonlinearity!r}", hint=f"one of {', '.join(GAINS)}")
    return GAINS[nonlinearity]


def fans(t: Tensor) -> tuple[int, int]:
    """How many inputs and outputs an element of the weight [outputs, inputs, ...] has."""
    if t.ndim < 2:
        raise ShapeError(f"init: a weight needs at least two axes to have fans, this tensor is {t.type}")
    field = int(product(t.shape[2:]))
    return int(t.shape[1]) * field, int(t.shape[0]) * field


# ---------------------------------------------------------------- constants

@for_somebody
def constant_(t: Tensor, val: float) -> Tensor:
    """Every element is `val`."""
    return _fill(t, np.full(tuple(map(int, t.shape)), val))


@for_somebody
def zeros_(t: Tensor) -> Tensor:
    """Every element is 0."""
    return constant_(t, 0)


@for_somebody
def ones_(t: Tensor) -> Tensor:
    """Every element is 1."""
    return constant_(t, 1)


@for_somebody
def eye_(t: Tensor) -> Tensor:
    """A matrix with ones on the diagonal."""
    if t.ndim != 2:
        raise ShapeError(f"eye_ fills matrices, this tensor is {t.type}")
    return _fill(t, np.eye(int(t.shape[0]), int(t.shape[1])))


@for_somebody
def dirac_(t: Tensor, groups: int = 1) -> Tensor:
    """A convolution weight that passes its input through."""
    if not 3 <= t.ndim <= 5 or t.shape[0] % groups:
        raise ShapeError(f"dirac_ fills weights of 3 to 5 axes, outputs divisible by groups={groups}, not {t.type}")
    values = np.zeros(t.shape)
    per_group, centre = t.shape[0] // groups, tuple(size // 2 for size in t.shape[2:])
    for group in range(groups):
        for k in range(min(per_group, t.shape[1])):
            values[(group * per_group + k, k, *centre)] = 1
    return _fill(t, values)


# ---------------------------------------------------------------- random

@for_somebody
def uniform_(t: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    return _assign(t, uniform(a, b, t.shape, dtype=t.dtype, generator=generator))


@for_somebody
def normal_(t: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with this mean and standard deviation."""
    return _assign(t, normal(mean, std, t.shape, dtype=t.dtype, generator=generator))


@for_somebody
def trunc_normal_(t: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Any = None) -> Tensor:
    """Normal, but drawn again where outside [a, b]."""
    drawn = truncated_normal((a - mean) / std, (b - mean) / std, t.shape, dtype=t.dtype, generator=generator)
    return _assign(t, drawn * std + mean)


@for_somebody
def uniform_within_(t: Tensor, fan_in: int) -> Tensor:
    """Uniform within 1/sqrt(fan_in), as PyTorch draws biases."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(t, -bound, bound)


@for_somebody
def xavier_uniform_(t: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform, keeping the variance of signals and gradients (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6 / max(1, sum(fans(t))))
    return uniform_(t, -bound, bound, generator)


@for_somebody
def xavier_normal_(t: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal, keeping the variance of signals and gradients (Glorot and Bengio 2010)."""
    return normal_(t, 0, gain * math.sqrt(2 / max(1, sum(fans(t)))), generator)


@for_somebody
def kaiming_uniform_(t: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Any = None) -> Tensor:
    """Uniform, keeping the variance through rectifiers (He et al. 2015)."""
    bound = math.sqrt(3) * _kaiming_std(t, a, mode, nonlinearity)
    return uniform_(t, -bound, bound, generator)


@for_somebody
def kaiming_normal_(t: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Any = None) -> Tensor:
    """Normal, keeping the variance through rectifiers (He et al. 2015)."""
    return normal_(t, 0, _kaiming_std(t, a, mode, nonlinearity), generator)


@for_somebody
def orthogonal_(t: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Rows (or columns, if fewer) orthogonal to each other (Saxe et al. 2013)."""
    if t.ndim < 2:
        raise ShapeError(f"orthogonal_ fills tensors of at least two axes, this one is {t.type}")
    rows, columns = int(t.shape[0]), int(product(t.shape[1:]))
    drawn = normal(0.0, 1.0, (max(rows, columns), min(rows, columns)), dtype="float64", generator=generator)
    q, r = np.linalg.qr(drawn.numpy())
    q = q * np.where(np.diag(r) < 0, -1, 1)
    return _fill(t, gain * (q.T if rows < columns else q).reshape(t.shape))


@for_somebody
def sparse_(t: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix, normal, with this share of every column zero."""
    if t.ndim != 2:
        raise ShapeError(f"sparse_ fills matrices, this tensor is {t.type}")
    drawn = rand(t.shape, generator=generator).numpy()
    rank = np.argsort(np.argsort(drawn, axis=0), axis=0)     # a random order of every column
    values = normal(0.0, std, t.shape, dtype="float64", generator=generator).numpy()
    return _fill(t, np.where(rank < math.ceil(sparsity * int(t.shape[0])), 0, values))


def _kaiming_std(t: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"init: mode must be 'fan_in' or 'fan_out', not {mode!r}")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(1, fans(t)[mode == "fan_out"]))


def _fill(t: Tensor, values: np.ndarray) -> Tensor:
    return _assign(t, tensor(values.astype(t.dtype.numpy)))


def _assign(t: Tensor, values: Tensor) -> Tensor:
    with no_grad():
        return t.assign(values)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    return fans(tensor)[mode.lower() == "fan_out"]


# By older names.
_calculate_fan_in_and_fan_out = fans
constant, dirac, eye, orthogonal, sparse = constant_, dirac_, eye_, orthogonal_, sparse_
kaiming_normal, kaiming_uniform, xavier_normal, xavier_uniform = (
    kaiming_normal_, kaiming_uniform_, xavier_normal_, xavier_uniform_)
