"""Composites whose gradient is recorded: a later call, which is one recipe, does what the first did."""

import numpy as np
import pytest

import tenon as tn
from operator_examples import arguments, differentiable
from tenon.eager.cached_call_node import CallNode
from tenon.graph.text import parse_example
from tenon.types import TensorType

COMPOSITES = [p for p in differentiable() if (op := parse_example(p.id).op).expand is not None and op.vjp is None]


def outcome(example, arrays):
    """Results and gradients of a call."""
    tensors = [tn.tensor(a, requires_grad=a.dtype.kind in "fc") for a in arrays]
    rest = iter(tensors)
    inputs = [next(rest) if isinstance(t, TensorType) else t for t in example.inputs]
    out = example.op(*inputs, **example.attrs)
    outs = [y for y in (out if isinstance(out, tuple) else (out,)) if y.requires_grad]
    total = sum((y * y).abs().sum() if y.dtype.kind == "c" else (y * y).sum() for y in outs)
    if outs:
        total.backward()
    return [y.numpy() for y in outs], [None if x.grad is None else x.grad.numpy() for x in tensors]


@pytest.mark.parametrize("text", COMPOSITES)
def test_a_composite_called_again_has_the_same_results_and_gradients(text):
    example = parse_example(text)
    arrays = arguments(example)
    (values, gradients), *others = [outcome(example, arrays) for _ in range(5)]
    for again, found in others:
        for a, b in zip(values, again, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(gradients, found, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)


def recorded_var(x):
    for _ in range(4):
        y = x.var(axis=-1)
    return y


def test_a_call_is_one_node_on_the_tape_and_can_be_differentiated_twice():
    x = tn.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0]], dtype="f64", requires_grad=True)
    y = recorded_var(x)
    assert isinstance(y.node, CallNode) and y.node.inputs[0].leaf is x
    values = x.numpy()
    np.testing.assert_array_equal(y.numpy(), values.var(axis=-1))
    (y * y).sum().backward(create_graph=True)
    away = values - values.mean(axis=-1, keepdims=True)
    first = 2 * values.var(axis=-1, keepdims=True) * 2 * away / 3
    np.testing.assert_allclose(x.grad.numpy(), first, rtol=1e-12)
    gradient, x.grad = x.grad, None
    gradient[0, 0].backward()
    step = 1e-6
    moved = values.copy()
    moved[0, 1] += step
    slope = (2 * moved[0].var() * 2 * (moved[0, 0] - moved[0].mean()) / 3 - first[0, 0]) / step
    np.testing.assert_allclose(x.grad.numpy()[0, 1], slope, rtol=1e-4)


def test_a_leaf_that_is_assigned_afterwards_keeps_the_gradient_of_what_was():
    x = tn.tensor([1.0, 2.0, 6.0], requires_grad=True)
    y = recorded_var(x)
    with tn.no_grad():
        x.assign(tn.tensor([0.0, 0.0, 0.0]))
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.array([-2.0, -1.0, 3.0]) / 3, rtol=1e-6)


def test_inputs_without_a_gradient_leave_no_nodes():
    x, w = tn.tensor([1.0, 2.0]), tn.tensor([3.0, 4.0], requires_grad=True)
    for _ in range(3):
        y = tn.lerp(w, x, x)
        y.sum().backward()
    assert x.grad is None
    w.grad = None
    with tn.no_grad():
        assert not tn.lerp(w, x, x).requires_grad
