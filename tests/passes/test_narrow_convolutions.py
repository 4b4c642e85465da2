"""Convolutions of 16 bits: the same numbers as the definition, in pairs and widened, for sizes and steps of all kinds.

Numbers are -1, 0 and 1, and sums of them below 257, which bfloat16 holds exactly: so every order of adding gives the same.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest

from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.text import print_graph
from tenon.llvm.host_target import host
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.windows import window_counts
from tenon.passes.lower_bf16_convolutions import lower_bf16_convolutions
from tenon.pipeline import compile
from tenon.types import TensorType, bfloat16, float16


def graphs(dtype, sizes, channels, outputs, kernel, padding, groups=1, **attrs):
    """A convolution and its two gradients."""
    counts = window_counts("conv", sizes, kernel, attrs["stride"], padding, attrs["dilation"])
    x, w, g = (TensorType(dtype, shape) for shape in (
        (2, channels, *sizes), (outputs, channels // groups, *kernel), (2, outputs, *counts)))
    attrs |= {"padding": padding, "groups": groups}
    return (trace(partial(conv, **attrs), x, w), trace(partial(conv_input_grad, sizes=sizes, **attrs), g, w),
            trace(partial(conv_weight_grad, kernel=kernel, **attrs), x, g))


def values(graph):
    random = np.random.default_rng(0)
    return [random.choice([-1, 0, 0, 0, 1], p.shape).astype(p.dtype.numpy) for p in graph.params]


def agree(graph, run):
    arrays = values(graph)
    expected = interpret(graph, [x.astype(np.float32) for x in arrays])[0]
    assert np.abs(expected).max() <= 256
    found = run(arrays)[0]
    assert found.dtype == graph.results[0].dtype.numpy
    np.testing.assert_array_equal(found.astype(np.float32), expected)


@pytest.mark.parametrize("pairs", ["registers", "vectors", None])
def test_rewritten_convolutions_agree_with_the_definition(pairs):
    paired = 0
    for size, k, s, d, low, channels in product((8, 5), (1, 2, 3), (1, 2), (1, 2), (0, 1), (32, 16, 3)):
        for graph in graphs(bfloat16, (size, 8), channels, 16, (k, 1), ((low, 1), (0, 0)), stride=(s, 1),
                            dilation=(d, 1)):
            rewritten = lower_bf16_convolutions(graph, pairs)
            agree(graph, lambda arrays, rewritten=rewritten: interpret(rewritten, arrays))
            assert print_graph(lower_bf16_convolutions(rewritten, pairs)) == print_graph(rewritten)
            paired += "f32" not in print_graph(rewritten)
    assert paired > 60 if pairs else not paired


@pytest.mark.parametrize(("pairs", "size", "kernel", "stride", "widens"), [
    ("registers", 24, (3, 3), (1, 1), False), ("vectors", 24, (3, 3), (1, 1), True),
    ("vectors", 7, (3, 3), (1, 1), False), ("vectors", 24, (3, 3), (2, 2), False),
    ("vectors", 24, (5, 5), (1, 1), False), ("vectors", 24, (1, 1), (1, 1), False), (None, 24, (1, 1), (1, 1), True)])
def test_vectors_of_pairs_leave_windows_of_3_x_3_to_winograd(pairs, size, kernel, stride, widens):
    forward, *_ = graphs(bfloat16, (size, size), 32, 16, kernel, ((1, 1), (1, 1)), stride=stride, dilation=(1, 1))
    assert ("f32" in print_graph(lower_bf16_convolutions(forward, pairs))) == widens


def test_a_convolution_of_one_tap_is_a_product_where_vectors_multiply_pairs():
    attrs = {"stride": (1, 1), "dilation": (1, 1)}
    for graph in graphs(bfloat16, (7, 5), 24, 16, (1, 1), ((0, 0), (0, 0)), **attrs)[:2]:
        rewritten = lower_bf16_convolutions(graph, "vectors")
        assert "matmul" in print_graph(rewritten) and "f32" not in print_graph(rewritten)
        agree(graph, lambda arrays, rewritten=rewritten: interpret(rewritten, arrays))
        agree(graph, compile(graph).run)
        assert "matmul" not in print_graph(lower_bf16_convolutions(graph, "registers"))


@pytest.mark.parametrize("pairs", ["registers", "vectors"])
def test_convolutions_of_one_tap_have_no_steps(pairs):
    for graph in graphs(bfloat16, (16, 16), 32, 16, (1, 1), ((0, 0), (0, 0)), stride=(2, 2), dilation=(1, 1))[::2]:
        rewritten = lower_bf16_convolutions(graph, pairs)
        assert "f32" not in print_graph(rewritten) and "stride=(2" not in print_graph(rewritten)
        agree(graph, lambda arrays, rewritten=rewritten: interpret(rewritten, arrays))
        agree(graph, compile(graph).run)


@pytest.mark.parametrize(("channels", "sizes", "kernel", "stride", "low"), [
    (32, (8, 8), (3, 3), (2, 2), 1), (16, (7, 7), (3, 3), (2, 2), 1), (3, (20, 22), (7, 7), (2, 2), 3),
    (3, (9, 9), (5, 5), (1, 1), 2), (24, (7, 7), (1, 1), (1, 1), 0), (11, (13, 14), (2, 4), (3, 3), 0)])
def test_gradients_of_kernels_are_pairs_of_places_where_vectors_multiply_them(channels, sizes, kernel, stride, low):
    *_, graph = graphs(bfloat16, sizes, channels, 16, kernel, ((low, low), (low, low)), stride=stride, dilation=(1, 1))
    rewritten = lower_bf16_convolutions(graph, "vectors")
    assert "f32" not in print_graph(rewritten)
    agree(graph, lambda arrays: interpret(rewritten, arrays))
    made = compile(graph)
    agree(graph, made.run)
    assert host().pairs != "vectors" or any("vdpbf16ps" in unit.ir for unit in made.kernels)


@pytest.mark.parametrize(("channels", "sizes", "kernel", "stride", "low"), [
    (3, (20, 22), (7, 7), (2, 2), 3), (3, (9, 9), (3, 3), (1, 1), 1), (1, (28, 19), (5, 5), (1, 1), 0),
    (2, (16, 17), (2, 2), (2, 2), 0), (32, (17, 16), (4, 2), (1, 2), 1), (5, (40,), (9,), (2,), 4),
    (3, (6, 5, 20), (3, 1, 3), (1, 1, 2), 1)])
def test_convolutions_of_few_channels_are_pairs_of_taps_where_vectors_multiply_them(channels, sizes, kernel, stride,
                                                                                    low):
    graph, *_ = graphs(bfloat16, sizes, channels, 16, kernel, ((low, low),) * len(sizes), stride=stride,
                       dilation=(1,) * len(sizes))
    rewritten = lower_bf16_convolutions(graph, "vectors")
    assert "f32" not in print_graph(rewritten)
    assert print_graph(lower_bf16_convolutions(rewritten, "vectors")) == print_graph(rewritten)
    agree(graph, lambda arrays: interpret(rewritten, arrays))
    made = compile(graph)
    agree(graph, made.run)
    assert host().pairs != "vectors" or any("vdpbf16ps" in unit.ir for unit in made.kernels)


def test_what_is_no_number_stays_beside_the_windows_that_cover_it_and_out_of_all_if_none_does():
    attrs = {"stride": (2, 2), "dilation": (1, 1)}
    for size, place in (18, 17), (20, 10):          # the last column is in no window
        forward, _, to_kernel = graphs(bfloat16, (size, size), 3, 16, (3, 3), ((0, 0), (0, 0)), **attrs)
        for graph in forward, to_kernel:
            x, other = values(graph)
            x[0, 1, 5, place] = np.inf
            found, wanted = (~np.isfinite(run([x, other])[0].astype(np.float32))
                             for run in (compile(graph).run, partial(interpret, graph)))
            assert found[wanted].all()
            assert not found.any() if size == 18 else not np.delete(found, 1, 1).any() if graph is to_kernel else \
                not found[1:].any() and not np.delete(found[0], [3, 4, 5], 2).any()


@pytest.mark.parametrize(("sizes", "kernel", "attrs"), [
    ((8, 12), (3, 3), {"stride": (1, 1), "dilation": (1, 1), "padding": ((1, 1), (1, 1))}),
    ((9, 13), (3, 2), {"stride": (2, 3), "dilation": (1, 2), "padding": ((1, 0), (2, 1))}),
    ((16,), (5,), {"stride": (1,), "dilation": (2,), "padding": ((4, 4),)}),
    ((4, 4, 6), (3, 1, 3), {"stride": (1, 1, 1), "dilation": (1, 1, 1), "padding": ((1, 1), (0, 0), (1, 1))}),
    ((8, 8), (1, 1), {"stride": (1, 1), "dilation": (1, 1), "padding": ((0, 0), (0, 0))}),
    ((8, 8), (3, 3), {"stride": (1, 1), "dilation": (1, 1), "padding": ((-1, 1), (3, -2))}),
])
def test_machine_code_agrees_with_the_definition(sizes, kernel, attrs):
    for dtype, channels, outputs, groups in (bfloat16, 32, 16, 1), (bfloat16, 6, 8, 2), (float16, 5, 3, 1):
        for graph in graphs(dtype, sizes, channels, outputs, kernel, groups=groups, **attrs):
            agree(graph, compile(graph).run)


@pytest.mark.parametrize("dtype", [bfloat16, float16])
@pytest.mark.parametrize(("channels", "outputs", "groups", "sizes", "kernel", "attrs"), [
    (16, 16, 16, (13, 14), (3, 3), {"stride": (1, 1), "dilation": (1, 1), "padding": ((1, 1), (1, 1))}),
    (16, 16, 16, (13, 35), (3, 5), {"stride": (2, 2), "dilation": (1, 1), "padding": ((1, 0), (2, 3))}),
    (9, 9, 9, (6, 8), (2, 2), {"stride": (2, 2), "dilation": (1, 1), "padding": ((0, 0), (0, 0))}),
    (12, 24, 12, (41,), (7,), {"stride": (1,), "dilation": (2,), "padding": ((-1, 9),)}),
    (32, 32, 8, (3, 5, 20), (3, 1, 3), {"stride": (1, 1, 3), "dilation": (1, 1, 1), "padding": ((1, 1),) * 3}),
    (32, 48, 2, (9, 9), (3, 3), {"stride": (1, 1), "dilation": (1, 1), "padding": ((1, 1), (1, 1))}),
    (32, 32, 2, (24, 24), (3, 3), {"stride": (1, 1), "dilation": (1, 1), "padding": ((1, 1), (1, 1))})])
def test_groups_of_few_channels_are_read_as_they_are_and_widened_as_windows_are_copied(dtype, channels, outputs, groups,
                                                                                      sizes, kernel, attrs):
    few = max(channels, outputs) // groups <= 16
    for graph in graphs(dtype, sizes, channels, outputs, kernel, groups=groups, **attrs):
        for pairs in "vectors", None:
            assert ("f32" not in print_graph(lower_bf16_convolutions(graph, pairs))) == few
        assert "f32" in print_graph(lower_bf16_convolutions(graph, "registers"))
        agree(graph, compile(graph).run)


def test_what_is_no_number_stays_in_its_group_and_in_the_windows_that_cover_it():
    attrs = {"stride": (1, 1), "dilation": (1, 1)}
    graph, *_ = graphs(bfloat16, (12, 20), 16, 16, (3, 3), ((1, 1), (1, 1)), groups=16, **attrs)
    x, w = values(graph)
    x[0, 3, 5, 7], x[1, 4, 0, 19] = np.nan, np.inf
    found, wanted = (~np.isfinite(run([x, w])[0].astype(np.float32)) for run in (compile(graph).run,
                                                                                 partial(interpret, graph)))
    np.testing.assert_array_equal(found, wanted)
