"""A jitted function on the tape keeps what its gradient needs: nothing is computed twice, nothing is kept too long."""

import weakref

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.capture import fast_call_runs, jitted
from tenon.capture.residuals import _backward_of, halves
from tenon.cpython import object_layout
from tenon.errors import GradientError
from tenon.graph.op import OPS
from tenon.ops.branches import as_tuple

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def pieces(f, *args):
    captured = f.capture(*args)
    return halves(captured.graph, captured.wanted)


def gradients(f, shape, *tensors):
    for x in tensors:
        x.grad = None
    out = f(tn.asarray(np.resize(X, shape)))
    sum((y * y).sum() for y in (out if isinstance(out, tuple) else (out,)) if y.requires_grad).backward()
    return [x.grad.numpy() for x in tensors]


W = tn.asarray(X.T.copy()).requires_grad_()
V = tn.ones(3, requires_grad=True)


@pytest.mark.parametrize("function", [
    lambda x: tn.tanh(x @ W) * V.sum(),
    lambda x: (x * V).mean(),                           # its gradient knows the size of the batch from nothing it reads
    lambda x: ((x * V).sum(), tn.argmax(x * V, axis=1), x.shape[0] * V),
    lambda x: tn.where(x > 0, x * V, tn.exp(x) * V).sum(axis=0),
    lambda x: (V * 1.0, V + 0.0),
    lambda x: tn.cumsum(x * V, axis=0),
    lambda x: tn.dropout(x * V, 0.0),
])
def test_gradients_are_those_of_eager_code(function):
    f = tn.jit(function)
    tensors = [W, V] if "W" in function.__code__.co_names else [V]
    for shape in ((4, 3), (5, 3), (6, 3), (1, 3), (6, 3)):
        for got, want in zip(gradients(f, shape, *tensors), gradients(function, shape, *tensors), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_gradient_computes_nothing_again():
    parts = pieces(tn.jit(lambda x: tn.tanh(x @ W).sum()), tn.asarray(X))
    assert [node.op.name for node in parts.parts[0].backward.nodes].count("tanh") == 0
    # x asks for no gradient, so the one product is that for W
    assert [node.op.name for node in parts.parts[0].backward.nodes].count("matmul") == 1
    assert [node.op.name for node in parts.forward.nodes].count("matmul") == 1


def test_what_an_in_place_operation_changes_afterwards_does_not_matter():
    w = tn.ones(3, requires_grad=True)
    f = tn.jit(lambda x: x * w * w)
    x = tn.ones(3)
    for _ in range(3):
        w.grad, y = None, f(x)
        kept = w.numpy().copy()
        with tn.no_grad():
            w.assign(w * 2)
        y.sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), 2 * kept)


def test_what_is_kept_is_let_go_by_backward():
    f = tn.jit(lambda x: tn.tanh(x) * tn.exp(x))
    y = f(tn.ones(3, requires_grad=True)).sum()
    node = next(n for n in y.node.tape() if n.attrs.get("kept"))
    kept = [weakref.ref(a) for k, a in zip(node.attrs["half"].kept, node.attrs["kept"], strict=True) if k < 0]
    assert kept
    y.backward()
    assert not any(a() is not None for a in kept)


def test_what_has_no_gradient_runs_and_says_so_in_backward():
    rounds = OPS.get("rounds_without_gradient") or tn.op("rounds_without_gradient", type=lambda x: x, ref=np.round)
    x = tn.asarray(X).requires_grad_()
    f = tn.jit(lambda x: rounds(x) * 2)
    for _ in range(3):
        y = f(x)
        np.testing.assert_array_equal(y.numpy(), np.round(X) * 2)
        with pytest.raises(GradientError, match="rounds_without_gradient"):
            y.sum().backward()


def test_higher_derivatives():
    f = tn.jit(lambda x: x ** 3 + tn.sin(x))
    found = []
    for g in (f, f.function):
        first = tn.grad(lambda x, g=g: g(x).sum())
        second = tn.grad(lambda x, first=first: first(x).sum())
        third = tn.grad(lambda x, second=second: second(x).sum())
        found.append([d(tn.asarray(X)).numpy() for d in (first, second, third)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    x = tn.asarray(X).requires_grad_()
    f(x).sum().backward(create_graph=True)
    g, x.grad = x.grad, None
    g.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * X - np.sin(X), rtol=1e-5)


def test_what_follows_from_what_is_kept_by_a_few_operations_is_not_kept_beside_it():
    """Of y = tanh(x * V), which V's gradient reads too, y is kept, and not 1 - y * y as well."""
    parts = pieces(tn.jit(lambda x: (tn.tanh(x * V) * V).sum()), tn.asarray(X))
    assert len([k for k in parts.parts[0].kept if k < 0]) == 1
    assert {"multiply", "subtract"} <= {node.op.name for node in parts.parts[0].backward.nodes}
    assert "tanh" not in {node.op.name for node in parts.parts[0].backward.nodes}


def test_what_a_product_reads_is_kept_although_it_follows():
    """relu(y) is a factor of the gradient of W: computing it again would store it again."""
    parts = pieces(tn.jit(lambda x: (tn.maximum(x * V, 0.0) @ tn.exp(W)).sum()), tn.asarray(X))
    assert [node.op.name for node in parts.parts[0].backward.nodes].count("matmul") == 2
    assert "maximum" not in {node.op.name for node in parts.parts[0].backward.nodes}


def test_results_that_share_nothing_are_apart_on_the_tape():
    a, b = nn.Parameter([1.0, 2.0]), nn.Parameter([3.0, 4.0])

    def losses(x, before):
        hidden = a * x
        return (hidden * b.detach()).sum(), (b * x).sum() * a.detach(), hidden.mean(), before * 2, x.max()
    gradients = []
    for f in (losses, tn.jit(losses)):
        a.grad = b.grad = None
        before = (a * a).sum()
        first, second, third, fourth, _ = f(tn.tensor([1.0, -2.0]), before)
        before.backward()
        first.backward(retain_graph=True)
        second.sum().backward()
        third.backward()
        with pytest.raises(GradientError, match="second time"):
            first.backward()
        with pytest.raises(GradientError, match="second time"):
            fourth.backward()
        gradients.append((a.grad.numpy(), b.grad.numpy()))
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-6)


