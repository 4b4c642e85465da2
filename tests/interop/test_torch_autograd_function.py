"""`autograd.Function` as PyTorch has it: the same classes on both, their losses and gradients, eager and jitted."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tenon as tn

torch = pytest.importorskip("torch")


def functions(lib: ModuleType) -> Any:
    class Exp(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = lib.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return g * y

    class Scaled(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b=None, scale=2.0):
            ctx.save_for_backward(x, w, b)
            ctx.scale = scale
            out = x @ w.T * scale
            return out if b is None else out + b

        @staticmethod
        def backward(ctx, g):
            x, w, b = ctx.saved_tensors
            of_w = g.T @ x * ctx.scale if ctx.needs_input_grad[1] else None
            return g @ w * ctx.scale, of_w, None if b is None else g.sum(0), None

    class Both(lib.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2, x ** 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.x, = inputs

        @staticmethod
        def backward(ctx, double, square):
            return 2 * double + 2 * ctx.x * square
    return Exp, Scaled, Both


def train(lib: ModuleType, decorate: Any = lambda f: f) -> list[Any]:
    exp, scaled, both = functions(lib)
    rng = np.random.default_rng(0)
    x, w, b = (lib.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((4, 3), (5, 3), (5,)))

    def loss_of(x, w, b):
        double, square = both.apply(exp.apply(scaled.apply(x, w, b, 0.5) * 0.1))
        only, _ = both.apply(x)
        return (double * square).sum() + only.sum() + scaled.apply(x, w).sum()
    f, found = decorate(loss_of), []
    for _ in range(3):
        loss = f(x, w, b)
        loss.backward()
        found += [float(loss.detach()), *(np.array(t.grad.numpy()) for t in (x, w, b))]
    return found


@pytest.mark.parametrize("decorate", [lambda f: f, tn.jit])
def test_classes_with_forward_and_backward_are_as_in_pytorch(decorate):
    for ours, theirs in zip(train(tn, decorate), train(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
