"""Random nests of branches and loops: jitted they are what they are eagerly, and so are their derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenon as tn

State = tuple[Any, Any]
Step = Callable[[State, Any], State]        # of two vectors, and a weight that is closed over

SIMPLE: list[Step] = [
    lambda s, w: (tn.sin(s[0]) + s[1], s[1]),
    lambda s, w: (s[0] * w, tn.tanh(s[1] + s[0])),
    lambda s, w: (s[1], s[0] * 0.5),
    lambda s, w: (s[0] + 0.1, s[1].detach() * s[0]),
    lambda s, w: (tn.stack([s[0][1], s[0][0] * s[1][0]]), s[1]),
    lambda s, w: (s[0], tn.sqrt(s[1] * s[1] + 1) * w[0]),
]


def chosen(low: Step, high: Step, bound: float) -> Step:
    return lambda s, w: tn.cond(s[0].sum() > bound, lambda: high(s, w), lambda: low(s, w))


def switched(steps: list[Step]) -> Step:
    return lambda s, w: tn.switch((s[1][0] * 3).astype("i64"), [lambda f=f: f(s, w) for f in steps])


def repeated(step: Step, most: int) -> Step:
    def run(s: State, w: Any) -> State:
        def more(c: Any) -> Any:
            return (c[0] < most) & ((c[1][0] * c[1][0]).sum() < 9)
        return tn.while_loop(more, lambda c: (c[0] + 1, step(c[1], w)), (0, s))[1]
    return run


def scanned(step: Step, length: int, reverse: bool) -> Step:
    def run(s: State, w: Any) -> State:
        def body(c: State, x: Any) -> Any:
            a, b = step(c, w)
            return (a, b + x), a * x
        xs = tn.arange(length * 2).reshape(length, 2).astype("f64") * 0.1 + w
        (a, b), ys = tn.scan(body, s, xs, reverse=reverse)
        return tn.tanh(a + ys.sum(axis=0)), b
    return run


def mapped(step: Step, rows: int) -> Step:
    def run(s: State, w: Any) -> State:
        a, b = tn.vmap(lambda k: step((s[0] * k, s[1] + k), w))(tn.arange(rows).astype("f64") * 0.3)
        return tn.tanh(a.sum(axis=0)), tn.tanh(b.sum(axis=0))
    return run


def followed(first: Step, second: Step) -> Step:
    return lambda s, w: second(first(s, w), w)


steps: Any = st.recursive(st.sampled_from(SIMPLE), lambda inner: st.one_of(
    st.builds(chosen, inner, inner, st.sampled_from([-0.5, 0.0, 0.7])),
    st.builds(switched, st.lists(inner, min_size=1, max_size=3)),
    st.builds(repeated, inner, st.integers(0, 4)),
    st.builds(scanned, inner, st.integers(0, 5), st.booleans()),
    st.builds(mapped, inner, st.integers(1, 3)),
    st.builds(followed, inner, inner)), max_leaves=5)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(step=steps, seed=st.integers(0, 9))
def test_random_programs_and_their_gradients(step: Step, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, w = (tn.tensor(rng.normal(size=2)) for _ in range(3))

    def loss(a: Any, b: Any, w: Any) -> Any:
        x, y = step((a, b), w)
        return (x * tn.tensor([1.0, -0.7], dtype="f64")).sum() + (y * y).sum()
    args, gradient = (a, b, w), tn.grad(loss, argnums=(0, 1, 2))
    expected = [loss(*args), *gradient(*args)]
    jitted = tn.jit(loss, fullgraph=True)
    for found in ([jitted(*args), *tn.grad(jitted, argnums=(0, 1, 2))(*args)],
                  [expected[0], *tn.jit(gradient, fullgraph=True)(*args)]):
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)
    direction = tuple(tn.tensor(rng.normal(size=2)) for _ in range(3))
    slope = sum((g * t).sum() for g, t in zip(expected[1:], direction, strict=True))
    tangent = tn.jit(lambda *xs: tn.jvp(loss, xs[:3], xs[3:])[1], fullgraph=True)(*args, *direction)
    np.testing.assert_allclose(tangent.numpy(), slope.numpy(), rtol=1e-9, atol=1e-12)
