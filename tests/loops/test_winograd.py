"""Convolutions by Winograd's transforms: windows and sizes that no tile divides, types, epilogues, threads."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loops.compiled import check, run
from loops.test_maps import data
from loops.test_sliding import is_sliding, three
from tenon.backends.cpu.conv_direct import slides
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph, print_graph
from tenon.llvm.host_target import host
from tenon.loops.lower import lower
from tenon.records import replace
from tenon.types import TensorType, bfloat16, float16, float64

SAME = ((1, 1), (1, 1))

# batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups
CASES = [
    (5, 48, (7, 9), 60, (3, 3), 1, SAME, 1, 1),                             # places and filters that no tile divides
    (40, 48, (4, 4), 48, (3, 3), 1, SAME, 1, 1),                            # several images a block, the last not whole
    (1, 45, (45, 36), 48, (3, 3), 1, SAME, 1, 1),                           # several blocks an image
    (16, 64, (4, 4), 80, (3, 3), 1, SAME, 1, 1),                            # one block, many filters
    (4, 45, (14, 8), 64, (3, 3), 1, ((0, 0), (0, 0)), 1, 1),
    (4, 40, (6, 10), 64, (3, 3), 1, ((2, 0), (1, 3)), 1, 1),
    (2, 32, (3, 6, 8), 48, (3, 3, 3), 1, ((1, 1), *SAME), 1, 1),            # planes are images, taps across channels
    (1, 24, (5, 6, 8), 32, (2, 3, 3), 1, ((0, 3), *SAME), 1, 1),
    (1, 32, (2, 3, 8, 6), 32, (2, 2, 3, 3), 1, ((1, 0), (0, 1), *SAME), 1, 1),
    (2, 48, (16, 12), 48, (3, 3), 1, ((2, 2), (2, 2)), 2, 1),               # dilated: tiles stand inside one another
    (1, 48, (50, 31), 48, (3, 3), 1, ((0, 4), (3, 0)), (2, 3), 1),          # several blocks an image, places left over
    (2, 32, (14, 14), 32, (3, 3), 1, SAME, 1, 2),                           # in groups
    (1, 64, (9, 40), 64, (3, 3), 1, ((5, 5), (1, 1)), (5, 1), 1),           # more tiles than places
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution_and_its_gradients(case):
    ways = "winograd_forward", "winograd_forward", "winograd_weight_grad"
    for (graph, inputs), way in zip(three(case), ways, strict=True):
        kernel = check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)
        assert is_sliding(kernel, way), kernel.name


@pytest.mark.parametrize("case", [
    (3, 48, (15, 18), 48, (5, 5), 1, ((2, 2), (2, 1)), 1, 1),               # pieces of three taps and of two
    (4, 64, (31, 28), 64, (5, 4), 2, ((2, 2), (1, 2)), 1, 1),               # every other element is of another piece
    (4, 48, (19, 36), 48, (2, 7), 1, ((0, 0), (5, 5)), (1, 2), 1),          # sides of different lengths, one dilated
], ids=str)
def test_windows_of_other_sizes(case):
    for (graph, inputs), way in zip(three(case), ("winograd_forward", None, "winograd_weight_grad"), strict=True):
        kernel = check(graph, *(data(t, -1, 1) for t in inputs), interpreted=False, tolerance=1e-4)
        assert is_sliding(kernel, way) or way is None, kernel.name


@pytest.mark.parametrize("dtype", [float64, float16, bfloat16], ids=str)
def test_other_element_types(dtype):
    for graph, inputs in three(CASES[0]):
        text = print_graph(graph).replace("f32", str(TensorType(dtype, ())))
        arrays = [data(t).astype(dtype.numpy) for t in inputs]
        kernel = check(parse_graph(text), *arrays, interpreted=False, tolerance={64: 1e-9, 16: 0.2}[dtype.bits])
        expected = dtype is not bfloat16        # which is multiplied in pairs, or widened before
        assert is_sliding(kernel, "winograd_forward", "winograd_weight_grad") == expected


@pytest.mark.parametrize("size", [3, 5])
def test_results_are_as_close_as_those_of_sums_in_a_row(size):
    """Against 64 bits, for numbers of one deviation: not twice the error of products added up one after the other."""
    around = size // 2, size // 2
    graph, (x, w) = next(three((2, 64, (8, 8), 32, (size, size), 1, (around, around), 1, 1)))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(t.shape).astype(np.float32) for t in (x, w)]
    kernel = lower(graph, "f")
    assert is_sliding(kernel, "winograd_forward")
    (found,) = run(kernel, arrays)
    wide = parse_graph(print_graph(graph).replace("f32", "f64"))
    (exact,) = interpret(wide, [a.astype(np.float64) for a in arrays])
    in_a_row = np.zeros_like(found)
    padded = np.pad(arrays[0], ((0, 0), (0, 0), around, around))
    for c in range(64):
        for i in range(size):
            for j in range(size):
                in_a_row += padded[:, c, None, i:i + 8, j:j + 8] * arrays[1][None, :, c, i, j, None, None]
    error, other = (np.sqrt(np.mean((y - exact)**2)) for y in (found, in_a_row))
    assert error < 2 * other


def test_what_is_not_a_number_stays_where_its_windows_are():
    for graph, inputs in list(three(CASES[0]))[:2]:
        arrays = list(map(data, inputs))
        arrays[0][0, 3, 2, 5] = arrays[0][1, 4, 5, 0] = np.nan
        (expected,) = interpret(graph, arrays)
        (found,) = run(lower(graph, "f"), arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("turned", [False, True])
def test_an_epilogue_of_the_gradient_of_a_kernel(turned):
    """What is added lies as the result does; or it does not, and places are found one by one."""
    *_, (graph, _) = three(CASES[3])
    head, body, end = print_graph(graph, locations=False).splitlines()
    w = graph.results[0].type
    more = f"f32{list(w.shape[::-1])}" if turned else str(w)
    step = "permute(b, axes=(3, 2, 1, 0))" if turned else "negative(b)"
    lines = [head.replace(")", f", b: {more})", 1), body, f"    v1: {w} = {step}", f"    v2: {w} = add(v0, v1)",
             end.replace("v0", "v2")]
    graph = parse_graph("\n".join(lines) + "\n")
    kernel = check(graph, *(data(p.type) for p in graph.params), interpreted=False, tolerance=1e-3)
    assert is_sliding(kernel, "winograd_weight_grad")


@pytest.mark.parametrize("steps", [
    ("f32[60]", "f32[60, 1, 1] = reshape(b, shape=(60, 1, 1))",
     "f32[5, 60, 7, 9] = broadcast_to(v1, shape=(5, 60, 7, 9))"),
    ("f32[5, 60, 7, 9]", "f32[5, 60, 7, 9] = negative(b)", "f32[5, 60, 7, 9] = exp(v1)"),
    ("f32[9, 7, 5, 60]", "f32[5, 60, 7, 9] = permute(b, axes=(2, 3, 1, 0))", "f32[5, 60, 7, 9] = exp(v1)")], ids=str)
def test_an_epilogue(steps):
    """A number for each filter, an image that lies as the result does, or one that does not."""
    graph, _ = next(three(CASES[0]))
    head, body, end = print_graph(graph, locations=False).splitlines()
    lines = [head.replace(")", f", b: {steps[0]})", 1), body,
             *(f"    v{k}: {step}" for k, step in enumerate(steps[1:], 1)),
             "    v3: f32[5, 60, 7, 9] = add(v0, v2)", end.replace("v0", "v3")]
    graph = parse_graph("\n".join(lines) + "\n")
    kernel = check(graph, *(data(p.type) for p in graph.params), interpreted=False, tolerance=1e-3)
    assert is_sliding(kernel, "winograd_forward")


@pytest.mark.parametrize("adders", [False, True])
def test_fewer_channels_are_enough_where_additions_have_units_of_their_own(adders):
    machine = replace(host(), separate_add_ports=adders)
    convolution, gradient, _ = three((3, 20, (16, 14), 50, (5, 5), 1, ((2, 2), (2, 2)), 1, 1))
    for graph, inputs in convolution, gradient:
        check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3, target=machine)
    found = slides(lower(convolution[0], "k", target=machine).nests[-1].body[0], machine)
    assert (found is not None and found.way == "winograd_forward") == adders


def test_threads_share_blocks_or_panels():
    """Two panels for three threads, or two groups of filters, or more threads than shares."""
    for case in (CASES[2], (16, 40, (4, 4), 330, (3, 3), 1, SAME, 1, 1)):
        for graph, inputs in three(case):
            check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 5), st.integers(30, 70), st.integers(30, 70), st.tuples(st.integers(3, 20), st.integers(3, 20)),
       st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2), st.tuples(*[st.integers(1, 3)] * 2))
def test_any_sizes(images, channels, filters, sizes, padding, dilation):
    sizes = tuple(n + 2 * d for n, d in zip(sizes, dilation, strict=True))
    for graph, inputs in three((images, channels, sizes, filters, (3, 3), 1, padding, dilation, 1)):
        check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)
