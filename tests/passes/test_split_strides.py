"""Phases of strided gradients: the same numbers as the definition, for sizes, kernels, pads and dilations of all kinds."""

from itertools import product

import numpy as np
import pytest

from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.text import print_graph
from tenon.ops.activations import relu
from tenon.ops.convolution import add_to_channels, conv_input_grad, conv_transpose
from tenon.ops.graph_calls import fused
from tenon.ops.matrix_products import matmul_op
from tenon.ops.shape import reshape_op
from tenon.ops.windows import window_counts
from tenon.passes.decompose_strided_gradients import decompose_strided_gradients
from tenon.pipeline import compile, optimize
from tenon.types import TensorType, bfloat16, float32, float64


def gradient(dtype, sizes, kernel, padding, groups=2, channels=2, outputs=None, **attrs):
    """The graph of one input gradient in groups of three outputs, or of one output where a channel stands alone; None
    where no window fits."""
    reach = [d * (k - 1) + 1 for d, k in zip(attrs["dilation"], kernel, strict=True)]
    if any(n + low + high < r for n, (low, high), r in zip(sizes, padding, reach, strict=True)):
        return None
    counts = window_counts("conv", sizes, kernel, attrs["stride"], padding, attrs["dilation"])
    outputs = outputs or (groups if channels == 1 else 3 * groups)
    g, w = TensorType(dtype, (2, outputs, *counts)), TensorType(dtype, (outputs, channels, *kernel))
    return trace(lambda g, w: conv_input_grad(g, w, sizes=sizes, padding=padding, groups=groups, **attrs), g, w)


def values(graph):
    random = np.random.default_rng(0)
    return [random.standard_normal(p.shape).astype(p.dtype.numpy) for p in graph.params]


def test_phases_of_one_axis_agree_with_the_definition():
    tried = 0
    for size, k, s, d, low, high in product((1, 2, 5, 8), (1, 2, 3, 5), (2, 3, 4), (1, 2, 3), (-1, 0, 2), (0, 1)):
        graph = gradient(float64, (size,), (k,), ((low, high),), stride=(s,), dilation=(d,))
        if graph is not None:
            opened, arrays = decompose_strided_gradients(graph), values(graph)
            np.testing.assert_allclose(interpret(opened, arrays)[0], interpret(graph, arrays)[0], atol=1e-12)
            tried += "stride=(1,)" in print_graph(opened)
    assert tried > 300


