"""Weight norm, spectral norm, orthogonal matrices, as parametrizations; the norms under PyTorch's older names too."""

from __future__ import annotations

from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.module import Module, Parameter
from tenon.nn.utils.parametrize import computed, register_parametrization, restored
from tenon.ops.arithmetic import sign
from tenon.ops.comparison import clip
from tenon.ops.creation import eye, zeros, zeros_like
from tenon.ops.diagonal import diag_embed, diagonal, tril, triu
from tenon.ops.exponential import sqrt
from tenon.ops.joining_and_axes import concat, moveaxis, reshape
from tenon.ops.matrix_factorizations import qr
from tenon.ops.matrix_products import matmul
from tenon.ops.reduction import sum_
from tenon.ops.shape import cast
from tenon.ops.solving import matrix_exp, solve, solve_triangular
from tenon.random import randn
from tenon.types import int32

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def normed(g: Any, v: Any, axis: int | None) -> Any:
    """v with the norm g, along all axes but one."""
    return v * (g / _norm_but(v, axis))


def _norm_but(v: Any, axis: int | None) -> Any:
    kept = None if axis is None or axis == -1 else axis % v.ndim
    axes = tuple(k for k in range(v.ndim) if k != kept)
    return sqrt(sum_(v * v, axis=axes, keepdims=kept is not None))


class _WeightNorm(Module):
    def __init__(self, axis: int | None):
        self.axis = axis

    def forward(self, g: Any, v: Any) -> Any:
        return normed(g, v, self.axis)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        return _norm_but(weight, self.axis), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A parameter as a direction and a length for each position of an axis (Salimans and Kingma 2016).

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    >>> sorted(layer.state_dict())
    ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    return register_parametrization(module, name, _WeightNorm(dim))


class _SpectralNorm(Module):
    """A matrix divided by its largest singular value, which a step of the power method follows in training."""

    def __init__(self, weight: Any, steps: int, axis: int, eps: float):
        self.steps, self.axis, self.eps = steps, axis % weight.ndim, eps
        with no_grad():
            matrix = self._matrix(weight.detach())
            self.register_buffer("_u", unit(randn(matrix.shape[0], dtype=weight.dtype), eps))
            self.register_buffer("_v", unit(randn(matrix.shape[1], dtype=weight.dtype), eps))
            if weight.ndim > 1:
                self._iterate(matrix, 15)

    def _matrix(self, weight: Any) -> Any:
        return reshape(moveaxis(weight, self.axis, 0), (weight.shape[self.axis], -1))

    def _iterate(self, matrix: Any, steps: int) -> None:
        u, v = power_method(matrix, self._u, self._v, steps, self.eps)
        self._u.assign(u)
        self._v.assign(v)

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return unit(weight, self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.steps)
        return weight / sum_(self._u.detach() * matmul(matrix, self._v.detach()))

    def right_inverse(self, weight: Any) -> Any:
        return weight


def unit(x: Any, eps: float) -> Any:
    """A vector divided by its norm."""
    return x / clip(sqrt(sum_(x * x)), eps, None)


def power_method(matrix: Any, u: Any, v: Any, steps: int, eps: float) -> tuple[Any, Any]:
    """Better estimates of the first left and right singular vectors."""
    for _ in range(steps):
        u = unit(matmul(matrix, v), eps)
        v = unit(matmul(matrix.mT, u), eps)
    return u, v


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Module:
    """A parameter divided by its largest singular value, as a matrix with axis `dim` for its rows (Miyato et al. 2018).

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    >>> float(tn.linalg.norm(layer.eval().weight, ord=2)) < 1.1
    True
    """
    weight = getattr(module, name)
    if n_power_iterations < 1:
        raise ArgumentError(f"spectral_norm: n_power_iterations must be at least 1, not {n_power_iterations}")
    axis = dim if dim is not None else rows_of(module)
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, axis, eps))


def rows_of(module: Module) -> int:
    """The axis of the outputs in the weight of a layer."""
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class _Orthogonal(Module):
    """An orthogonal matrix of any square one, or orthogonal columns (rows) of any tall (wide) one."""

    def __init__(self, orthogonal_map: str, based: bool):
        self.orthogonal_map, self.based = orthogonal_map, based

    def forward(self, x: Any) -> Any:
        n, k = x.shape[-2:]
        q = self._of_tall(x.mT if n < k else x)
        q = matmul(self.base, q) if self.based else q
        return q.mT if n < k else q

    def _of_tall(self, x: Any) -> Any:
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            signs = cast(cast(diagonal(x, 0, -2, -1), dtype=int32), dtype=x.dtype)      # made of 1 and -1 here
            return reflections(tril(x, -1), n, k) * signs[..., None, :]
        x = tril(x)
        if n != k:
            x = concat([x, zeros((*x.shape[:-1], n - k), dtype=x.dtype)], axis=-1)
        skew, one = x - x.mT, eye(n, dtype=x.dtype)
        whole = matrix_exp(skew) if self.orthogonal_map == "matrix_exp" else solve(one - 0.5 * skew, one + 0.5 * skew)
        return whole[..., :k]

    def right_inverse(self, weight: Any) -> Any:
        """The original that stands for a weight, of which the base takes what is orthogonal; without, the weight."""
        if not self.based:
            return weight
        n, k = sorted(weight.shape[-2:], reverse=True)
        tall = weight.mT if weight.shape[-2] < weight.shape[-1] else weight
        tall = concat([tall, randn(*tall.shape[:-1], n - k, dtype=tall.dtype)], axis=-1) if n != k else tall
        q, r = qr(tall)
        self.register_buffer("base", q * sign(diagonal(r, 0, -2, -1))[..., None, :])
        return zeros_like(weight) - eye(*weight.shape[-2:], dtype=weight.dtype)


