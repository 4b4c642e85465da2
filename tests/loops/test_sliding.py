"""Convolutions that are computed window by window: every stride, dilation, padding, element type, many blocks."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loops.compiled import check, llvm_text, run
from loops.test_maps import data
from loops.test_windows import graph_of, types
from tenon.backends.cpu.conv_direct import slides
from tenon.backends.cpu.conv_direct.weight_grad_wide import filter_plan_of
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph, print_graph
from tenon.llvm.host_target import host
from tenon.loops.loop_ir import Contraction
from tenon.loops.lower import lower
from tenon.types import TensorType, bfloat16, float16, float64

# batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups
CASES = [
    (2, 8, (28, 28), 8, (3, 3), 1, ((1, 1), (1, 1)), 1, 8),
    (2, 16, (9, 33), 16, (3, 2), 1, ((0, 2), (1, 0)), 1, 8),
    (2, 8, (16, 35), 24, (3, 3), 1, ((1, 1), (1, 1)), 2, 8),
    (2, 8, (15, 34), 8, (3, 3), 2, ((1, 1), (1, 1)), 1, 8),
    (1, 16, (21, 50), 16, (5, 3), 3, ((2, 2), (1, 1)), 1, 8),
    (3, 8, (400,), 8, (9,), 1, ((4, 4),), 1, 8),
    (2, 8, (5, 6, 21), 8, (3, 3, 3), 1, ((1, 1), (1, 1), (1, 1)), 1, 8),
    (2, 8, (7, 6, 21), 8, (2, 3, 3), 2, ((1, 0), (1, 1), (0, 1)), 1, 8),
    (3, 8, (1, 90), 8, (1, 5), 1, ((0, 0), (2, 2)), 1, 8),
    (1, 8, (200, 200), 8, (3, 3), 1, ((1, 1), (1, 1)), 1, 8),         # several blocks of rows
    (1, 8, (50000,), 8, (5,), 1, ((2, 2),), 1, 8),                    # and of a row
    (2, 8, (12, 12), 8, (8, 8), 1, ((4, 3), (4, 3)), 1, 8),           # more taps than registers
    (2, 8, (13, 30), 8, (5, 5), 2, ((2, 2), (2, 2)), 1, 8),           # places are quotients, a whole number further on
    (1, 8, (14, 29), 8, (7, 4), 2, ((3, 3), (4, 1)), 1, 8),
    (1, 8, (17, 23), 8, (5, 7), 3, ((3, 2), (7, 3)), 1, 8),
    (2, 32, (12, 19), 32, (3, 3), 1, ((1, 1), (1, 1)), 1, 8),
    (1, 40, (11, 18), 24, (3, 3), 1, ((1, 1), (1, 1)), 1, 8),         # filters that no tile divides
]


def three(case):
    """(graph, types of its inputs) of a convolution and its gradients."""
    x, w, y, attrs = types(*case)
    for op, inputs, result, more in (("conv", (x, w), y, {}), ("conv_input_grad", (y, w), x, {"sizes": x.shape[2:]}),
                                     ("conv_weight_grad", (x, y), w, {"kernel": w.shape[2:]})):
        yield graph_of(op, inputs, result, **more, **attrs), inputs


def is_sliding(kernel, *ways):
    statement = kernel.nests[-1].body[0]
    found = slides(statement, host()) if isinstance(statement, Contraction) else None
    return found is not None and found.way in (ways or ("forward_few_filters", "weight_grad_depthwise"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_three_window_by_window(case):
    for graph, inputs in three(case):
        kernel = check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)
        assert is_sliding(kernel), kernel.name


@pytest.mark.parametrize("dtype", [float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_other_element_types(dtype, stride):
    case = (2, 8, (9, 37), 8, (3, 3), stride, ((1, 1), (1, 1)), 1, 8)
    for graph, inputs in three(case):
        text = print_graph(graph).replace("f32", str(TensorType(dtype, ())))
        arrays = [data(t).astype(dtype.numpy) for t in inputs]
        kernel = check(parse_graph(text), *arrays, interpreted=False,
                       tolerance={64: 1e-9, 16: 0.15}[dtype.bits])
        assert is_sliding(kernel)


def test_what_is_not_a_number_stays_where_its_windows_are():
    """Lanes beyond a row's end multiply what belongs to other windows."""
    case = (2, 8, (6, 21), 8, (3, 3), 1, ((1, 1), (1, 1)), 1, 8)
    for graph, inputs in three(case):
        arrays = list(map(data, inputs))
        arrays[0][0, 3, 2, 20] = np.nan
        arrays[0][1, 4, 5, 0] = np.inf
        with np.errstate(invalid="ignore"):
            (expected,) = interpret(graph, arrays)
        (found,) = run(lower(graph, "f"), arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


WIDE = [
    (3, 5, (9, 11), 16, (3, 3), 1, ((1, 1), (1, 1)), 1, 1),
    (2, 3, (40, 45), 40, (7, 7), 2, ((3, 3), (3, 3)), 1, 1),
    (70, 4, (4, 4), 33, (3, 3), 1, ((1, 1), (1, 1)), 1, 1),           # several images a block, the last not whole
    (1, 4, (61, 50), 17, (3, 3), 1, ((1, 1), (1, 1)), 1, 1),          # several blocks an image, the last not whole
    (2, 4, (30, 25), 16, (3, 2), 1, ((0, 2), (1, 0)), 2, 1),
    (2, 9, (130,), 18, (3,), 1, ((2, 0),), 1, 1),                     # several channels a tile, the last not whole
    (2, 4, (5, 6, 11), 16, (3, 3, 3), 1, ((1, 1), (1, 1), (1, 1)), 1, 1),
]


@pytest.mark.parametrize("case", WIDE, ids=str)
def test_the_gradient_of_a_kernel_with_many_filters(case):
    *_, (graph, inputs) = three(case)
    kernel = check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)
    assert is_sliding(kernel, "weight_grad_wide")


