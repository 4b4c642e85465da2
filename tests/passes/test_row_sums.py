"""Sums that join the product whose rows they add up, and those that do not."""

import numpy as np
import pytest

import tenon as tn
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.passes.fuse import fuse

RNG = np.random.default_rng(5)


def kernels(rows, depth, columns, results="v1, v2", axis="(0,)", value="multiply(v0, h)", total="v1"):
    """Of every node of the fused graph its operators."""
    square = f"f32[{rows}, {columns}]"
    size = columns if axis == "(0,)" else rows
    graph = verify(fuse(parse_graph(
        f"def f(x: f32[{rows}, {depth}], w: f32[{depth}, {columns}], h: {square}):\n    v0: {square} = matmul(x, w)\n"
        f"    v1: {square} = {value}\n    v2: f32[{size}] = sum({total}, axis={axis}, keepdims=False, dtype=f32)\n"
        f"    v3: f32[{size}] = exp(v2)\n    return {results}\n")))
    return {"+".join(n.op.name for n in node.graphs[0].nodes) if node.graphs else node.op.name for node in graph.nodes}


def test_a_sum_of_what_an_epilogue_stores_joins_the_product():
    assert kernels(2048, 64, 512) == {"matmul+multiply+sum"}
    assert kernels(2048, 64, 512, "v1, v3") == {"matmul+multiply+sum+exp"}


def test_other_sums_stay_kernels_of_their_own():
    assert kernels(256, 64, 512) == {"matmul+multiply", "sum"}                      # in a cache when it is stored
    assert kernels(8192, 64, 64, axis="(1,)") == {"matmul+multiply", "sum"}         # along columns
    assert kernels(2048, 4096, 512) == {"matmul+multiply", "sum"}                   # little beside the product
    assert kernels(2048, 64, 512, "v0, v2", total="v0") == {"matmul", "sum"}        # which is only stored


@pytest.mark.parametrize("shape", [(2048, 10, 300), (1027, 33, 513), (4, 300, 40, 512)], ids=str)
def test_gradients_of_a_layer_have_the_same_bits_for_any_number_of_threads(shape):
    *rows, depth, columns = shape
    x, w, b, v = (RNG.standard_normal(s).astype(np.float32)
                  for s in ((*rows, columns), (columns, columns), (columns,), (columns, depth)))

    def step(x, w, b, v):
        parameters = [p.detach().requires_grad_() for p in (w, b, v)]
        (tn.relu(x @ parameters[0] + parameters[1]) @ parameters[2]).square().mean().backward()
        return [p.grad for p in parameters]
    arguments = [tn.asarray(a) for a in (x, w, b, v)]
    expected, before = [g.numpy() for g in step(*arguments)], tn.get_num_threads()
    compiled, found = tn.jit(step), []
    try:
        for count in (1, 2, 3):
            tn.set_num_threads(count)
            found.append([g.numpy() for g in compiled(*arguments)])
    finally:
        tn.set_num_threads(before)
    for one, two, three, want in zip(*found, expected, strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes()
        np.testing.assert_allclose(one, want, rtol=2e-3, atol=5e-4 * np.abs(want).max())
