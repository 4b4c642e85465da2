"""Convolutions of bfloat16 tap after tap, which leave out what lies beyond the edges of images."""

from functools import partial

import numpy as np
import pytest

from tenon.backends.cpu.conv_direct.bf16_tap_by_tap import MAX_ROWS
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.text import print_graph
from tenon.llvm.host_target import host
from tenon.loops.expressions import Index
from tenon.loops.window_access import Slide
from tenon.ops.activations import relu
from tenon.ops.convolution import conv, conv_input_grad
from tenon.ops.windows import window_counts
from tenon.passes.lower_bf16_convolutions import lower_bf16_convolutions
from tenon.pipeline import compile
from tenon.runtime.thread_pool import get_num_threads, set_num_threads
from tenon.types import TensorType, bfloat16

# images, channels, sizes, filters, kernel, padding, stride, dilation
CASES = {
    "4x4": (9, 64, (4, 4), 33, (3, 3), ((1, 1), (1, 1)), (1, 1), (1, 1)),
    "prime sizes": (13, 66 * 16, (5, 7), 31, (3, 3), ((1, 1), (1, 1)), (1, 1), (1, 1)),
    "one image": (1, 64, (29, 23), 40, (5, 5), ((2, 2), (2, 2)), (1, 1), (1, 1)),
    "steps of one image": (1, 64, (41, 42), 8, (7, 7), ((3, 3), (3, 3)), (2, 2), (1, 1)),
    "steps": (13, 96, (8, 9), 65, (3, 3), ((1, 1), (1, 1)), (2, 2), (1, 1)),
    "steps down": (13, 96, (8, 9), 16, (3, 3), ((1, 2), (1, 0)), (2, 1), (1, 1)),
    "dilated": (9, 64, (7, 8), 24, (3, 3), ((2, 2), (3, 1)), (1, 1), (2, 2)),
    "a tap beyond all": (40, 64, (3, 3), 16, (3, 3), ((4, 4), (1, 1)), (1, 1), (4, 1)),
    "one tap across": (50, 64, (4, 6), 16, (3, 1), ((1, 1), (0, 0)), (1, 1), (1, 1)),
    "three axes": (5, 64, (3, 4, 4), 16, (3, 3, 3), ((1, 1), (1, 1), (1, 1)), (1, 1, 1), (1, 1, 1)),
    "blocks": (150, 64, (5, 5), 8, (3, 3), ((1, 1), (1, 1)), (1, 1), (1, 1))}


def graphs(images, channels, sizes, filters, kernel, padding, stride, dilation):
    """The convolution, and the gradient of such an input where windows are one step apart."""
    attrs = {"padding": padding, "stride": stride, "dilation": dilation, "groups": 1}
    x, w = (TensorType(bfloat16, shape) for shape in ((images, channels, *sizes), (filters, channels, *kernel)))
    found = [trace(partial(conv, **attrs), x, w)]
    if all(n == 1 for n in stride):
        counts = window_counts("conv", sizes, kernel, stride, padding, dilation)
        g, back = (TensorType(bfloat16, s) for s in ((images, channels, *counts), (channels, filters, *kernel)))
        found.append(trace(partial(conv_input_grad, sizes=sizes, **attrs), g, back))
    return found


def values(graph, scale=1):
    """Few numbers are not 0, and sums below 257, which bfloat16 holds exactly."""
    random = np.random.default_rng(0)
    return [random.choice([-scale, *[0] * 7, scale], p.shape).astype(p.dtype.numpy) for p in graph.params]


def wanted(graph, arrays):
    found = interpret(graph, [x.astype(np.float32) for x in arrays])[0]
    assert np.nanmax(np.abs(found), initial=0, where=np.isfinite(found)) <= 256
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_is_left_out_is_nothing(case):
    for graph in graphs(*CASES[case]):
        rewritten = lower_bf16_convolutions(graph, "vectors")
        assert "conv_channels_last" in print_graph(rewritten) and "pad(" not in print_graph(rewritten)
        arrays = values(graph)
        expected = wanted(graph, arrays)
        np.testing.assert_array_equal(interpret(rewritten, arrays)[0].astype(np.float32), expected)
        made = compile(graph)
        for _ in range(2):
            np.testing.assert_array_equal(made.run(arrays)[0].astype(np.float32), expected)
        if host().pairs == "vectors":
            assert any("vdpbf16ps" in unit.ir and '.epilogue"' in unit.ir for unit in made.kernels)


def test_sums_have_the_same_bits_for_any_number_of_threads():
    images, _, sizes, *_ = CASES["blocks"]
    assert images * sizes[0] * sizes[1] > MAX_ROWS
    before, random = get_num_threads(), np.random.default_rng(0)
    for case in "blocks", "prime sizes":
        graph, *_ = graphs(*CASES[case])
        arrays = [random.normal(size=p.shape).astype(p.dtype.numpy) for p in graph.params]
        found = []
        try:
            for threads in 1, 2, 3:
                set_num_threads(threads)
                found.append(compile(graph).run(arrays)[0].tobytes())
        finally:
            set_num_threads(before)
        assert len(set(found)) == 1


def test_what_is_no_number_stays_in_the_windows_that_cover_it():
    graph, *_ = graphs(*CASES["4x4"])
    x, w = values(graph)
    x[3, 5, 0, 2], w[:] = np.nan, 1
    found = np.isnan(compile(graph).run([x, w])[0].astype(np.float32))
    expected = np.zeros(found.shape, bool)
    expected[3, :, :2, 1:] = True
    np.testing.assert_array_equal(found, expected)


def test_an_epilogue_reads_the_place_that_it_is_of():
    images, channels, sizes, filters, kernel, padding, stride, dilation = CASES["steps"]
    attrs = {"padding": padding, "stride": stride, "dilation": dilation, "groups": 1}
    counts = window_counts("conv", sizes, kernel, stride, padding, dilation)
    types = [TensorType(bfloat16, shape) for shape in (
        (images, channels, *sizes), (filters, channels, *kernel), (images, filters, *counts), (filters, 1, 1))]
    graph = trace(lambda x, w, y, b: relu(conv(x, w, **attrs) + y + b), *types)
    arrays = values(graph)
    np.testing.assert_array_equal(compile(graph).run(arrays)[0].astype(np.float32), wanted(graph, arrays))


def test_large_images_have_zeros_stored_around_them():
    for images, size, kernel, stride in ((8, 56, 3, 2), (1, 7, 3, 1), (32, 2, 3, 1)):
        graph, *_ = graphs(images, 64, (size, size), 32, (kernel, kernel), ((1, 1), (1, 1)), (stride,) * 2, (1, 1))
        assert "pad(" in print_graph(lower_bf16_convolutions(graph, "vectors"))


@pytest.mark.parametrize("step, reach, shift, low, high", [
    (1, 1, -1, 0, 4), (2, 1, -1, 0, 7), (1, 2, -2, 0, 5), (1, -1, 1, 0, 4), (3, 2, -5, 1, 6), (1, 4, -4, 0, 3)])
def test_places_that_have_a_tap_in_memory(step, reach, shift, low, high):
    slide = Slide(Index("p", 5), Index("k", 3), step, reach, shift, 1, 1, low, high)
    for tap in range(3):
        expected = [p for p in range(5) if low <= step * p + reach * tap + shift < high]
        assert list(slide.meets(tap)) == expected
