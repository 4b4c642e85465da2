"""What depends on constant parameters alone is cut off; scales of products are brought to their weights."""

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import tenon as tn
from tenon.backends.cpu.prepack import MAX_ROWS_KEPT
from tenon.errors import OutOfRange
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import CONSTANTS
from tenon.graph.text import print_graph
from tenon.graph.verify import verify
from tenon.ops.normalization import batch_norm_
from tenon.passes.absorb_scales import absorb_scales
from tenon.passes.drop_dead import drop_dead
from tenon.passes.partition_constants import cut_constants
from tenon.pipeline import OPTIMIZE, PASSES, compile_with_constants, optimize, run_passes
from tenon.records import replace
from tenon.types import TensorType, float32, float64
from tests.graphs import mixed_graphs


def values(graph):
    random = np.random.default_rng(0)
    return [random.uniform(0.5, 1.5, p.shape).astype(p.dtype.numpy) for p in graph.params]


def noted(graph, constants):
    return replace(graph, notes={CONSTANTS: tuple(constants)})


def absorbed(graph, constants):
    names = OPTIMIZE[:OPTIMIZE.index("fuse")]
    plain = run_passes(noted(graph, constants), [(name, PASSES[name]) for name in names])
    return plain, drop_dead(absorb_scales(plain))


def in_two(graph, arrays):
    cut = cut_constants(graph)
    verify(cut.early), verify(cut.late)
    kept = interpret(cut.early, [arrays[k] for k in cut.made_from])
    return cut, interpret(cut.late, [*(arrays[k] for k in cut.reads), *kept])


def transposed(x):
    return tn.permute(x, (1, 0))


def f64(*shape):
    return TensorType(float64, shape)


CONVOLUTION = [f64(2, 3, 5, 5), f64(4, 3, 3, 3), f64(4), f64(4), f64(4), f64(4), f64(4)]


def convolution(x, w, b, mean, variance, weight, bias):
    y = tn.conv(x, w) + b.reshape(4, 1, 1)
    return tn.relu(batch_norm_(y, mean, variance, weight, bias, eps=1e-5))


def linear(x, w, b, mean, variance, weight, bias):
    return batch_norm_(x @ transposed(w) + b, mean, variance, weight, bias, eps=1e-5) * 2.0 + 1.0


LINEAR = [f64(5, 3), f64(4, 3), *[f64(4)] * 5]


@pytest.mark.parametrize(("function", "types"), [(convolution, CONVOLUTION), (linear, LINEAR)])
def test_a_norm_in_use_becomes_part_of_the_product_before_it(function, types):
    graph = trace(function, *types)
    plain, merged = absorbed(graph, range(1, 7))
    arrays = values(graph)
    cut, (result,) = in_two(merged, arrays)
    np.testing.assert_allclose(result, interpret(graph, arrays)[0], rtol=1e-12)
    late = [node.op.name for node in cut.late.nodes]
    assert late.count("multiply") == (function is linear) and late.count("add") == 1 + (function is linear)
    assert len(late) < len([n for n in plain.nodes if n.op.name != "reshape"])


