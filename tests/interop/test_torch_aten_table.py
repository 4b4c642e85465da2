"""The rules for ATen's operators, many at once, where they are easy to get wrong: NaN, signs, ties, no elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from interop.test_torch_compile import Function
from interop.torch_compiled import compare

NAN, INF = float("nan"), float("inf")
X = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5, 2.5, -7.0, 3.0])
Y = torch.tensor([2.0, 3.0, NAN, 0.0, 1.0, -0.7, 2.0, -2.0, -3.0, 0.0])
I, J = torch.tensor([-7, 7, -8, 0, 5, -1, 3, 2, 9, -9]), torch.tensor([2, -2, 3, 4, -5, 3, -2, 1, -4, 4])
M = torch.tensor([[3.0, NAN, -1.0, 2.0, 0.5], [1.0, -2.0, 0.0, 4.0, -3.0], [0.1, 5.0, 5.0, -4.0, 2.0]])
B = torch.tensor([True, False, True])


def one(x: Any) -> Any:
    return [torch.sign(x), torch.sgn(x), torch.round(x), torch.floor(x), torch.trunc(x), torch.frac(x), torch.relu(x),
            torch.clamp(x, -1, 2), torch.clamp(x, 3, 1), F.silu(x), F.hardtanh(x), F.leaky_relu(x), F.elu(x),
            F.softplus(x), torch.sqrt(x), torch.rsqrt(x), torch.log(x), torch.exp(x), torch.sigmoid(x), torch.tanh(x),
            x**2, x**3, x**0.5, x**-1, 2**x, torch.isnan(x), torch.signbit(x), x.to(torch.bool), torch.nan_to_num(x),
            torch.logical_not(x), F.mish(x), F.hardswish(x), F.softsign(x), F.logsigmoid(x), F.threshold(x, 0.1, 20.0),
            torch.erf(x), abs(x), -x, torch.reciprocal(x), torch.log1p(x), torch.expm1(x)]


def two(x: Any, y: Any) -> Any:
    return [x + y, x - y, x * y, x / y, torch.remainder(x, y), torch.fmod(x, y), torch.floor_divide(x, y),
            torch.div(x, y, rounding_mode="trunc"), torch.pow(x, y), torch.maximum(x, y), torch.minimum(x, y),
            torch.fmax(x, y), torch.fmin(x, y), torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y), x == y,
            x < y, x != y, torch.logical_and(x, y), torch.where(x > y, x, y), torch.xlogy(x, y), torch.logaddexp(x, y),
            torch.add(x, y, alpha=3), torch.sub(x, y, alpha=0.5), torch.lerp(x, y, 0.3), torch.addcmul(x, y, y, value=2)]


def integers(i: Any, j: Any) -> Any:
    return [i + j, i * j, i // j, i % j, torch.fmod(i, j), i / j, torch.div(i, j, rounding_mode="trunc"), i & j, i | j,
            i ^ j, ~i, i > j, i.float() / j, i * 0.5, i + 2.5, torch.clamp(i, -3, 3), i.abs(), torch.sign(i), i**2,
            torch.maximum(i, j), i.to(torch.uint8), i.to(torch.int8), i << 1, i >> 1, i == 2.5, i.sum(), i.prod(),
            i.cumsum(0), i.float().mean(), i.max(), i.argmin(), torch.exp(i), torch.sqrt(i.abs())]


def along(m: Any) -> Any:
    return [m.sum(), m.sum(0), m.sum((0, 1)), m.mean(1, True), m.amax(1), m.amin(0), m.max(1), m.min(0), m.argmax(1),
            m.argmin(), m.argmax(), torch.any(m > 0, 1), torch.all(m > 0),
            torch._is_all_true(m > 0), torch._is_any_true(m > 0), m.var(1), m.std(0), torch.var_mean(m, 1),
            torch.softmax(m, 1), torch.log_softmax(m, 0), torch.logsumexp(m, 1), torch.cumsum(m, 1),
            torch.cumprod(m, 0), torch.cummax(m, 1), torch.sort(m, 1), torch.sort(m, 0, descending=True),
            torch.topk(m[:2], 3, 1), torch.argsort(m, stable=True, dim=1), torch.linalg.vector_norm(m, dim=1),
            torch.linalg.vector_norm(m, 3, dim=0), m.prod(1), m.norm(), torch.nansum(m), torch.nanmedian(m),
            torch.nanmedian(m, 0), torch.nanmedian(m, 1, True)]


def arranged(m: Any) -> Any:
    return [m.view(torch.int32), m.contiguous().view(torch.int16), (m > 0).view(torch.uint8), m.flip(1), m.roll(2, 1),
            m.roll(3), m.repeat(2, 1, 2), m[::2, 1:-1], m[-1], m[:, [0, 2, 2]],
            m[[0, 1], [2, 3]], m.tril(), m.triu(1), m.diagonal(1), torch.cat([m, m], 1), torch.stack([m, m], 1),
            m.unfold(1, 2, 2) * 1, m.chunk(2, 1), m.split([1, 4], 1), m.unbind(0), F.pad(m, (1, -1, 0, 2), value=3.0),
            m.T, m.expand(2, 3, 5), m.reshape(-1), torch.eye(3), torch.arange(0, 1, 0.1), torch.linspace(0, 1, 5),
            torch.full((2,), 3), m.new_ones(2, 2), torch.tril_indices(3, 3), m.masked_fill(m > 0, 1.0),
            torch.outer(m[0], m[1]), torch.repeat_interleave(m, 2, 0), F.one_hot(torch.tensor([1, 2]), 4)]


def indexed(m: Any, at: Any) -> Any:
    return [torch.gather(m, 1, at), torch.index_select(m, 0, at[0]), m.scatter(1, at, 9.0), m.scatter_add(1, at, at * 0.5),
            m.index_add(0, at[0], torch.ones(2, 5)), m.index_fill(0, at[0], 2.0), m[at], m[:, at], m[at[0], at[1]],
            torch.scatter_reduce(m, 1, at, at * 1.0, "amax"), m.index_put((at[0],), m[:2], accumulate=True),
            torch.take_along_dim(m, m.nan_to_num().argmax(1, True), 1), m[..., -1], m[None, 1],
            torch.ops.aten.index_put(m, [None, at[0]], torch.zeros(2)), torch.histc(m, 4, -3, 5)]


def truths(b: Any) -> Any:
    return [b.sum(), b.any(), b.all(), b.float(), ~b, b & b, b | ~b, b ^ b, b + b, b * b, b.int().cumsum(0),
            torch.where(b, 1, 0), torch.where(b, 1.5, 2.5), b.long().argmax()]


def nothing(e: Any) -> Any:
    return [e.sum(), e.sum(0), e * 2, e.reshape(5, 0), torch.cat([e, e]), e.mean(0), e.t(), torch.softmax(e, 1),
            e @ torch.ones(5, 2), torch.ones(3, 0) @ torch.ones(0, 2)]


@pytest.mark.parametrize(("rules", "inputs"), [
    (one, (X,)), (two, (X, Y)), (integers, (I, J)), (along, (M,)), (arranged, (M,)),
    (indexed, (M, torch.tensor([[0, 2], [1, 0]]))), (truths, (B,)), (nothing, (torch.zeros(0, 5),))],
    ids=lambda x: getattr(x, "__name__", ""))
def test_rules_give_what_pytorch_gives(rules: Any, inputs: Any) -> None:
    compare(Function(rules), *inputs, train=False)


def resampled(x: Any) -> Any:
    return [F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
            F.interpolate(x, size=(11, 5), mode="bicubic", antialias=True),
            F.interpolate(x, size=(9, 5), mode="nearest-exact"), torch.ops.aten.upsample_bilinear2d(x, [9, 5], False),
            F.adaptive_max_pool2d(x, (3, 5), return_indices=True), F.pad(x, (1, 2, 0, 3), mode="replicate")]


def read_between(x: Any, places: Any) -> Any:
    return [F.grid_sample(x, places, mode, padding, align) for mode in ("bilinear", "nearest", "bicubic")
            for padding in ("zeros", "border", "reflection") for align in (True, False)]


def of_volumes(x: Any) -> Any:
    return [F.adaptive_avg_pool3d(x, (2, 3, 4)), F.adaptive_max_pool3d(x, (2, 3, 4))]


def of_rows(m: Any, y: Any) -> Any:
    rows, classes = torch.tensor([2, 0, 2]), torch.tensor([2, 0, 2, 1])
    return [torch.cdist(m, y), torch.cdist(m, y, p=1.0), m.masked_scatter(m > 0, m * 2), F.softshrink(m, 0.3),
            F.hardshrink(m, 0.3), F.multi_margin_loss(m, classes), torch.round(m * 10, decimals=1),
            torch.polygamma(1, m.abs() + 1), torch.special.i0e(m), m.index_reduce(0, rows, y, "amax"),
            torch.put(m, torch.tensor([1, -2]), torch.tensor([1.0, 2.0])), torch.narrow_copy(m, 1, 1, 2),
            torch.dist(m[:3], y), F.bilinear(m, m[:, :4], torch.ones(5, 6, 4)),
            torch.linalg.vector_norm(torch.complex(m, m))]


def of_cubes(x: Any) -> Any:
    return [x.diagonal(dim1=-2, dim2=-1), x.diagonal(1, 0, 2), x.median(1), x.median(), x.kthvalue(2, 0),
            torch.frexp(x)[1],
            torch.linalg.solve_triangular(x + 4 * torch.eye(4), x, upper=True),
            torch.linalg.solve_triangular(x, x[1:2], upper=False, left=False, unitriangular=True)]


def of_matrices(x: Any, b: Any) -> Any:
    a, linalg = x @ x.mT + torch.eye(x.shape[-1]), torch.linalg
    v, w = linalg.eigh(a)[1], linalg.svd(x, full_matrices=False)
    return [linalg.det(x), linalg.det(x.mT), *linalg.slogdet(x), torch.logdet(a), linalg.inv(x), linalg.solve(x, b),
            linalg.solve(x.mT, b), linalg.solve(x, b.mT, left=False), linalg.solve(a, b[..., 0].clone()),
            linalg.cholesky(a), linalg.cholesky(a, upper=True), torch.cholesky_solve(b, linalg.cholesky(a)),
            torch.cholesky_inverse(linalg.cholesky(a)), *linalg.qr(x), v @ v.mT, linalg.eigvalsh(a, UPLO="U"),
            w.U @ w.Vh, linalg.svdvals(x), linalg.matrix_norm(x, 2), linalg.matrix_exp(x / 4), *linalg.lu(x),
            linalg.lu_factor(x).LU, linalg.lu_solve(*linalg.lu_factor(x), b),
            linalg.lu_solve(*linalg.lu_factor(x), b, adjoint=True), linalg.matrix_power(a, -2)]


@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta")
@pytest.mark.parametrize(("rules", "shapes"), [
    (resampled, [(2, 3, 7, 8)]), (read_between, [(2, 3, 5, 6), (2, 4, 3, 2)]), (of_volumes, [(2, 2, 5, 6, 4)]),
    (of_rows, [(4, 6), (3, 6)]), (of_cubes, [(4, 4, 4)]),
    (of_matrices, [(2, 4, 4), (2, 4, 3)])], ids=lambda x: getattr(x, "__name__", ""))
def test_rules_and_their_gradients(rules: Any, shapes: Any) -> None:
    torch.manual_seed(0)
    compare(Function(rules), *(torch.randn(shape) for shape in shapes))


def test_what_is_singular_or_not_positive_is_said_as_pytorch_says_it() -> None:
    info = torch.compile(lambda x: torch.linalg.cholesky_ex(x).info, backend="tenon")
    assert info(torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, -1.0, 1.0]))])).tolist() == [0, 2]
    for call in (torch.linalg.inv, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x)):
        with pytest.raises(torch.linalg.LinAlgError):
            torch.compile(call, backend="tenon")(torch.zeros(3, 3))
