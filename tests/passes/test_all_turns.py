"""Products that leave a scan: the same values, whatever depends on what."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tenon as tn
from structured_graphs import arguments_for, structured_graphs
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.verify import verify
from tenon.ops.loops import scan
from tenon.ops.matrix_products import matmul_op
from tenon.passes.batch_scan_products import batch_scan_products
from tenon.passes.drop_dead import drop_dead


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(structured_graphs(depth=2))
def test_values_stay_the_same(graph: Graph) -> None:
    arrays = arguments_for(graph)
    for got, wanted in zip(interpret(verify(batch_scan_products(graph)), arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def products_inside(graph: Graph) -> list[int]:
    """How many products each scan makes in a turn."""
    return [sum(inner.op is matmul_op for inner in node.attrs["body"].nodes) for node in graph.nodes if node.op is scan]


def rnn(step: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of all states of a network whose step is h, x, w, u -> h."""
    def run(x: Any, h: Any, w: Any, u: Any) -> Any:
        def turn(h: Any, x: Any) -> Any:
            h = step(h, x, w, u)
            return h, h
        return tn.scan(turn, h, x)[1].sum()
    return run


@pytest.mark.parametrize(("step", "left"), [
    (lambda h, x, w, u: tn.tanh(x @ u + h @ w), [1, 1]),            # the state's product, forward and backward
    (lambda h, x, w, u: tn.tanh(tn.exp(x * 0.1) @ u) * h, [0, 0]),
    (lambda h, x, w, u: tn.tanh(x @ u.T.T + h @ w.T), [1, 1]),
    (lambda h, x, w, u: h * 0.5, [0]),
])
def test_gradients_leave_the_loop(step: Callable[..., Any], left: list[int]) -> None:
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s) for s in ((6, 2, 3), (2, 4), (4, 4), (3, 4))]
    inputs = [tn.asarray(a) for a in arrays]
    gradient = tn.grad(rnn(step), argnums=(0, 1, 2, 3))
    jitted = tn.jit(gradient)
    for got, wanted in zip(jitted(*inputs), gradient(*inputs), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)
    assert [n for n in products_inside(drop_dead(batch_scan_products(jitted.capture(*inputs).graph))) if n] == [n for n in left if n]
