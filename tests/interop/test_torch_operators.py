"""Convolution, pooling, interpolation, indexing and linear algebra against PyTorch on the same data, with gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tenon as tn

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def agree(ours: Any, theirs: Any, *arrays: Any, tolerance: float = 1e-9) -> None:
    """Both functions give the same values and, for a random weighting of them, the same gradients."""
    mine = [tn.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    other = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    got, expected = ours(*mine), theirs(*other)
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    weight = RNG.standard_normal(got.shape)
    if got.requires_grad:
        (got * tn.tensor(weight)).sum().backward()
        (expected * torch.tensor(weight)).sum().backward()
        for a, b in zip(mine, other, strict=True):
            if b.grad is not None:
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("attrs", [
    {}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2}, {"padding": "same",
                                                                    "groups": 4}, {"padding": "valid"}], ids=str)
@pytest.mark.filterwarnings("ignore:Using padding")
def test_convolution(count: int, attrs: dict[str, Any]) -> None:
    x, w, b = normal(2, 4, *[7, 6, 5][:count]), normal(8, 4 // attrs.get("groups", 1), *[3, 2, 3][:count]), normal(8)
    name = f"conv{count}d"
    agree(lambda *a: getattr(tn, name)(*a, **attrs), lambda *a: getattr(F, name)(*a, **attrs), x, w, b)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("attrs", [
    {}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 3, "output_padding": 2, "groups": 2}], ids=str)
def test_transposed_convolution(count: int, attrs: dict[str, Any]) -> None:
    x, w, b = normal(2, 4, *[4, 3, 3][:count]), normal(4, 6, *[3, 2, 3][:count]), normal(6 * attrs.get("groups", 1))
    name = f"conv_transpose{count}d"
    agree(lambda *a: getattr(tn, name)(*a, **attrs), lambda *a: getattr(F, name)(*a, **attrs), x, w, b)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("attrs", [{}, {"stride": 1, "padding": 1}, {"stride": 2, "ceil_mode": True, "padding": 1}],
                         ids=str)
def test_pooling(count: int, attrs: dict[str, Any]) -> None:
    x = normal(2, 3, *[8, 7, 6][:count])

    def pool(module: Any) -> Any:
        return lambda kind, **more: lambda x: getattr(module, f"{kind}_pool{count}d")(x, 3, **attrs, **more)
    ours, theirs = pool(tn), pool(F)
    agree(ours("max"), theirs("max"), x)
    agree(ours("avg"), theirs("avg"), x)
    agree(ours("avg", count_include_pad=False), theirs("avg", count_include_pad=False), x)
    _, at = ours("max", return_indices=True)(tn.tensor(x))
    np.testing.assert_array_equal(at.numpy(), theirs("max", return_indices=True)(torch.tensor(x))[1].numpy())


@pytest.mark.parametrize("size", [1, 3, (4, 7), (5, None)], ids=str)
def test_adaptive_pooling(size: Any) -> None:
    x = normal(2, 3, 8, 7)
    agree(lambda x: tn.adaptive_avg_pool2d(x, size), lambda x: F.adaptive_avg_pool2d(x, size), x)
    agree(lambda x: tn.adaptive_max_pool2d(x, size), lambda x: F.adaptive_max_pool2d(x, size), x)


def test_unfold_fold_and_lp_pool() -> None:
    x = normal(2, 3, 6, 5)
    attrs = {"dilation": (2, 1), "padding": 1, "stride": (1, 2)}
    agree(lambda x: tn.unfold(x, (3, 2), **attrs), lambda x: F.unfold(x, (3, 2), **attrs), x)
    columns = F.unfold(torch.tensor(x), (3, 2), **attrs).numpy()
    agree(lambda c: tn.fold(c, (6, 5), (3, 2), **attrs), lambda c: F.fold(c, (6, 5), (3, 2), **attrs), columns)
    agree(lambda x: tn.lp_pool(x, 3.0, 2), lambda x: F.lp_pool2d(x, 3.0, 2), abs(x))
    agree(lambda x: tn.lp_pool(x, 2.0, 2), lambda x: F.lp_pool2d(x, 2.0, 2), x * 0)     # the norm of nothing


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("target", [{"size": (9, 4)}, {"size": (3, 11)}, {"scale_factor": 2.0},
                                    {"scale_factor": (0.7, 1.3)}], ids=str)
def test_interpolation(mode: str, target: dict[str, Any]) -> None:
    x = normal(2, 3, 5, 6)
    for align in ([False, True] if mode in ("bilinear", "bicubic") else [None]):
        more = {} if align is None else {"align_corners": align}
        arguments = {"mode": mode, **target, **more}
        agree(partial(tn.interpolate, **arguments), partial(F.interpolate, **arguments), x, tolerance=1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolation_against_aliasing(mode: str) -> None:
    for size, align in (((3, 11), False), ((2, 3), True)):
        agree(partial(tn.interpolate, size=size, mode=mode, antialias=True, align_corners=align),
              partial(F.interpolate, size=size, mode=mode, antialias=True, align_corners=align), normal(2, 3, 5, 7),
              tolerance=1e-6)


@pytest.mark.parametrize("reduce", ["set", "add", "mul", "max", "min"])
def test_scatter(reduce: str) -> None:
    x, at, u = normal(4, 5), np.stack([RNG.permutation(4)[:3] for _ in range(5)], 1), normal(3, 5)
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    theirs = (lambda x, i, u: x.scatter(0, i, u)) if reduce == "set" else \
        lambda x, i, u: x.scatter_reduce(0, i, u, names[reduce])
    agree(lambda x, i, u: tn.scatter(x, i, u, axis=0, reduce=reduce), theirs, x, at, u)


def test_gather_sort_and_topk() -> None:
    x, at = normal(4, 5), RNG.integers(0, 5, (3, 2))
    agree(lambda x, i: tn.gather(x, i, axis=1), lambda x, i: x.gather(1, i), x, at)
    agree(lambda x: tn.sort(x, axis=0, descending=True), lambda x: x.sort(0, descending=True)[0], x)
    agree(lambda x: tn.topk(x, 2, largest=False)[0], lambda x: x.topk(2, largest=False)[0], x)
    agree(lambda x, i: tn.index_add(x, i, 1.5), lambda x, i: x.index_add(0, i, torch.full((3, 5), 1.5, dtype=x.dtype)),
          x, np.array([0, 0, 3]))


@pytest.mark.parametrize("name", ["inv", "det", "svdvals", "eigvalsh", "cholesky", "matrix_exp", "pinv"])
def test_linear_algebra(name: str) -> None:
    x = normal(2, 3, 3)
    x = x @ x.swapaxes(-1, -2) + np.eye(3)
    agree(getattr(tn.linalg, name), getattr(torch.linalg, name), x, tolerance=1e-7)


def test_einsum() -> None:
    agree(lambda a, b, c: tn.einsum("bij,jk,bk->bi", a, b, c), lambda a, b, c: torch.einsum("bij,jk,bk->bi", a, b, c),
          normal(2, 3, 4), normal(4, 5), normal(2, 5))


SINGULAR = [np.zeros((2, 3)), np.float64([[1, 1, 1], [2, 0, 0]]), np.float64([[0, 1, 0.5], [0, 0.25, 1]])]


@pytest.mark.parametrize("ours, theirs", [
    (lambda x: tn.std(x, axis=1), lambda x: torch.std(x, dim=1, correction=0)),
    (lambda x: tn.std(x), lambda x: torch.std(x, correction=0)),
    (lambda x: tn.linalg.vector_norm(x, axis=1), lambda x: torch.linalg.vector_norm(x, dim=1)),
    (tn.logit, torch.logit), (partial(tn.logit, eps=0.25), partial(torch.logit, eps=0.25)),
    (tn.sqrt, torch.sqrt), (lambda x: tn.prod(x, axis=1), lambda x: torch.prod(x, dim=1)),
    (lambda x: tn.cumprod(x, axis=1), lambda x: torch.cumprod(x, dim=1)),
    (lambda x: tn.cdist(x, x * 1), lambda x: torch.cdist(x, x * 1))])
def test_gradients_where_a_function_has_a_corner_or_an_end(ours: Any, theirs: Any) -> None:
    for x in SINGULAR:
        mine, other = tn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        weights = np.arange(1.0, 1.0 + theirs(other).numel()).reshape(theirs(other).shape)
        (theirs(other) * torch.tensor(weights)).sum().backward()
        gradient = tn.grad(lambda x, weights=weights: (ours(x) * weights).sum())
        for found in (gradient(mine), tn.jit(gradient)(mine)):
            np.testing.assert_allclose(found.numpy(), other.grad.numpy(), rtol=1e-9, equal_nan=True)
