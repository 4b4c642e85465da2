"""Memory that several threads have done with is free for the next step, where that is worth a barrier."""


import numpy as np
import pytest
from hypothesis import given, settings

from graphs import arrays_for, assert_close, graphs
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph
from tenon.pipeline import compile
from tenon.runtime import barrier_placement
from tenon.runtime.program import Program

pytestmark = pytest.mark.usefixtures("three_threads")


def one_product_after_the_other(size: int) -> Program:
    """Nothing of the second chain reads what the first one makes."""
    made = compile(parse_graph(f"""
def f(x: f32[{size}, {size}], y: f32[{size}, {size}], v: f32[{size}, 7]):
    v0: f32[{size}, {size}] = matmul(x, x)
    v1: f32[{size}, 7] = matmul(v0, v)
    v2: f32[{size}, {size}] = matmul(y, y)
    v3: f32[{size}, 7] = matmul(v2, v)
    return v1, v3
"""), backend="cpu")
    assert isinstance(made, Program)
    return made


@pytest.mark.parametrize("size, squares, barriers", [(640, 1, 3), (300, 2, 2)])
def test_a_large_value_takes_the_place_of_one_that_is_done_with(size: int, squares: int, barriers: int) -> None:
    made = one_product_after_the_other(size)
    assert made.plan.threads == 3
    assert made.plan.memory.size == squares * size * size * 4
    assert made.plan.labels.count("barrier") == barriers
    arrays = [np.random.default_rng(0).random((size, n), np.float32) / size for n in (size, size, 7)]
    assert_close(made.run(arrays), interpret(made.graph, arrays))


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_a_barrier_may_stand_anywhere(graph: Graph) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(barrier_placement, "MIN_FREED_BYTES", 0)
        arrays = arrays_for(graph)
        assert_close(compile(graph, backend="cpu").run(arrays), interpret(graph, arrays))
