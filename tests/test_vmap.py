"""`tn.vmap` against a Python loop over the examples: every operator, every choice of what is batched."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tenon as tn
from operator_examples import call, close, data, differentiable, intervals, many, succeeding, weighted, with_floats
from tenon import nn
from tenon.errors import ArgumentError, CaptureError, GradientError, ShapeError
from tenon.graph.op import OPS
from tenon.graph.text import Example, parse_example
from tenon.ops.batching import rule_of
from tenon.transforms import vmap_interpreter
from tenon.types import TensorType, float64

SIZE = 3
SOMETIMES = ["searchsorted"]        # operators whose rule leaves some of what may be batched to the loop



def batches(example: Example, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    """An array for each tensor of the example, of several examples along a new first axis."""
    return [np.stack([data(t, interval, 10 * b + k) for b in range(SIZE)])
            for k, (t, interval) in enumerate(zip(inputs, intervals(example), strict=True))
            if isinstance(t, TensorType)]


def choices(count: int) -> list[tuple[bool, ...]]:
    """Which inputs are batched: all of them, each alone, all but each."""
    found = [flags for flags in product((True, False), repeat=count) if any(flags)]
    return found if count <= 2 else [f for f in found if sum(f) in (1, count - 1, count)]


def batchable() -> list[Any]:
    return [p for p in succeeding() if any(isinstance(t, TensorType) for t in parse_example(p.id).inputs)]


@pytest.mark.parametrize("text", batchable())
def test_every_operator_on_a_batch_is_the_loop_over_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = parse_example(text)
    arrays = batches(example, example.inputs)
    fallen: list[str] = []
    loop = vmap_interpreter.one_by_one
    monkeypatch.setattr(vmap_interpreter, "one_by_one", lambda op, *rest: fallen.append(op.name) or loop(op, *rest))
    for flags in choices(len(arrays)):
        tensors = [tn.asarray(a if flag else a[0]) for a, flag in zip(arrays, flags, strict=True)]
        axes = tuple(0 if flag else None for flag in flags)
        found = many(tn.vmap(lambda *ts: call(example, example.inputs, ts), in_axes=axes)(*tensors))
        rows = [many(call(example, example.inputs,
                          tuple(t[b] if flag else t for t, flag in zip(tensors, flags, strict=True))))
                for b in range(SIZE)]
        for k, got in enumerate(found):
            expected = np.stack([row[k].numpy() for row in rows])
            close(got.numpy(), expected, got.dtype)
    assert not [name for name in fallen if rule_of(OPS[name]) and name not in SOMETIMES]


@pytest.mark.parametrize("text", [p for p in differentiable() if "error" not in p.id])
def test_gradients_an_example_are_those_of_the_loop(text: str) -> None:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = batches(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]

    def gradient(*tensors: Any) -> Any:
        return tn.grad(lambda *ts: weighted(example, inputs, ts) + 0.0, argnums=chosen)(*tensors)
    tensors = list(map(tn.asarray, arrays))
    found = tn.vmap(gradient)(*tensors)
    rows = [gradient(*(t[b] for t in tensors)) for b in range(SIZE)]
    for k, got in enumerate(found):
        np.testing.assert_allclose(got.numpy(), np.stack([row[k].numpy() for row in rows]), rtol=1e-9, atol=1e-11)


def test_an_operator_without_a_rule_runs_example_by_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["cumsum"], "batch", None)
    x = tn.tensor(np.arange(6.0).reshape(3, 2))
    for run in (tn.vmap(lambda x: tn.cumsum(x, axis=0)), tn.jit(tn.vmap(lambda x: tn.cumsum(x, axis=0)))):
        np.testing.assert_array_equal(run(x).numpy(), np.cumsum(x.numpy(), axis=1))


# ---------------------------------------------------------------- axes

def cube() -> tn.Tensor:
    return tn.tensor(np.arange(24.0).reshape(2, 3, 4))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("out", [0, 1, -1])
def test_axes_in_and_out(axis: int, out: int) -> None:
    found = tn.vmap(lambda x: x * 2, in_axes=axis, out_axes=out)(cube())
    np.testing.assert_array_equal(found.numpy(), np.moveaxis(cube().numpy() * 2, axis, out))


def test_axes_are_nests_like_arguments_and_results() -> None:
    tree = {"a": cube(), "b": (tn.ones((5, 2)), 3.0)}
    f = tn.vmap(lambda t, k: {"sum": t["a"].sum() + t["b"][0].sum() * t["b"][1] + k, "same": 7.0, "text": "x"},
                in_axes=({"a": 0, "b": (1, None)}, None), out_axes={"sum": 0, "same": None, "text": None})
    found = f(tree, 1.0)
    np.testing.assert_allclose(found["sum"].numpy(), cube().numpy().sum((1, 2)) + 15 + 1)
    assert found["same"] == 7.0 and found["text"] == "x"


def test_results_shared_by_all_examples_are_repeated() -> None:
    found = tn.vmap(lambda x: (x, 2.0, tn.ones(2)))(tn.tensor([1.0, 2.0, 3.0]))
    assert [y.shape for y in found] == [(3,), (3,), (3, 2)]


def test_keywords_are_batched_along_their_first_axis() -> None:
    found = tn.vmap(lambda x, scale: x * scale, in_axes=(None,))(tn.tensor(2.0), scale=tn.tensor([1.0, 2.0]))
    np.testing.assert_array_equal(found.numpy(), [2, 4])


@pytest.mark.parametrize(("run", "kind", "message"), [
    (lambda: tn.vmap(lambda x, y: x + y)(tn.ones(3), tn.ones(4)), ShapeError,
     "the number of examples differs: f32[3] has 3 along axis 0, f32[4] has 4 along axis 0"),
    (lambda: tn.vmap(lambda x: x)(tn.tensor(1.0)), ShapeError, "a scalar has no axis 0"),
    (lambda: tn.vmap(lambda x: x)(1.0), ShapeError, "the number 1.0 has no axis 0"),
    (lambda: tn.vmap(lambda x: x, in_axes=2)(tn.ones(3)), ShapeError, "in_axes 2 is out of range"),
    (lambda: tn.vmap(lambda x: x, in_axes=None)(tn.ones(3)), ArgumentError, "no argument holds examples"),
    (lambda: tn.vmap(lambda x: x, in_axes=(0, 0))(tn.ones(3)), ArgumentError, "2 entries, and 1 positional"),
    (lambda: tn.vmap(lambda x: x, in_axes=([0],))(tn.ones(3)), ArgumentError, "does not have the form"),
    (lambda: tn.vmap(lambda x: x, out_axes=None)(tn.ones(3)), ArgumentError, "differs between the examples"),
    (lambda: tn.vmap(lambda x: x, out_axes=1)(tn.ones(3)), ShapeError, "out_axes 1 is out of range"),
    (lambda: tn.vmap(lambda x: x.numpy())(tn.ones(3)), CaptureError, "numpy() needs the elements of one example"),
    (lambda: tn.vmap(tn.nonzero)(tn.ones((3, 2))), CaptureError, "the shape of the result depends on the data"),
    (lambda: tn.vmap(tn.ones(3)), ArgumentError, "takes a function"),
])
def test_errors_say_what_to_do(run: Any, kind: type, message: str) -> None:
    with pytest.raises(kind) as caught:
        run()
    assert message in str(caught.value)


# ---------------------------------------------------------------- with one another

def test_batches_of_batches() -> None:
    x, y = tn.tensor(np.arange(4.0)), tn.tensor(np.arange(3.0))
    outer = tn.vmap(tn.vmap(lambda a, b: a * b + a, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_allclose(outer(x, y).numpy(), np.multiply.outer(x.numpy(), y.numpy()) + x.numpy()[:, None])
    z = tn.tensor(np.arange(24.0).reshape(2, 3, 4))
    found = tn.vmap(tn.vmap(lambda v: (v * v).sum(), in_axes=1), in_axes=2)(z)
    np.testing.assert_allclose(found.numpy(), (z.numpy() ** 2).sum(0).T)


W = np.random.default_rng(0).standard_normal((3, 2))
X = np.random.default_rng(1).standard_normal((4, 3))


def loss(w: Any, x: Any) -> Any:
    return tn.tanh(x @ w).sum()


def expected_slopes() -> np.ndarray:
    return np.stack([np.outer(x, 1 - np.tanh(x @ W) ** 2) for x in X])


@pytest.mark.parametrize("make", [
    lambda: tn.vmap(tn.grad(loss), in_axes=(None, 0)), lambda: tn.jit(tn.vmap(tn.grad(loss), in_axes=(None, 0))),
    lambda: tn.vmap(tn.jit(tn.grad(loss)), in_axes=(None, 0)),
    lambda: tn.vmap(tn.grad(tn.jit(loss)), in_axes=(None, 0)),
], ids=["vmap(grad)", "jit(vmap(grad))", "vmap(jit(grad))", "vmap(grad(jit))"])
def test_gradients_an_example(make: Any) -> None:
    np.testing.assert_allclose(make()(tn.tensor(W), tn.tensor(X)).numpy(), expected_slopes(), rtol=1e-10)


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_gradients_through_a_batch(wrap: Any) -> None:
    total = wrap(tn.grad(lambda w, x: tn.vmap(loss, in_axes=(None, 0))(w, x).sum()))
    np.testing.assert_allclose(total(tn.tensor(W), tn.tensor(X)).numpy(), expected_slopes().sum(0), rtol=1e-10)


def test_gradients_through_gradients_an_example() -> None:
    def penalty(f: Any) -> Any:
        return lambda w: (f(w) ** 2).sum()
    by_batch = tn.grad(penalty(lambda w: tn.vmap(tn.grad(loss, argnums=1), in_axes=(None, 0))(w, tn.tensor(X))))
    at_once = tn.grad(penalty(lambda w: tn.grad(lambda x: tn.tanh(x @ w).sum())(tn.tensor(X))))
    np.testing.assert_allclose(by_batch(tn.tensor(W)).numpy(), at_once(tn.tensor(W)).numpy(), rtol=1e-10)


def test_a_gradient_stops_where_it_is_detached_inside_a_batch() -> None:
    found = tn.grad(lambda x: tn.vmap(lambda v: v * v.detach())(x).sum())(tn.tensor([1.0, 2.0]))
    np.testing.assert_allclose(found.numpy(), [1, 2])


def test_a_batch_leaves_parameters_to_backward() -> None:
    w = tn.tensor(W, requires_grad=True)
    tn.vmap(loss, in_axes=(None, 0))(w, tn.tensor(X)).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), expected_slopes().sum(0), rtol=1e-10)


def test_a_batch_of_pullbacks_of_a_compiled_function() -> None:
    _, pullback = tn.vjp(tn.jit(lambda x: tn.tanh(x @ tn.tensor(W))), tn.tensor(X[0]))
    found, = tn.vmap(pullback)(tn.eye(2, dtype="float64"))
    np.testing.assert_allclose(found.numpy(), ((1 - np.tanh(X[0] @ W) ** 2) * W).T, rtol=1e-10)


def test_the_number_of_examples_may_change_under_jit() -> None:
    run = tn.jit(tn.vmap(lambda x: (x * x).sum()))
    for size in (4, 5, 6):
        x = np.random.default_rng(size).standard_normal((size, 3))
        np.testing.assert_allclose(run(tn.tensor(x)).numpy(), (x * x).sum(1))


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_a_tensor_of_its_own_may_be_changed_under_a_derivative(wrap: Any) -> None:
    base = tn.tensor([1.0, 2.0, 3.0])

    def changed(a: Any) -> Any:
        y = base * 1
        y[1] = a.sum()
        return y
    rows = tn.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    along = wrap(tn.vmap(lambda a: tn.jvp(changed, (a,), (a,))[1]))(rows)
    np.testing.assert_array_equal(along.numpy(), [[0, 3, 0], [0, 7, 0], [0, 11, 0]])
    np.testing.assert_array_equal(wrap(tn.vmap(tn.jacfwd(changed)))(rows).numpy()[:, 1], np.ones((3, 2)))


def test_what_differs_between_examples_does_not_leak() -> None:
    outside = tn.tensor([0.0, 0.0])

    def leaks(x: Any) -> Any:
        outside.assign(x)
        return x
    with pytest.raises(CaptureError, match="assigns to a tensor from outside"):
        tn.vmap(leaks)(tn.ones((3, 2)))
    np.testing.assert_array_equal(outside.numpy(), [0, 0])
    w = tn.tensor(2.0, requires_grad=True)
    with pytest.raises(GradientError, match=r"backward\(\) inside tn.vmap"):
        tn.vmap(lambda x: (x * w).backward())(tn.ones(3))
    assert w.grad is None


def test_local_tensors_may_change_inside_a_batch() -> None:
    def f(x: Any) -> Any:
        y = tn.zeros(2)
        y += x
        y[0] = x[1] * 2
        return y, {"y": y}
    found, again = tn.vmap(f)(tn.tensor([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(found.numpy(), [[4, 2], [8, 4]])
    np.testing.assert_array_equal(again["y"].numpy(), found.numpy())


def test_backward_inside_a_batch_on_tensors_of_its_own() -> None:
    def slope(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (x * x).sum().backward()
        return x.grad
    np.testing.assert_array_equal(tn.vmap(slope)(tn.tensor([[1.0, 2.0], [3.0, 4.0]])).numpy(), [[2, 4], [6, 8]])


def test_random_numbers_are_the_same_for_all_examples() -> None:
    _ = tn.manual_seed(0)
    found = tn.vmap(lambda x: x + tn.rand(2))(tn.zeros((3, 2))).numpy()
    assert (found == found[0]).all()
    _ = tn.manual_seed(0)
    np.testing.assert_array_equal(found[0], tn.rand(2).numpy())


def test_layers_on_a_batch() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(16),
                        nn.Linear(16, 2))
    x = tn.tensor(np.random.default_rng(0).standard_normal((5, 1, 6, 6)).astype(np.float32))
    for wrap in (lambda f: f, tn.jit):
        found = wrap(tn.vmap(lambda x: net(x.reshape(1, 1, 6, 6))[0]))(x)
        np.testing.assert_allclose(found.numpy(), net(x).numpy(), rtol=1e-4, atol=1e-5)
        slope = wrap(tn.vmap(tn.grad(lambda x: (net(x.reshape(1, 1, 6, 6)) ** 2).sum())))(x)
        expected = tn.grad(lambda x: (net(x) ** 2).sum())(x)
        np.testing.assert_allclose(slope.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)


def test_the_gradient_of_pooling_on_a_batch() -> None:
    x = tn.tensor(np.random.default_rng(0).standard_normal((3, 2, 6, 6)))
    slope = tn.grad(lambda x: (tn.max_pool2d(x, 2) ** 2).sum())
    np.testing.assert_allclose(tn.vmap(slope)(x).numpy(), slope(x).numpy())
