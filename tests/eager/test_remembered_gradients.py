"""Calls that are remembered with their gradient: what they may not change."""

import gc
import threading
import weakref

import numpy as np
import pytest

import tenon as tn
from tenon.eager import call_cache, call_table
from tenon.eager.cached_call_node import CallNode
from tenon.eager.call_table import cached_calls
from tenon.eager.tape import TapeNode

SEED = np.random.default_rng(0)
MATRIX = SEED.standard_normal((4, 6))

CASES = {
    "softmax": lambda x: tn.softmax(x, axis=-1), "log_softmax": lambda x: tn.log_softmax(x, axis=0),
    "cross_entropy": lambda x: tn.cross_entropy(x, tn.tensor([0, 5, 2, 1])),
    "layer_norm": lambda x: tn.layer_norm(x, 6), "gelu": tn.gelu, "silu": tn.silu, "softplus": tn.softplus,
    "x[1:3, ::2]": lambda x: x[1:3, ::2], "x[None, 0]": lambda x: x[None, 0], "x[[2, 0, 2]]": lambda x: x[[2, 0, 2]],
    "x[at]": lambda x: x[tn.tensor([1, 1, 3])], "x[:, at]": lambda x: x[:, tn.tensor([5, -1])],
    "stack": lambda x: tn.stack([x, x * 2]), "cat": lambda x: tn.cat([x, x[:1]]),
    "split": lambda x: tn.split(x, 2, 1)[1], "unbind": lambda x: tn.unbind(x)[2], "var": lambda x: x.var(axis=1),
    "std": lambda x: x.std(), "norm": tn.norm, "linear": lambda x: tn.linear(x, x, x[:, 0]),
    "where": lambda x: tn.where(x > 0, x, 0.0), "max": lambda x: x.max(axis=1), "topk": lambda x: tn.topk(x, 2)[0],
    "sort": lambda x: tn.sort(x, axis=1), "cumsum": lambda x: x.cumsum(1), "matmul": lambda x: x.T @ x,
    "einsum": lambda x: tn.einsum("ij,kj->ik", x, x), "take": lambda x: tn.take(x, tn.tensor(2), 0),
    "gather": lambda x: tn.take_along_axis(x, tn.tensor([[0], [1], [5], [-6]]), axis=1), "tril": lambda x: tn.tril(x),
    "expand": lambda x: x[:, :1].expand(4, 3), "roll": lambda x: tn.roll(x, 1, 0),
    "pad": lambda x: tn.pad(x, [(0, 1), (2, 0)]), "mean": lambda x: x.mean(axis=0, keepdims=True),
    "clip": lambda x: x.clip(-0.5, 0.5), "T": lambda x: x.T, "mse_loss": lambda x: tn.mse_loss(x, x * x),
    "prod": lambda x: x.prod(axis=1), "logsumexp": lambda x: tn.logsumexp(x, 1),
}


def by_operator(function):
    """What a function gives where nothing is remembered."""
    held, times = dict(cached_calls), call_cache.TIMES
    cached_calls.clear()
    try:
        call_cache.TIMES = {True: 10 ** 9, False: 10 ** 9}
        return function()
    finally:
        call_cache.TIMES = times
        cached_calls.update(held)


def gradients(f, array, dtype, create_graph=False):
    x = tn.tensor(array, dtype=dtype, requires_grad=True)
    y = f(x)
    (y * y).sum().backward(create_graph=create_graph)
    found = [y, x.grad]
    if create_graph:
        first, x.grad = x.grad, None
        if first.requires_grad:
            (first * first).sum().backward()
            found.append(x.grad)
    return [None if a is None else a.detach().double().numpy() for a in found]