def reflections(below: Any, n: Any, k: Any) -> Any:
    """The first k columns of the product of the reflections along 1 and what is below, column by column.

    It is I - V T V', with the inverse of T in the products of the columns (Joffrain et al. 2006).
    """
    v = below + eye(n, k, dtype=below.dtype)
    products = matmul(v.mT, v)
    inverse = triu(products, 1) + diag_embed(diagonal(products, 0, -2, -1) * 0.5)
    return eye(n, k, dtype=v.dtype) - matmul(v, solve_triangular(inverse, v[..., :k, :].mT, upper=True))


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Module:
    """A parameter with orthogonal columns, or rows where it has fewer: by "matrix_exp", "cayley" or "householder".

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    >>> bool(tn.allclose(layer.weight @ layer.weight.T, tn.eye(3), atol=1e-5))
    True
    """
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ArgumentError(f"orthogonal: a matrix was expected, {name!r} is {weight.type}")
    chosen = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if chosen not in ("matrix_exp", "cayley", "householder"):
        raise ArgumentError(f"orthogonal: no map {chosen!r}", hint="matrix_exp, cayley or householder")
    if chosen == "householder" and not use_trivialization:
        raise ArgumentError("orthogonal: householder without a base is not there", hint="use_trivialization=True")
    return register_parametrization(module, name, _Orthogonal(chosen, use_trivialization))


# ---------------------------------------------------------------- under the older names

def old_weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """`parametrizations.weight_norm` with the parameters `weight_g` and `weight_v`."""
    weight = getattr(module, name).detach()
    delattr(module, name)
    setattr(module, f"{name}_g", Parameter(_norm_but(weight, dim)))
    setattr(module, f"{name}_v", Parameter(weight))
    computed(module, name, lambda self: normed(getattr(self, f"{name}_g"), getattr(self, f"{name}_v"), dim))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Let the attribute be a parameter again."""
    if f"{name}_g" not in module.__dict__:
        raise ArgumentError(f"remove_weight_norm: {type(module).__name__} has no {name}_g")
    restored(module, name, getattr(module, name).detach())
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    return module


def old_spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                      dim: int | None = None) -> Module:
    """`parametrizations.spectral_norm` with the parameter `weight_orig` and the buffer `weight_u`."""
    weight = getattr(module, name).detach()
    axis = dim if dim is not None else rows_of(module)
    rows = _rows(weight, axis)
    delattr(module, name)
    setattr(module, f"{name}_orig", Parameter(weight))
    module.register_buffer(f"{name}_u", unit(randn(rows.shape[0], dtype=weight.dtype), eps))
    module.register_buffer(f"{name}_v", unit(randn(rows.shape[1], dtype=weight.dtype), eps))

    def get(self: Module) -> Any:
        original = getattr(self, f"{name}_orig")
        matrix = _rows(original, axis)
        if self.training:
            with no_grad():
                u, v = getattr(self, f"{name}_u"), getattr(self, f"{name}_v")
                for _ in range(n_power_iterations):
                    v = unit(matmul(matrix.detach().mT, u), eps)
                    u = unit(matmul(matrix.detach(), v), eps)
                getattr(self, f"{name}_u").assign(u)
                getattr(self, f"{name}_v").assign(v)
        sigma = sum_(getattr(self, f"{name}_u").detach() * matmul(matrix, getattr(self, f"{name}_v").detach()))
        return original / sigma
    computed(module, name, get)
    return module


def _rows(weight: Any, axis: int) -> Any:
    return reshape(moveaxis(weight, axis, 0), (weight.shape[axis], -1))


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Let the attribute be a parameter again."""
    if f"{name}_orig" not in module.__dict__:
        raise ArgumentError(f"remove_spectral_norm: {type(module).__name__} has no {name}_orig")
    training, module.training = module.training, False
    value = getattr(module, name).detach()
    module.training = training
    restored(module, name, value)
    for ending in ("orig", "u", "v"):
        delattr(module, f"{name}_{ending}")
    return module
