"""Attention in plain operators becomes the operator, with the same result: what is masked, and nan, included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.capture.residuals import halves
from tenon.graph.ir import Graph
from tenon.ops.attention import attention, attention_gradient
from tenon.pipeline import optimize

N, HEADS, SIZE = 131, 3, 8
softmax = nn.functional.softmax
Form = Callable[..., Any]


def numbers(*shape: int, seed: int = 0) -> Any:
    return tn.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


HEADS_FIRST = [numbers(2, HEADS, N, SIZE, seed=k) for k in range(3)]
HEADS_INSIDE = [numbers(2, N, HEADS, SIZE, seed=k) for k in range(3)]
BIAS = numbers(HEADS, N, N, seed=3)
SOME_KEYS = tn.asarray(np.random.default_rng(4).random((2, 1, 1, N)) < 0.5)
SOME_ROWS = tn.asarray(np.repeat(np.random.default_rng(5).random((2, 1, N, 1)) < 0.5, N, 3))
BUFFER = tn.asarray(np.tri(N, dtype=np.float32)).reshape(1, 1, N, N)


def before() -> Any:
    return tn.tril(tn.ones(N, N)).astype(bool)


def in_einsums(q: Any, k: Any, v: Any) -> Any:
    scores = tn.einsum("blhd,bshd->bhls", q, k) / 3.0 + tn.triu(tn.full((N, N), -math.inf), 1)
    return tn.einsum("bhls,bshd->blhd", softmax(scores, -1), v)


def with_a_buffer(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT) * (1 / math.sqrt(SIZE))
    scores = scores.masked_fill(BUFFER[:, :, :N, :N] == 0, -math.inf)
    return (softmax(scores, -1) @ v).swapaxes(1, 2).reshape(2, N, HEADS * SIZE)


def by_hand(q: Any, k: Any, v: Any) -> Any:
    scores = (q * 0.3) @ k.mT
    e = tn.exp(scores - tn.amax(scores, -1)[..., None])
    return (e / tn.sum(e, -1)[..., None]) @ v


def masked(mask: Any, fill: float) -> Form:
    return lambda q, k, v: softmax(tn.where(mask() if callable(mask) else mask, q @ k.mT / 2.5, fill), -1) @ v


def masked_twice(q: Any, k: Any, v: Any) -> Any:
    scores = tn.where(before(), q @ k.mT, -math.inf)
    return softmax(tn.where(SOME_KEYS, scores, -math.inf), -1) @ v


def far_below(number: float) -> Form:
    """As masks of padding are added: scores of whole rows are this number, beside which that of their count is lost."""
    def form(q: Any, k: Any, v: Any) -> Any:
        return softmax(q @ k.mT / 2.5 + tn.where(tn.logical_and(SOME_ROWS, SOME_KEYS), 0.0, number), -1) @ v
    return form


def added(q: Any, k: Any, v: Any) -> Any:
    return softmax(tn.where(before(), q @ k.mT + BIAS, -math.inf), -1) @ v


def with_slopes(q: Any, k: Any, v: Any) -> Any:
    """Press et al., 2022: distances are added."""
    place = tn.arange(N).astype("float32")
    return softmax(q @ k.mT + (place[None, :] - place[:, None]) * 0.1 + tn.triu(tn.full((N, N), -math.inf), 1), -1) @ v


def in_one_stack(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.reshape(2 * HEADS, N, SIZE) for x in (q, k, v))
    scores = tn.where(SOME_KEYS, (q @ k.mT).reshape(2, HEADS, N, N), -math.inf)
    return softmax(scores.reshape(2 * HEADS, N, N), -1) @ v


# name: (the form, its arguments, whether its gradient is found as well)
FOUND: dict[str, tuple[Form, list[Any], bool]] = {
    "nothing masked": (lambda q, k, v: softmax(q @ k.mT, -1) @ v, HEADS_FIRST, True),
    "matrices": (lambda q, k, v: softmax(q @ k.T, -1) @ v, [numbers(150, 16), numbers(N, 16), numbers(N, 5)], False),
    "einsums": (in_einsums, HEADS_INSIDE, True),
    "a buffer": (with_a_buffer, HEADS_FIRST, True),
    "by hand": (by_hand, HEADS_FIRST, False),
    "causal": (masked(before, -math.inf), HEADS_FIRST, True),
    "causal, finite": (masked(before, -1e9), HEADS_FIRST, True),
    "some keys": (masked(SOME_KEYS, -math.inf), HEADS_FIRST, True),
    "some keys, finite": (masked(SOME_KEYS, -1e9), HEADS_FIRST, True),
    "empty rows": (masked(SOME_ROWS, -math.inf), HEADS_FIRST, True),
    "empty rows, finite": (masked(SOME_ROWS, -1e9), HEADS_FIRST, True),
    "hardly masked": (masked(SOME_ROWS, -2.0), HEADS_FIRST, True),
    "added, far below": (far_below(-1e9), HEADS_FIRST, True),
    "added, below all": (far_below(float(np.finfo(np.float32).min)), HEADS_FIRST, True),
    "masked twice": (masked_twice, HEADS_FIRST, True),
    "added": (added, HEADS_FIRST, False),
    "slopes": (with_slopes, HEADS_FIRST, True),
    "one stack": (in_one_stack, HEADS_FIRST, True),
}

LEFT = {
    "weights are wanted": lambda q, k, v: (lambda weights: (weights @ v, weights))(softmax(q @ k.mT, -1)),
    "another axis": lambda q, k, v: softmax(q @ k.mT, -2) @ v,
    "no maximum": lambda q, k, v: (lambda e: (e / e.sum(-1, keepdims=True)) @ v)(tn.exp(q @ k.mT)),
    "not only scaled": lambda q, k, v: softmax(tn.tanh(q @ k.mT), -1) @ v,
}


def operators(graph: Graph) -> list[str]:
    """Those of attention, also in kernels and loops."""
    found = []
    for node in graph.nodes:
        found += [node.op.name] if node.op in (attention, attention_gradient) else []
        found += [name for body in node.graphs for name in operators(body)]
    return found


def same(f: Form, arguments: list[Any], tolerance: float = 2e-5) -> list[str]:
    """The result is that of eager code; gives the operators in the compiled graph."""
    step = tn.jit(f)
    found, expected = (x if isinstance(x, tuple) else (x,) for x in (step(*arguments), f(*arguments)))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x.astype("float32").numpy(), y.astype("float32").numpy(), tolerance, tolerance)
    return operators(optimize(step.graph(*arguments), backend="cpu"))


def gradients(f: Form) -> Form:
    return lambda q, k, v: tn.grad(lambda *xs: (f(*xs) ** 2).sum(), (0, 1, 2))(q, k, v)


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found(name: str) -> None:
    f, arguments, _ = FOUND[name]
    assert same(f, arguments) == ["attention"]


@pytest.mark.parametrize("name", FOUND)
def test_so_is_its_gradient(name: str) -> None:
    f, arguments, found = FOUND[name]
    assert same(gradients(f), arguments, 2e-4) == ["attention", "attention_gradient"] * found


@pytest.mark.parametrize("number", [-1e9, float(np.finfo(np.float32).min)])
def test_rows_far_below_have_gradients_by_every_way(number: float) -> None:
    """The operator's gradient, eager and compiled, and that of a jitted function, differentiated from outside."""
    mask = tn.where(tn.logical_and(SOME_ROWS, SOME_KEYS), 0.0, number)
    whole = lambda q, k, v: tn.scaled_dot_product_attention(q, k, v, mask, scale=0.4)
    expected = gradients(far_below(number))(*HEADS_FIRST)
    for f in (gradients(whole), tn.jit(gradients(whole)), gradients(tn.jit(far_below(number))),
              gradients(tn.jit(whole))):
        for x, y in zip(f(*HEADS_FIRST), expected, strict=True):
            np.testing.assert_allclose(x.numpy(), y.numpy(), 2e-4, 2e-4)