@pytest.mark.parametrize("create_graph", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_later_calls_give_what_the_operators_give(name, dtype, create_graph):
    arrays = [MATRIX * k for k in (1.0, 0.5, -1.0, 2.0, -0.3)]
    expected = by_operator(lambda: [gradients(CASES[name], a, dtype, create_graph) for a in arrays])
    for array, wanted in zip(arrays, expected, strict=True):
        for a, b in zip(gradients(CASES[name], array, dtype, create_graph), wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                near = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 2e-2}[dtype]     # sums in another order
                np.testing.assert_allclose(a, b, rtol=0, atol=near * max(1e-3, np.abs(b).max()))


def test_gradients_of_some_of_several_results():
    for used in ([0], [1], [0, 2], [2, 1, 0]) * 3:
        x = tn.tensor(MATRIX, requires_grad=True)
        parts = tn.split(x * 1.0, 3, axis=1)
        sum((parts[k] * (k + 1.0)).sum() for k in used).backward()
        wanted = np.zeros((4, 6))
        for k in used:
            wanted[:, 2 * k:2 * k + 2] = k + 1
        np.testing.assert_array_equal(x.grad.numpy(), wanted)


def test_results_without_a_gradient_stay_without():
    for _ in range(5):
        x = tn.tensor(MATRIX, requires_grad=True)
        values, places = tn.topk(x, 2)
        assert values.requires_grad and not places.requires_grad and not x.argmax(axis=1).requires_grad
        assert x.contiguous() is x and tn.squeeze(x).requires_grad


def test_switches_are_part_of_what_is_remembered():
    x, w = tn.ones((2, 3)), tn.ones((4, 3), requires_grad=True)
    for _ in range(4):
        assert tn.linear(x, w).requires_grad
        with tn.no_grad():
            assert not tn.linear(x, w).requires_grad
        with tn.autocast():
            assert tn.linear(x, w).dtype is tn.bfloat16
        assert not tn.linear(x, w.detach()).requires_grad
        assert tn.linear(x[:1], w).shape == (1, 4) and tn.linear(x.double(), w).dtype is tn.float64


def test_one_call_is_one_node_which_lets_go_of_everything():
    for _ in range(5):
        x = tn.tensor(MATRIX, requires_grad=True)
        y = tn.cross_entropy(x, tn.tensor([0, 5, 2, 1]))
    assert type(y.node) is CallNode and [type(k.leaf) for k in y.node.inputs[:1]] == [tn.Tensor]
    node = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        del x, y                                # no cycle holds them
        assert node() is None
    finally:
        gc.enable()


def test_what_was_released_or_assigned():
    for _ in range(5):
        x = tn.tensor([1.0, 2.0, 6.0], requires_grad=True)
        y = tn.softmax(x, axis=0)
        with tn.no_grad():
            x.assign(tn.zeros(3))
        y[0].backward(retain_graph=True)
        y[0].backward()
        p = np.exp([1.0, 2.0, 6.0]) / np.exp([1.0, 2.0, 6.0]).sum()
        np.testing.assert_allclose(x.grad.numpy(), 2 * (p[0] * ((np.arange(3) == 0) - p)), rtol=1e-5)
        with pytest.raises(tn.eager.tape.GradientError, match="second time"):
            y.sum().backward()


def test_errors_are_those_of_the_first_call():
    def wrong(k):
        return tn.take(tn.ones(3, requires_grad=True), tn.tensor([0, k]), axis=0)
    for _ in range(5):
        wrong(2)
    texts = []
    for _ in range(3):
        with pytest.raises(IndexError) as caught:
            wrong(3)
        texts.append(str(caught.value))
    assert len(set(texts)) == 1 and "tn.take(tn.ones(3, requires_grad=True)" in texts[0]


def test_transforms_see_through_remembered_calls():
    def f(x):
        return tn.softmax(x, axis=-1)[..., 0].sum() + tn.layer_norm(x, 6).var()
    x = tn.tensor(MATRIX, dtype="f64")
    wanted = by_operator(lambda: (tn.grad(f)(x), tn.hessian(f)(x[0]), tn.jvp(f, (x,), (x,))[1],
                                  tn.vmap(tn.grad(f))(x)))
    for _ in range(4):
        f(x.detach().requires_grad_()).backward()
        found = tn.grad(f)(x), tn.hessian(f)(x[0]), tn.jvp(f, (x,), (x,))[1], tn.vmap(tn.grad(f))(x)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-14)


def test_a_tape_from_outside_is_gone_through_in_a_captured_function():
    @tn.jit
    def back(x):
        loss = tn.cross_entropy(x * 2.0, tn.tensor([0, 5, 2, 1]))
        loss.backward()
        return loss
    for _ in range(5):
        x, z = (tn.tensor(MATRIX, requires_grad=True) for _ in range(2))
        back(x)
        tn.cross_entropy(z * 2.0, tn.tensor([0, 5, 2, 1])).backward()
        np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_threads_remember_together():
    failures = []

    def work(k):
        try:
            for n in range(40):
                x = tn.tensor(MATRIX[:, :1 + (n + k) % 6], requires_grad=True)
                y = tn.log_softmax(x, axis=0)
                y.sum().backward()
                p = np.exp(y.detach().numpy())
                np.testing.assert_allclose(x.grad.numpy(), 1 - 4 * p, atol=1e-5)
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_no_more_is_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(call_table, "MAX_CALLS", 10)
    for n in range(1, 30):
        x = tn.ones(n, requires_grad=True)
        for _ in range(3):
            tn.softmax(x, axis=0).sum().backward()
    assert len(cached_calls) <= 10


def test_rules_of_users_are_called():
    called = []

    def vjp(g, y, x):
        called.append(1)
        return (g * 2.0,)
    twice = tn.op("twice_as_much_remembered", type=lambda x: x, ref=lambda x: x * 2.0, vjp=vjp, replace=True)
    for k in range(4):
        x = tn.ones(3, requires_grad=True)
        twice(x).sum().backward()
        assert x.grad.tolist() == [2.0] * 3 and len(called) == k + 1
    assert isinstance(twice(x).node, TapeNode)
