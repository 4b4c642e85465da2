"""Functions and modules to export: what they are given to be captured, and what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from tenon import nn
from tenon.capture.pytree import unfold

generator = np.random.default_rng(0)
Case = tuple[Callable[[], Any], list[Any], list[tuple[np.ndarray, ...]]]


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def doubled_or_less(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def until_large(x):
    while x.sum() < 100:
        x = x * 2 + 1
    return x


def totals(reverse):
    return lambda x: tn.scan(lambda c, r: (c + r, c * r), tn.zeros(3), x, reverse=reverse)


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=2, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def elements(x):
    a = tn.abs(x)
    return (tn.expm1(x), tn.log1p(a), tn.rsqrt(a), tn.softplus(x), tn.silu(x), tn.mish(x), tn.selu(x), tn.hardswish(x),
            tn.trunc(x * 3), x % 0.7, x // 0.7, tn.round(x), tn.clip(x, -0.5, 0.5), tn.where(x > 0, x, 0.0), tn.erf(x),
            x ** 2, x ** 3.0, tn.isfinite(1 / x), x != 0, tn.maximum(x, 0.0), tn.log2(a), tn.exp2(x))


def reduced(x):
    return (x.sum(0), x.mean(), x.max(1), x.argmax(1), x.std(0), x.var(), x.prod(1), x.any(), (x > 0).all(0),
            tn.logsumexp(x, 1), x.argmin())


def shaped(x):
    return (x.reshape(-1), x.T, tn.concat([x, x], 1), tn.stack([x, x]), x.repeat(2, 0), tn.tile(x, (2, 1)),
            tn.pad(x, [(1, 1), (0, 2)]), tn.arange(x.shape[0]), tn.zeros_like(x), tn.tril(x))


def normed(x):
    return tn.group_norm(x, 2), tn.instance_norm(x), tn.rms_norm(x, (6,))


def transformed(x):
    spectrum = tn.fft.rfft(x)
    pairs = tn.fft.fft2(x) * tn.complex(x, x + 1) / 2.0 - tn.conj(tn.fft.fft(x))
    return (tn.abs(spectrum), tn.real(spectrum), tn.fft.irfft(spectrum * 2.0, n=x.shape[1]),
            tn.imag(tn.fft.ifft(pairs.T / (pairs.T + 3.0), axis=0)))


def chosen(k, x):
    return tn.switch(k, [lambda a: a + 1, lambda a: a * 2, lambda a: -a], x)


def pieces(x, y):
    x = x * 1
    x[1:4:2] = y
    x[::-1, 2] = y[0]
    return x, tn.diagonal(x, 1), tn.diagonal(x, -2), tn.trace(x)


def running(x):
    return (tn.cumprod(x, 1), tn.logcumsumexp(x, 0), *tn.cummax(x, 1, return_indices=True), tn.cummin(x, 0),
            tn.searchsorted(tn.sort(x[:, 0]), x), tn.searchsorted(x[0].cumsum(0) * 0, x, side="right"))


def angles(x, y):
    return tn.atan2(x, y), tn.fmax(x, y), tn.fmin(x, y), tn.cbrt(y), tn.xlogy(tn.abs(x), tn.abs(y))


def truths(x):
    least = x.min(0, keepdims=True)
    return (tn.where(x[0], x[1], least[0]), x == least, x.sum(1), x.any(), x.all(0), tn.argmax(x, axis=1),
            *tn.cummax(x, 1, return_indices=True), tn.cummin(x, 0), *tn.topk(x, 2, axis=1))


def systems(x, y):
    return (tn.linalg.det(x), tn.linalg.inv(x), tn.linalg.solve(x, y), *tn.linalg.slogdet(x), tn.linalg.inv(x[..., :1, :1]),
            tn.linalg.inv(x[..., :2, :2]))


def doublings(x):
    found = [x]
    while found[-1].sum() < 100:
        found.append(found[-1] * 2)
    return tn.stack(found), len(found) * x


ODD = np.array([0, 0, 1, -1, np.nan, 0, -0.0, -2], np.float32), np.array([1, -1, 0, 0, 1, 0, -1, -3], np.float32)
PLACES = np.array([[0, 1, 2], [2, 3, 4]])
CASES: dict[str, Case] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2)), ["f32[B, 4]"],
            [(some(3, 4),), (some(1, 4),)]),
    "cnn": (cnn, ["f32[B, 3, 16, 16]"], [(some(2, 3, 16, 16),), (some(5, 3, 16, 16),)]),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32).eval(), ["f32[B, T, 16]"],
                [(some(2, 5, 16),), (some(3, 7, 16),)]),
    "lstm": (lambda: nn.LSTM(3, 4), ["f32[T, B, 3]"], [(some(5, 2, 3),), (some(7, 3, 3),)]),
    "gru": (lambda: nn.GRU(3, 4), [some(5, 2, 3)], [(some(5, 2, 3),)]),
    "branch": (lambda: doubled_or_less, [some(3)], [(some(3),), (np.ones(3, np.float32),), (-some(3),)]),
    "loop": (lambda: until_large, [some(3)], [(np.ones(3, np.float32),), (np.full(3, 200, np.float32),)]),
    "scan": (lambda: totals(False), ["f32[T, 3]"], [(some(5, 3),), (some(2, 3),)]),
    "scan backwards": (lambda: totals(True), [some(5, 3)], [(some(5, 3),)]),
    "count": (lambda: lambda x: tn.fori_loop(0, 5, lambda k, c: c + x * k, tn.zeros(3)), [some(3)], [(some(3),)]),
    "indices": (lambda: lambda x, i: (x[i], x[:, 1], x[::2], tn.flip(x, 0), x[-1], x[1:3, None]),
                [some(5, 3), np.array([1, 2])], [(some(5, 3), np.array([0, -1]))]),
    "mask": (lambda: lambda x: x[x > 0], [some(9)], [(some(9),), (np.ones(9, np.float32),)]),
    "reductions": (lambda: reduced, [some(5, 3)], [(some(5, 3),)]),
    "elements": (lambda: elements, [some(5, 3)], [(some(5, 3),)]),
    "integers": (lambda: lambda x: (x // 3, x % 3, x // -3, tn.abs(x), x.sum(), x * x, x > 2, x.cumsum(0)),
                 [np.arange(-5, 5)], [(np.arange(-5, 5),)]),
    "bools": (lambda: truths, [some(5, 3) > 0], [(some(5, 3) > 0,)]),
    "shapes": (lambda: shaped, ["f32[N, 3]"], [(some(5, 3),), (some(2, 3),)]),
    "orders": (lambda: lambda x: (tn.sort(x, axis=1)[0], tn.argsort(x, axis=0), *tn.topk(x, 2, axis=1)), [some(5, 3)],
               [(some(5, 3),)]),
    "scattered": (lambda: lambda x, i, u: (tn.scatter_add(x, i, u, axis=0), tn.take_along_axis(x, i, axis=0)),
                  [some(5, 3), PLACES, some(2, 3)], [(some(5, 3), PLACES, some(2, 3))]),
    "rows": (lambda: lambda x, i, u: (tn.index_add(x, i, u, axis=1), tn.index_copy(x, i, u, axis=1)),
             [some(5, 3), np.array([2, 0]), some(5, 2)], [(some(5, 3), np.array([2, 0]), some(5, 2))]),
    "attention": (lambda: lambda q: tn.scaled_dot_product_attention(q, q, q, is_causal=True), [some(2, 2, 5, 4)],
                  [(some(2, 2, 5, 4),)]),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), [some(1, 3, 5, 5)],
                   [(some(1, 3, 5, 5),)]),
    "pool": (lambda: nn.AvgPool2d(3, 2, padding=1), [some(1, 3, 8, 8)], [(some(1, 3, 8, 8),)]),
    "norms": (lambda: normed, [some(2, 4, 6)], [(some(2, 4, 6),)]),
    "einsum": (lambda: lambda x, y: tn.einsum("bij,bjk->bik", x, y), [some(2, 3, 4), some(2, 4, 5)],
               [(some(2, 3, 4), some(2, 4, 5))]),
    "embedding": (lambda: nn.Embedding(10, 4), [np.array([[1, 2], [3, 4]])], [(np.array([[1, 2], [9, 0]]),)]),
    "resized": (lambda: lambda x: tn.interpolate(x, scale_factor=2, mode="bilinear"), [some(1, 2, 4, 4)],
                [(some(1, 2, 4, 4),)]),
    "fourier": (lambda: transformed, [some(4, 6)], [(some(4, 6),)]),
    "fourier of odd lengths": (lambda: transformed, [some(3, 5)], [(some(3, 5),)]),
    "one of several": (lambda: chosen, [np.array(1), some(3)], [(np.array(k), some(3)) for k in (-1, 0, 1, 2, 5)]),
    "written places": (lambda: pieces, [some(5, 5), some(2, 5)], [(some(5, 5), some(2, 5))]),
    "running": (lambda: running, [some(4, 5)], [(some(4, 5),)]),
    "angles": (lambda: angles, [some(5, 3), some(3)], [(some(5, 3), some(3))]),
    "odd angles": (lambda: angles, list(ODD), [ODD]),
    "groups of rows": (lambda: lambda x, y, ends: tn.grouped_mm(x, y, offs=ends),
                       [some(6, 2), some(3, 2, 4), np.array([2, 2, 5], np.int32)],
                       [(some(6, 2), some(3, 2, 4), np.array(ends, np.int32)) for ends in ([2, 2, 5], [0, 6, 6], [1, 2, 3])]),
    "linear systems": (lambda: systems, ["f32[B, 4, 4]", "f32[B, 4, 3]"],
                       [(some(2, 4, 4), some(2, 4, 3)), (some(1, 4, 4), some(1, 4, 3))]),
    "rows that the data decide": (lambda: doublings, [some(3)], [(np.ones(3, np.float32),), (np.full(3, 40, np.float32),)]),
    "nest": (lambda: lambda x: {"a": x + 1, "b": [x, x * 2]}, [some(3)], [(some(3),)]),
}


def exported(name: str, **options: Any) -> tuple[Any, Any]:
    """The function of a case, and its model."""
    make, inputs, _ = CASES[name]
    tn.manual_seed(0)
    function = make()
    given = [tn.tensor(x) if isinstance(x, np.ndarray) else x for x in inputs]
    return function, tn.onnx.export(function, given, **options)


def expected(function: Any, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """What the function itself gives."""
    return [x.numpy() for x in unfold(function(*map(tn.tensor, arrays)))[0]]


def assert_same(found: Any, wanted: Any) -> None:
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
