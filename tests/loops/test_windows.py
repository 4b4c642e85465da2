"""Convolutions, pooling and their gradients as kernels: every stride, padding, dilation and grouping, odd sizes."""

import numpy as np
import pytest

from loops.compiled import check
from loops.test_maps import data
from tenon.graph.text import parse_graph
from tenon.loops.loop_ir import Contraction
from tenon.ops.windows import window_counts
from tenon.types import TensorType, float32

# batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups
CASES = [
    (3, 5, (8, 8), 7, (3, 3), 1, ((1, 1), (1, 1)), 1, 1),
    (2, 4, (9, 11), 6, (3, 2), 2, ((1, 0), (2, 1)), 1, 1),
    (2, 4, (13, 10), 6, (3, 3), 1, ((2, 2), (2, 2)), 2, 2),
    (2, 8, (7, 9), 8, (3, 3), 1, ((1, 1), (1, 1)), 1, 8),
    (1, 3, (12, 8), 16, (4, 4), 4, ((0, 0), (0, 0)), 1, 1),
    (2, 3, (11, 9), 5, (2, 2), 2, ((1, 1), (0, 0)), 1, 1),
    (1, 3, (20,), 9, (5,), 3, ((2, 2),), 1, 1),
    (0, 3, (8, 8), 4, (3, 3), 1, ((1, 1), (1, 1)), 1, 1),
    (2, 16, (6, 6), 32, (3, 3), 2, ((1, 1), (1, 1)), 1, 4),
    (3, 70, (5, 7), 130, (1, 1), 1, ((0, 0), (0, 0)), 1, 1),          # panels of several vectors, in short runs
    (2, 130, (9, 7), 70, (1, 1), 2, ((0, 0), (0, 0)), 1, 1),
]


def types(batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups):
    """(types of x, w and y, the attributes)"""
    dilation = dilation if isinstance(dilation, tuple) else (dilation,) * len(sizes)
    attrs = {"stride": (stride,) * len(sizes), "padding": padding, "dilation": dilation}
    x = TensorType(float32, (batch, channels, *sizes))
    w = TensorType(float32, (outputs, channels // groups, *kernel))
    y = TensorType(float32, (batch, outputs, *window_counts("conv", sizes, kernel, **attrs)))
    return x, w, y, {**attrs, "groups": groups}


def graph_of(op, inputs, result, **attrs):
    """One operator as a graph."""
    listed = ", ".join(f"p{k}: {t}" for k, t in enumerate(inputs))
    given = ", ".join([f"p{k}" for k in range(len(inputs))] + [f"{name}={value!r}" for name, value in attrs.items()])
    return parse_graph(f"def f({listed}):\n    v0: {result} = {op}({given})\n    return v0\n")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_its_gradients(case):
    x, w, y, attrs = types(*case)
    for op, inputs, result, more in (("conv", (x, w), y, {}), ("conv_input_grad", (y, w), x, {"sizes": x.shape[2:]}),
                                     ("conv_weight_grad", (x, y), w, {"kernel": w.shape[2:]})):
        check(graph_of(op, inputs, result, **more, **attrs), *(data(t) for t in inputs), interpreted=False,
              tolerance=1e-3)


@pytest.mark.parametrize("sizes", [(8, 8), (7, 10), (2, 3)])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [
    ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)), ((2, 3), (2, 3), ((1, 0), (0, 1)), (1, 1)),
    ((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)), ((2, 2), (1, 1), ((1, 1), (1, 1)), (1, 2)),
    ((1, 2), (3, 3), ((0, 0), (0, 0)), (1, 1))], ids=str)
def test_pooling_and_its_gradient(sizes, kernel, stride, padding, dilation):
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    x = TensorType(float32, (3, 2, *sizes))
    counts = window_counts("pool", sizes, kernel, stride, padding, dilation)
    y = x.with_shape((3, 2, *counts))
    values = data(x).round()            # some are equal, one is no number
    values.flat[3] = np.nan
    check(graph_of("max_pool_op", (x,), y, **attrs), values)
    lines = (f"def f(g: {y}, x: {x}):", f"    v0: {str(y).replace('f32', 'i32')} = max_pool_taps(x, "
             + ", ".join(f"{k}={v!r}" for k, v in attrs.items()) + ")",
             f"    v1: {x} = max_pool_grad(g, v0, sizes={sizes!r}, "
             + ", ".join(f"{k}={v!r}" for k, v in attrs.items()) + ")", "    return v1")
    check(parse_graph("\n".join(lines) + "\n"), data(y), values)


def test_windows_side_by_side_make_a_transposed_convolution_a_product():
    x, w, y, attrs = types(4, 16, (16, 16), 32, (4, 4), 4, ((0, 0), (0, 0)), 1, 1)
    kernel = check(graph_of("conv_input_grad", (y, w), x, sizes=x.shape[2:], **attrs), data(y), data(w),
                   interpreted=False, tolerance=1e-3)
    assert isinstance(kernel.nests[-1].body[0], Contraction)


def test_a_convolution_and_what_is_done_with_its_result_are_one_nest():
    x, w, y, attrs = types(8, 32, (8, 8), 64, (3, 3), 1, ((1, 1), (1, 1)), 1, 1)
    given = ", ".join(f"{k}={v!r}" for k, v in attrs.items())
    lines = (f"def f(x: {x}, w: {w}):", f"    v0: {y} = conv(x, w, {given})",
             f"    v1: {y} = maximum(v0, 0.0)", "    return v1")
    kernel = check(parse_graph("\n".join(lines) + "\n"), data(x), data(w), interpreted=False, tolerance=1e-3)
    assert len(kernel.nests) == 1


def test_rows_in_long_runs_are_put_together_while_they_are_packed():
    """The gradient of a kernel of one tap: a row is one run an image, and no copy of all rows is made."""
    x, w, y, attrs = types(2, 200, (6, 6), 210, (1, 1), 1, ((0, 0), (0, 0)), 1, 1)
    graph = graph_of("conv_weight_grad", (x, y), w, kernel=(1, 1), **attrs)
    kernel = check(graph, data(x), data(y), interpreted=False, tolerance=1e-3)
    assert kernel.temporaries == ()
