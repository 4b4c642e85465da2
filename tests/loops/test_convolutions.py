"""Convolutions and their gradients, compiled: sizes that fill no vector, strides, dilation, groups, one to three axes."""

import numpy as np
import pytest

from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.loops.loop_ir import Contraction
from tenon.loops.lower import lower
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.windows import window_counts
from tenon.pipeline import compile
from tenon.types import TensorType, bfloat16, float32, float64

# images, channels, sizes, filters, kernel, stride, padding, dilation, groups
CASES = [(2, 3, (9, 11), 7, (3, 3), 1, 1, 1, 1), (5, 8, (7, 7), 12, (3, 3), 1, 1, 1, 1),
         (3, 16, (14, 14), 20, (3, 3), 1, 1, 1, 1), (2, 20, (28, 29), 9, (3, 3), 2, 1, 1, 1),
         (1, 3, (37, 33), 8, (7, 7), 2, 3, 1, 1), (4, 17, (5, 4), 19, (3, 3), 1, 1, 1, 1),
         (2, 6, (13, 17), 8, (3, 2), 1, 2, 3, 2), (2, 8, (15, 16), 8, (3, 3), 3, 0, 1, 1),
         (3, 9, (6, 7), 13, (1, 1), 1, 0, 1, 1), (3, 9, (7, 6), 13, (1, 1), 2, 0, 1, 1),
         (2, 5, (61,), 11, (9,), 1, 4, 1, 1), (2, 4, (5, 6, 7), 6, (2, 3, 3), 1, 1, 1, 1),
         (2, 4, (6, 5, 9), 6, (3, 3, 3), 2, 1, 1, 1), (1, 1, (1, 40), 5, (1, 3), 1, 1, 1, 1)]


def graphs(case, dtype):
    """The convolution and its two gradients."""
    images, channels, sizes, filters, kernel, stride, pad, dilation, groups = case
    count = len(sizes)
    attrs = {"stride": (stride,) * count, "padding": ((pad, pad),) * count, "dilation": (dilation,) * count}
    counts = window_counts("conv", sizes, kernel, attrs["stride"], attrs["padding"], attrs["dilation"])
    x, w, g = (TensorType(dtype, shape) for shape in ((images, channels, *sizes), (filters, channels // groups, *kernel),
                                                      (images, filters, *counts)))
    yield trace(lambda x, w: conv(x, w, groups=groups, **attrs), x, w)
    yield trace(lambda g, w: conv_input_grad(g, w, sizes=sizes, groups=groups, **attrs), g, w)
    yield trace(lambda x, g: conv_weight_grad(x, g, kernel=kernel, groups=groups, **attrs), x, g)


@pytest.mark.parametrize("case", CASES)
def test_all_three_agree_with_numpy(case):
    for graph in graphs(case, float32):
        arrays = [np.random.default_rng(k).standard_normal(p.shape).astype(np.float32) for k, p in enumerate(graph.params)]
        expected = interpret(graph, [a.astype(np.float64) for a in arrays])[0]
        found = compile(graph).run(arrays)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("dtype", [float64, bfloat16])
def test_other_element_types(dtype):
    for graph in graphs(CASES[3], dtype):
        arrays = [np.random.default_rng(k).integers(-2, 3, p.shape).astype(dtype.numpy) for k, p in enumerate(graph.params)]
        expected = interpret(graph, [a.astype(np.float64) for a in arrays])[0]
        found = compile(graph).run(arrays)[0].astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=1e-2 if dtype is bfloat16 else 1e-12, atol=1e-9)


def test_windows_are_columns_of_a_convolution_and_rows_of_its_kernels_gradient():
    case = (16, 8, (14, 14), 16, (3, 3), 1, 1, 1, 1)
    forward, _, to_weight = (contraction_of(graph) for graph in graphs(case, float32))
    assert [i.extent for i in forward.columns] == [16, 14, 14] and [i.extent for i in to_weight.rows] == [8, 3, 3]


def contraction_of(graph):
    return next(s for nest in lower(graph, "k").nests for s in nest.body if isinstance(s, Contraction))
