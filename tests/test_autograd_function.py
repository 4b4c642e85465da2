"""`tn.autograd.Function`: what it takes, in `jit`, `vmap` and higher derivatives, and what it says of mistakes."""

import pytest

import tenon as tn
from tenon.errors import ArgumentError, GradientError


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


class Doubled(tn.autograd.Function):
    """Twice and three times x; its rule tells results apart that nothing depends on."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return h * 3 if g is None else g * 2 if h is None else g * 2 + h * 3


@pytest.mark.parametrize("place, expected", [(0, 2.0), (1, 3.0)])
def test_no_gradient_is_none_where_it_was_asked_for(place, expected):
    x = tn.ones(2, requires_grad=True)
    Doubled.apply(x)[place].sum().backward()
    assert x.grad.tolist() == [expected] * 2
    pulled = tn.grad(lambda x: Doubled.apply(x)[place].sum())
    assert pulled(tn.ones(2)).tolist() == tn.jit(pulled)(tn.ones(2)).tolist() == [expected] * 2
    assert tn.vmap(tn.grad(lambda x: Doubled.apply(x)[place]))(tn.ones(2)).tolist() == [expected] * 2


class Once(tn.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    @tn.autograd.function.once_differentiable
    def backward(ctx, g):
        x, = ctx.saved_tensors
        assert not tn.is_grad_enabled()
        return tn.tensor(3 * x.numpy() ** 2) * g


def test_a_rule_for_one_derivative_runs_without_gradients_and_refuses_the_second():
    x = tn.tensor([1.0, 2.0], requires_grad=True)
    Once.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]
    first, = tn.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    assert first.tolist() == [3.0, 12.0]
    with pytest.raises(GradientError, match="backward is once_differentiable"):
        first.sum().backward()
    with pytest.raises(GradientError, match="backward is once_differentiable"):
        tn.grad(tn.grad(Once.apply))(tn.tensor(2.0))