def test_two_and_three_axes_compiled():
    for sizes, kernel, stride, dilation in [((9, 8), (3, 3), (2, 2), (1, 1)), ((7, 11), (1, 1), (2, 3), (1, 1)),
                                            ((8, 9), (5, 2), (2, 1), (1, 2)), ((9, 8), (3, 2), (3, 2), (1, 1)),
                                            ((5, 6, 7), (3, 2, 3), (2, 2, 1), (1, 1, 1))]:
        padding = tuple((k // 2, k // 2) for k in kernel)
        graph = gradient(float32, sizes, kernel, padding, stride=stride, dilation=dilation)
        arrays = values(graph)
        np.testing.assert_allclose(compile(graph).run(arrays)[0], interpret(graph, arrays)[0], rtol=1e-4, atol=1e-4)


def test_many_phases_are_one_convolution():
    tried = 0
    for size, k, s, low, high, alone in product((3, 8, 13, 32), (4, 5, 8, 16), (3, 4, 8), (-1, 0, 2), (0, 1), (0, 1)):
        graph = gradient(float64, (size, 12), (k, 6), ((low, high), (1, low)), stride=(s, 3), dilation=(1, 1),
                         **({"groups": 3, "channels": 1} if alone else {}))
        if graph is not None:
            opened, arrays = decompose_strided_gradients(graph), values(graph)
            np.testing.assert_allclose(interpret(opened, arrays)[0], interpret(graph, arrays)[0], atol=1e-11)
            tried += sum(node.op is conv_input_grad for node in opened.nodes) == 1
    assert tried > 150


def test_infinities_reach_what_their_windows_cover():
    for sizes, kernel, stride, groups, channels in [((11, 9), (5, 5), (2, 2), 5, 1), ((12, 12), (4, 4), (2, 2), 5, 1),
                                                    ((40, 39), (7, 8), (4, 4), 1, 3), ((40, 40), (8, 8), (4, 4), 1, 3),
                                                    ((7, 7), (3, 3), (2, 2), 1, 120), ((6,), (6,), (1,), 3, 1)]:
        graph = gradient(float32, sizes, kernel, ((1 if len(sizes) == 2 else 0,) * 2,) * len(sizes), groups, channels,
                         stride=stride, dilation=(1,) * len(sizes), outputs=120 if channels == 120 else None)
        g, w = values(graph)
        g[0, 0].flat[0] = np.inf
        found, expected = compile(graph).run([g, w])[0], interpret(graph, [g, w])[0]
        assert np.isfinite(expected).any()
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


def test_few_windows_are_one_product_whose_results_are_added_up():
    tried = 0
    for size, k, s, low, high in product((1, 2, 5, 8), (1, 2, 3, 5), (1, 2, 3), (-1, 0, 2), (0, 1)):
        for dtype in (float32, float64):
            graph = gradient(dtype, (size, 4), (k, 4), ((low, high), (1, low)), 1, 40, outputs=120, stride=(s, 2),
                             dilation=(1, 1))
            if graph is None:
                continue
            opened, arrays = decompose_strided_gradients(graph), values(graph)
            one, other = (interpret(x, arrays)[0] for x in (opened, graph))
            np.testing.assert_allclose(one, other, atol=1e-11 if dtype is float64 else 1e-4)
            tried += any(node.op is matmul_op for node in opened.nodes)
    assert tried > 150


def test_few_windows_compiled():
    for sizes, kernel, stride in [((8, 8), (4, 4), (2, 2)), ((7, 5), (3, 3), (2, 2)), ((9,), (5,), (3,)),
                                  ((4, 4, 6), (3, 2, 4), (2, 1, 2))]:
        graph = gradient(float32, sizes, kernel, tuple((k // 2, k // 3) for k in kernel), 1, 70, outputs=130,
                         stride=stride, dilation=(1,) * len(sizes))
        arrays = values(graph)
        assert any(node.op is matmul_op for node in decompose_strided_gradients(graph).nodes)
        np.testing.assert_allclose(compile(graph).run(arrays)[0], interpret(graph, arrays)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16], ids=str)
def test_channels_that_stand_alone_have_the_same_gradient_compiled(dtype):
    for sizes, kernel, stride in [((9, 8), (4, 4), (2, 2)), ((11, 13), (5, 5), (2, 3)), ((40, 24), (16, 16), (8, 8)),
                                  ((37,), (17,), (4,)), ((7, 7), (7, 7), (1, 1)), ((6, 5, 7), (3, 3, 3), (2, 1, 2))]:
        padding = ((0, 0),) * 2 if sizes == kernel else tuple((k // 3, k // 2) for k in kernel)
        graph = gradient(dtype, sizes, kernel, padding, 5, 1, stride=stride, dilation=(1,) * len(sizes))
        arrays = values(graph)
        tolerance = 0.1 if dtype is bfloat16 else 1e-4
        np.testing.assert_allclose(compile(graph).run(arrays)[0].astype(float),
                                   interpret(graph, arrays)[0].astype(float), rtol=tolerance / 2, atol=tolerance)


def test_few_taps_of_channels_that_stand_alone_stay_as_they_are():
    graph = gradient(float32, (56, 56), (3, 3), ((1, 1), (1, 1)), 64, 1, stride=(2, 2), dilation=(1, 1))
    assert decompose_strided_gradients(graph) is graph


def test_a_single_window_is_one_product_of_matrices_and_its_epilogue():
    for sizes, kernel, padding in [((4, 4), (4, 4), ((0, 0), (0, 0))), ((5,), (3,), ((-1, -1),)),
                                   ((6, 3), (4, 5), ((-1, -1), (2, 0))), ((5, 9), (5, 3), ((0, 0), (1, 1)))]:
        dilation = stride = (1,) * len(sizes)
        graph = gradient(float32, sizes, kernel, padding, stride=stride, dilation=dilation)
        arrays = values(graph)
        text = print_graph(decompose_strided_gradients(graph))
        assert f"sizes={(1,) * len(sizes)}" in text or "sizes=(1, 11)" in text, text
        np.testing.assert_allclose(compile(graph).run(arrays)[0], interpret(graph, arrays)[0], rtol=1e-4, atol=1e-4)


def test_bias_and_activation_are_the_epilogue_of_a_single_window():
    x, w, b = (TensorType(float32, shape) for shape in ((16, 20, 1, 1), (20, 32, 4, 4), (32,)))
    graph = trace(lambda x, w, b: relu(add_to_channels(conv_transpose(x, w), b)), x, w, b)
    assert [node.op for node in optimize(graph).nodes if node.op is not reshape_op] == [fused]