def test_a_convolution_with_a_long_step_is_no_gradient_of_a_kernel():
    """Its places and taps may change their parts, which makes 3 x 3 places and 64 taps."""
    (graph, inputs), *_ = three((8, 16, (16, 16), 32, (3, 3), 2, ((1, 1), (1, 1)), 1, 1))
    kernel = check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)
    assert not is_sliding(kernel, "weight_grad_wide")


def test_an_epilogue_of_the_gradient_of_a_kernel():
    """What is added lies as the result does; or it does not, and places are found one by one."""
    *_, (graph, (x, y)) = three(WIDE[0])
    text = print_graph(graph, locations=False)
    head, body, end = text.splitlines()
    name, w = "v0", graph.results[0].type
    for more, step in ((w, "add(v0, b)"), (TensorType(w.dtype, w.shape[::-1]), "add(v0, permute(b, axes=(3, 2, 1, 0)))")):
        lines = (head.replace(")", f", b: {more})", 1), body, f"    v1: {w} = {step}", end.replace(name, "v1"))
        if "permute" in step:
            lines = (lines[0], lines[1], f"    v2: {w} = permute(b, axes=(3, 2, 1, 0))",
                     f"    v1: {w} = add(v0, v2)", lines[3])
        kernel = check(parse_graph("\n".join(lines) + "\n"), data(x), data(y), data(more), interpreted=False,
                       tolerance=1e-3)
        assert is_sliding(kernel, "weight_grad_wide")


@st.composite
def cases(draw):
    count, groups = draw(st.integers(1, 3)), draw(st.sampled_from([8, 9]))
    longest = {1: 80, 2: 24, 3: 9}[count]
    sizes = tuple(draw(st.integers(1, longest)) for _ in range(count))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(count))
    padding = tuple((draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(count))
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    reach = [n + low + high - dilation * (k - 1) for n, k, (low, high) in zip(sizes, kernel, padding, strict=True)]
    case = draw(st.integers(1, 3)), groups * each[0], sizes, groups * each[1], kernel, stride, padding, dilation, groups
    return case if min(reach) > 0 else cases_with_room(case)


def cases_with_room(case):
    return (*case[:2], tuple(n + 12 for n in case[2]), *case[3:])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_any_windows(case):
    for graph, inputs in three(case):
        check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.integers(16, 40))
def test_any_windows_with_many_filters(case, filters):
    *_, (graph, inputs) = three((*case[:3], filters, *case[4:8], 1))
    check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [float64, float16, bfloat16], ids=str)
@pytest.mark.parametrize("filters", [17, 24, 25, 50, 66])
def test_a_last_panel_of_few_filters_in_other_types(dtype, filters):
    *_, (graph, inputs) = three((3, 4, (9, 11), filters, (5, 5), 1, ((2, 2), (2, 2)), 1, 1))
    graph = parse_graph(print_graph(graph).replace("f32", str(TensorType(dtype, ()))))
    check(graph, *(data(t).astype(dtype.numpy) for t in inputs), interpreted=False,
          tolerance={64: 1e-9, 16: 0.15}[dtype.bits])


@pytest.mark.parametrize("filters", [17, 24, 40, 50, 66])
def test_the_last_panel_multiplies_no_more_than_it_has_to(filters):
    """It has halves of vectors for the few filters that fill no whole one."""
    *_, (graph, inputs) = three((3, 4, (9, 11), filters, (5, 5), 1, ((2, 2), (2, 2)), 1, 1))
    kernel = check(graph, *map(data, inputs), interpreted=False, tolerance=1e-3)
    statement = kernel.nests[-1].body[0]
    plan = filter_plan_of(statement, slides(statement, host()), host())
    computed = (plan.panels - 1) * plan.width + plan.last_width
    assert filters <= computed < filters + plan.lanes // 2
    halves = f"llvm.fmuladd.v{plan.lanes // 2}f32" in llvm_text(kernel)
    assert halves == (computed % plan.lanes != 0)