def test_gradients_of_gradients_go_through_one_group():
    a = nn.Parameter([1.0, 2.0])

    def losses(x):
        return (a ** 3 * x).sum(), (a ** 2).sum()
    found = []
    for f in (losses, tn.jit(losses)):
        first, second = f(tn.tensor([1.0, 3.0]))
        (g,) = tn.autograd.grad(first, [a], create_graph=True)
        (h,) = tn.autograd.grad((g * second.detach()).sum(), [a])
        found.append((g.tolist(), h.tolist()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_result_that_nobody_uses_has_no_gradient(recorded):
    """The root of 0 shares its work with the result that is used."""
    compiled = tn.jit(lambda x: (h := tn.sin(x) * 2, (h.sum(), tn.sqrt(h)))[1])
    for _ in range(3):
        x = tn.zeros(2, requires_grad=True)
        found, = tn.autograd.grad(compiled(x)[0], x, create_graph=recorded)
        assert found.tolist() == [2, 2]


def scanned(x):
    carry, rows = tn.scan(lambda h, row: ((h * V + row).tanh(), h.exp()), tn.zeros(3), x)
    return rows.sum(), carry, (rows * V).mean(axis=0)


def branched(x):
    h = x * V
    y = tn.cond(h.sum() > 0, lambda h: h.exp(), lambda h: h.cos(), h)
    return y.sum(axis=0), tn.argmax(h, axis=1), (y * h).mean(), h


@pytest.mark.parametrize("function", [scanned, branched,
                                      lambda x: (h := tn.tanh(x @ W), (h.sum(), tn.softmax(h, axis=-1), h.T @ h))[1]])
def test_gradients_of_some_results_are_those_of_eager_code(function):
    f = tn.jit(function)
    for shape in ((4, 3), (5, 3), (7, 3)):
        x = tn.asarray(np.resize(X, shape))
        for chosen in [(0,), (2,), (0, 2), (0, -1), (-1,), (0, 2, -1)]:
            both = []
            for g in (function, f):
                V.grad = W.grad = None
                out = g(x)
                sum((out[k] * out[k]).sum() for k in chosen).backward()
                both.append([p.grad.numpy() for p in (V, W) if p.grad is not None])
            for want, got in zip(*both, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_one_result_computes_nothing_again():
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))
    f = tn.jit(lambda x: (z := net(x), (nn.functional.cross_entropy(z, tn.zeros(4, dtype="int64")), z))[1])
    f(tn.asarray(X))[0].backward()
    half = pieces(f, tn.asarray(X)).parts[0]
    one = _backward_of(half.forward, half.body, (0,), half.wanted)
    assert {node.op.name for node in one.nodes} <= {node.op.name for node in half.backward.nodes}
    assert len(one.nodes) <= len(half.backward.nodes)


@pytest.mark.skipif(not object_layout.READABLE, reason="this Python's objects are not read")
def test_a_call_on_the_tape_takes_the_fast_path_too(monkeypatch):
    f = tn.jit(lambda x: (tn.tanh(x @ W) * 2, x.sum() + V))
    x = tn.asarray(X)
    W.grad = V.grad = None
    for _ in range(5):
        f(x)
    monkeypatch.setattr(fast_call_runs, "run", None)             # the slow path from here on
    monkeypatch.setattr(jitted.Jitted, "_find_and_run", None)
    for _ in range(3):
        W.grad = V.grad = None
        y, z = f(x)
        (y.sum() + z.sum()).backward()
        np.testing.assert_allclose(W.grad.numpy(), X.T @ (2 - 2 * np.tanh(X @ W.detach().numpy()) ** 2), rtol=1e-5)
        np.testing.assert_array_equal(V.grad.numpy(), np.ones(3))


@pytest.mark.parametrize("function", [lambda x, w: tn.floor(x) * w, lambda x, w: tn.sign(x * w) + w,
                                      lambda x, w: (x // w) + w, lambda x, w: (tn.round(x), w * 2),
                                      lambda x, w: x * 0 + w])
def test_a_gradient_that_nothing_flows_through_stays_none(function):
    """As eagerly: zeros would let an optimizer decay what no loss depends on."""
    found = []
    for f in (function, *[tn.jit(function)] * 3):
        x, w = (tn.tensor([1.5, -2.0, 3.0], requires_grad=True) for _ in range(2))
        sum(y.sum() for y in as_tuple(f(x, w))).backward()
        found.append([None if leaf.grad is None else leaf.grad.tolist() for leaf in (x, w)])
    assert found == [found[0]] * 4
