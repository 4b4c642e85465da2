"""`tn.autograd.Function`: what it takes, in `jit`, `vmap` and higher derivatives, and what it says of mistakes."""

import pytest

import tenon as tn
from tenon.errors import ArgumentError


class Cube(tn.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 3 * x * x * g


def test_higher_derivatives_batches_and_compiled_code():
    assert float(tn.grad(tn.grad(Cube.apply))(tn.tensor(2.0))) == 12.0
    assert tn.vmap(tn.grad(Cube.apply))(tn.tensor([1.0, 2.0])).tolist() == [3.0, 12.0]
    step = tn.jit(tn.grad(lambda x: Cube.apply(x).sum()))
    assert step(tn.tensor([1.0, 2.0])).tolist() == step(tn.tensor([1.0, 2.0])).tolist() == [3.0, 12.0]
    assert "1 capture" in str(tn.explain(step))


def test_mistakes_are_told():
    class Short(tn.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g
    with pytest.raises(ArgumentError, match="Short: bwd must return a tuple of 2"):
        Short.apply(tn.tensor([1.0], requires_grad=True), tn.tensor([2.0])).sum().backward()

    class Nothing(tn.autograd.Function):
        pass
    with pytest.raises(ArgumentError, match="the class has no forward"):
        Nothing.apply(tn.tensor([1.0], requires_grad=True))

    class Dirty(tn.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x
    with pytest.raises(ArgumentError, match="mark_dirty is not supported"):
        Dirty.apply(tn.tensor([1.0], requires_grad=True))