@pytest.mark.parametrize("function", [
    lambda x, w, s: (tn.conv(x, w) * s.reshape(4, 1, 1), tn.conv(x, w)),              # the product is read twice
    lambda x, w, s: tn.conv(x, w) * s,                                                # along a row of the picture
    lambda x, w, s: tn.conv(x * s.sum(), w) * x.sum(),                                # no constants
    lambda x, w, s: tn.conv(x, w) * s.reshape(4, 1, 1) * s.reshape(4, 1, 1) - s.reshape(4, 1, 1),
    lambda x, w, s: tn.maximum(tn.conv(x, w) + 1.0, 0.0) * s.reshape(4, 1, 1),
    lambda x, w, s: s.reshape(4, 1, 1) * (2.0 + tn.conv(x, w * w) * 3.0),
    lambda x, w, s: tn.conv(x, w) * s.reshape(4, 1, 1) + x[:, :1, :4, :4].sum(),
])
def test_absorbing_scales_keeps_the_numbers(function):
    graph = trace(function, f64(2, 3, 6, 6), f64(4, 3, 3, 3), f64(4))
    arrays = values(graph)
    _, merged = absorbed(graph, (1, 2))
    _, results = in_two(merged, arrays)
    for result, expected in zip(results, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_a_scale_that_is_no_constant_stays_where_it_is():
    graph = trace(lambda x, w, s: tn.conv(x, w) * s.reshape(4, 1, 1), f64(2, 3, 6, 6), f64(4, 3, 3, 3), f64(4))
    _, merged = absorbed(graph, (1,))
    assert [n.op.name for n in merged.nodes] == ["conv", "reshape", "broadcast_to", "multiply"]


@given(mixed_graphs(), st.data())
def test_a_random_graph_in_two_is_the_graph(graph, data):
    constants = data.draw(st.lists(st.integers(0, len(graph.params) - 1), unique=True).map(sorted))
    arrays = values(graph)
    try:
        wanted = interpret(graph, arrays)
    except OutOfRange:          # other tests are about what is not there
        reject()
    _, results = in_two(noted(graph, constants), arrays)
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_what_grows_much_is_computed_in_every_call():
    graph = trace(lambda x, w: x * tn.exp(tn.broadcast_to(w, (300, 100, 4))), f64(300, 100, 4), f64(4))
    cut = cut_constants(noted(graph, [1]))
    assert not cut.early.results and len(cut.late.nodes) == len(graph.nodes)


def test_views_and_casts_of_weights_are_not_kept():
    graph = trace(lambda x, w: x @ tn.cast(transposed(w), "float64"), f64(5, 3), TensorType(float32, (4, 3)))
    cut = cut_constants(noted(graph, [1]))
    assert not cut.early.nodes and cut.reads == (0, 1) and cut.late.notes[CONSTANTS] == (1,)


def test_results_that_are_constants_are_kept():
    graph = trace(lambda x, w: (x + 1, tn.exp(w), w), f64(2), f64(3))
    _, results = in_two(noted(graph, [1]), values(graph))
    np.testing.assert_array_equal(results[1], np.exp(values(graph)[1]))


def test_a_graph_without_constants_is_left_as_it_is():
    graph = optimize(trace(convolution, *CONVOLUTION), backend="reference")
    assert print_graph(absorb_scales(graph)) == print_graph(graph)


@pytest.mark.parametrize("rows", [1, 4, 5, 16, 300])
def test_weights_are_packed_once(rows):
    types = [TensorType(float32, shape) for shape in ((rows, 70), (90, 70), (90,))]
    graph = trace(lambda x, w, b: tn.tanh(x @ transposed(w) + b), *types)
    arrays = values(graph)
    programs = compile_with_constants(graph, (1, 2), "cpu")
    given_now = [arrays[k] for k in programs.reads]
    panels = programs.late.panels(given_now)
    assert len(panels) == (1 < rows <= MAX_ROWS_KEPT)
    result, = programs.late.run([*given_now, *panels])
    np.testing.assert_allclose(result, interpret(graph, arrays)[0], rtol=1e-5)


def test_one_weight_of_two_equal_products_is_packed_once():
    graph = trace(lambda x, y, w: (x @ w, y @ w), *[TensorType(float32, s) for s in ((16, 400), (16, 400), (400, 500))])
    programs, arrays = compile_with_constants(graph, (2,), "cpu"), values(graph)
    panels = programs.late.panels(arrays)
    assert len(panels) == 1
    for result, expected in zip(programs.late.run([*arrays, *panels]), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_weight_in_a_loop_is_packed_before_the_program_runs():
    def function(x, w):
        return tn.scan(lambda h, _: (tn.tanh(h @ w), h), x, tn.zeros(3))[0]
    graph = trace_scan(function)
    programs, arrays = compile_with_constants(graph, (1,), "cpu"), values(graph)
    panels = programs.late.panels(arrays)
    result, = programs.late.run([*arrays, *panels])
    assert len(panels) == 1
    np.testing.assert_allclose(result, interpret(graph, arrays)[0], rtol=1e-5)


def trace_scan(function):
    w = tn.rand(400, 400) / 400
    jitted = tn.jit(lambda x: function(x, w))
    return jitted.graph(tn.rand(16, 400))


def test_what_is_kept_has_the_same_order_in_every_process():
    def many(x, *weights):
        return [x * tn.exp(w) for w in weights]

    graph = noted(trace(many, *[TensorType(float32, (100, 100))] * 21), range(1, 21))
    cut = cut_constants(graph)
    assert [p.name for p in cut.early.params] == [p.name for p in graph.params[1:]]
    assert [x.node.inputs[0] for x in cut.early.results] == list(cut.early.params)