@pytest.mark.parametrize("name", LEFT)
def test_other_things_are_left_alone(name: str) -> None:
    assert same(LEFT[name], HEADS_FIRST) == []


def test_a_gradient_of_the_bias_needs_the_weights() -> None:
    def step(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return tn.grad(lambda *xs: (softmax(xs[0] @ xs[1].mT + xs[3], -1) @ xs[2]).sum(), (0, 3))(q, k, v, bias)
    assert same(step, [*HEADS_FIRST, BIAS], 2e-4) == []


def test_a_row_in_which_everything_is_masked_is_nan() -> None:
    out = tn.jit(masked(SOME_ROWS, -math.inf))(*HEADS_FIRST).numpy()
    np.testing.assert_array_equal(np.isnan(out).all(-1)[:, 0], ~SOME_ROWS.numpy()[:, 0, :, 0])


def test_in_bfloat16() -> None:
    def narrow(q: Any, k: Any, v: Any) -> Any:
        with tn.autocast():
            return masked(before, -math.inf)(q, k, v)
    assert same(narrow, HEADS_FIRST, 4e-2) == ["attention"]
    assert len(same(gradients(narrow), HEADS_FIRST, 1e-1)) == 2


def test_in_a_loop() -> None:
    def repeated(q: Any, k: Any, v: Any, turns: Any) -> Any:
        return tn.fori_loop(0, turns, lambda _, x: masked(before, -math.inf)(x, k, v), q)
    arguments = [*HEADS_FIRST, tn.asarray(3)]
    assert same(repeated, arguments) == ["attention"]


def test_of_any_length() -> None:
    attend = tn.jit(lambda q, k: softmax(q @ k.mT, -1) @ k)
    for length in (150, 151, 170):
        q, k = (numbers(2, length, 12, seed=length + n) for n in range(2))
        np.testing.assert_allclose(attend(q, k).numpy(), (softmax(q @ k.mT, -1) @ k).numpy(), 2e-5, 2e-5)


def test_a_gradient_taken_outside() -> None:
    """The forward program does not keep the weights."""
    attend = tn.jit(with_a_buffer)
    parts = halves(attend.graph(*HEADS_FIRST), (0, 1, 2))
    assert parts is not None and all(x.size <= N * N for x in parts.forward.results)
    inputs = [tn.tensor(x.numpy(), requires_grad=True) for x in HEADS_FIRST]
    (attend(*inputs) ** 2).sum().backward()
    for x, y in zip(inputs, gradients(with_a_buffer)(*HEADS_FIRST), strict=True):
        np.testing.assert_allclose(x.grad.numpy(), y.numpy(), 2e-4, 2e-4)
