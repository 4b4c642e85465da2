"""What becomes one kernel, and what must not."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

import tenon as tn
from graphs import arrays_for, assert_close, graphs
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.text import key_of, parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.ops.define import define
from tenon.ops.graph_calls import fused as fused_op
from tenon.passes.fuse import fuse
from tenon.passes.fusion import fusion_profitability
from tenon.passes.fusion.fusion_profitability import FusionProfit
from tenon.passes.fusion.kernel_bodies import body_of
from tenon.pipeline import PASSES, compile, optimize
from tenon.types import TensorType, float32

host = define("fuse_test_host", public=False, type=lambda x: x, ref=lambda x: x * 2)


def lines(*rows: str) -> str:
    return "\n    ".join(rows)


def fused(*rows: str) -> Graph:
    return verify(fuse(parse_graph(lines(*rows))))


def operators(graph: Graph) -> list[str]:
    """Of every node its operators: `add`, or `exp+add` when they are fused."""
    return ["+".join(n.op.name for n in node.graphs[0].nodes) if node.graphs else node.op.name for node in graph.nodes]


@settings(max_examples=60, deadline=None)
@given(graphs(most_nodes=20))
def test_random_graphs_compute_the_same(graph: Graph) -> None:
    arrays = arrays_for(graph)
    assert_close(interpret(verify(fuse(graph)), arrays), interpret(graph, arrays), 1e-6)


def test_a_chain_is_one_kernel() -> None:
    graph = fused("def f(x: f32[8], y: f32[8]):", "v0: f32[8] = exp(x)", "v1: f32[8] = add(v0, y)",
                  "v2: f32[8] = multiply(v1, v0)", "return v2")
    assert print_graph(graph, locations=False) == lines(
        "def f(x: f32[8], y: f32[8]):", "def body(p0: f32[8], p1: f32[8]):", "    v0: f32[8] = exp(p0)",
        "    v1: f32[8] = add(v0, p1)", "    v2: f32[8] = multiply(v1, v0)", "    return v2",
        "v0: f32[8] = fused(x, y, body=body)", "return v0")


def test_one_kernel_may_have_several_results() -> None:
    graph = fused("def f(x: f32[8]):", "v0: f32[8] = exp(x)", "v1: f32[8] = add(v0, x)", "return v0, v1")
    assert operators(graph) == ["exp+add"] and len(graph.nodes[0].outputs) == 2


def test_a_group_never_depends_on_itself_by_way_of_another() -> None:
    """exp and add may not be one kernel: the host step between them reads the one and feeds the other."""
    graph = fused("def f(x: f32[8]):", "v0: f32[8] = exp(x)", "v1: f32[8] = fuse_test_host(v0)",
                  "v2: f32[8] = add(v0, v1)", "return v2")
    assert operators(graph) == ["exp", "fuse_test_host", "add"]


def test_a_group_of_early_and_late_nodes_is_not_read_by_what_stands_between_them() -> None:
    """The sums and their product are one kernel; v2 reads it and v3 feeds it, so they must not meet in v6."""
    graph = fused("def f(x: f32[4, 3]):", "v0: f32[3] = sum(x, axis=(0,), keepdims=False, dtype=f32)",
                  "v1: f32[4, 3] = broadcast_to(v0, shape=(4, 3))", "v2: f32[4, 3] = subtract(x, v1)",
                  "v3: f32[4, 3] = exp(x)", "v4: f32[3] = sum(v3, axis=(0,), keepdims=False, dtype=f32)",
                  "v5: f32[3] = multiply(v0, v4)", "v6: f32[4, 3] = multiply(v3, v2)", "return v5, v6")
    assert operators(graph) == ["exp", "sum+sum+multiply", "broadcast_to+subtract+multiply"]


def test_softmax_is_one_kernel() -> None:
    graph = fused("def f(x: f32[64, 100]):", "v0: f32[64, 1] = max(x, axis=(1,), keepdims=True)",
                  "v1: f32[64, 100] = broadcast_to(v0, shape=(64, 100))", "v2: f32[64, 100] = subtract(x, v1)",
                  "v3: f32[64, 100] = exp(v2)", "v4: f32[64, 1] = sum(v3, axis=(1,), keepdims=True, dtype=f32)",
                  "v5: f32[64, 100] = broadcast_to(v4, shape=(64, 100))", "v6: f32[64, 100] = divide(v3, v5)",
                  "return v6")
    assert len(graph.nodes) == 1


def test_what_is_expensive_is_not_computed_for_every_row() -> None:
    graph = fused("def f(x: f32[500, 64], y: f32[64]):", "v0: f32[64] = exp(y)",
                  "v1: f32[500, 64] = broadcast_to(v0, shape=(500, 64))", "v2: f32[500, 64] = multiply(x, v1)",
                  "return v2")
    assert operators(graph) == ["exp", "broadcast_to+multiply"]


def test_a_view_is_copied_into_each_reader() -> None:
    graph = fused("def f(x: f32[8, 4], y: f32[4, 4], z: f32[4, 8]):", "v0: f32[4, 8] = permute(x, axes=(1, 0))",
                  "v1: f32[4, 8] = matmul(y, z)", "v2: f32[4, 8] = add(v0, z)", "v3: f32[4, 4] = matmul(v0, x)",
                  "return v1, v2, v3")
    assert operators(graph) == ["matmul", "permute+add", "permute+matmul"]


@pytest.mark.parametrize(("groups", "expected"), [(8, ["multiply+permute", "conv_input_grad"]),
                                                  (1, ["multiply", "permute+conv_input_grad"])])
def test_a_view_that_hides_the_windows_of_a_convolution_is_stored(groups: int, expected: list[str]) -> None:
    """As ConvNeXt has it: a norm behind a convolution of every channel by itself has the channels last."""
    graph = fused(f"def f(x: f32[2, 11, 13, 8], w: f32[8, {8 // groups}, 3, 3]):",
                  "v0: f32[2, 11, 13, 8] = multiply(x, x)",
                  "v1: f32[2, 8, 11, 13] = permute(v0, axes=(0, 3, 1, 2))",
                  "v2: f32[2, 8, 11, 13] = conv_input_grad(v1, w, sizes=(11, 13), stride=(1, 1), "
                  f"padding=((1, 1), (1, 1)), dilation=(1, 1), groups={groups})", "return v2")
    assert operators(graph) == expected


@pytest.mark.parametrize(("channels", "kernel", "stored"), [(32, 3, True), (3, 3, False), (32, 1, False)])
def test_channels_that_lie_apart_are_copied_for_a_convolution_that_reads_them_often(channels: int, kernel: int,
                                                                                   stored: bool) -> None:
    graph = fused(f"def f(x: f32[2, {channels}, 9, 9], w: f32[16, {channels}, {kernel}, {kernel}]):",
                  f"v0: f32[2, 9, 9, {channels}] = permute(x, axes=(0, 2, 3, 1))",
                  f"v1: f32[2, {10 - kernel}, {10 - kernel}, 16] = conv_channels_last(v0, w, stride=(1, 1), "
                  "padding=((0, 0), (0, 0)), dilation=(1, 1))", "return v1")
    assert operators(graph) == (["permute", "conv_channels_last"] if stored else ["permute+conv_channels_last"])


def test_a_product_takes_elementwise_work_on_its_result_only() -> None:
    graph = fused("def f(x: f32[8, 4], w: f32[4, 8], b: f32[8]):", "v0: f32[8, 4] = exp(x)",
                  "v1: f32[8, 8] = matmul(v0, w)", "v2: f32[8, 8] = broadcast_to(b, shape=(8, 8))",
                  "v3: f32[8, 8] = add(v1, v2)", "v4: f32[8, 8] = maximum(v3, 0.0)",
                  "v5: f32[8] = sum(v4, axis=(1,), keepdims=False, dtype=f32)", "return v5")
    assert operators(graph)[:2] == ["exp", "matmul+broadcast_to+add+maximum"]


def test_a_product_that_others_read_is_stored_beside_what_is_made_of_it() -> None:
    graph = fused("def f(x: f32[8, 4], w: f32[4, 8]):", "v0: f32[8, 8] = matmul(x, w)", "v1: f32[8, 8] = exp(v0)",
                  "return v0, v1")
    assert operators(graph) == ["matmul+exp"]


def test_a_step_of_an_optimizer_is_part_of_the_product_that_is_its_gradient() -> None:
    graph = fused("def f(x: f32[80, 40], g: f32[80, 60], p: f32[40, 60], m: f32[40, 60]):",
                  "v0: f32[40, 80] = permute(x, axes=(1, 0))", "v1: f32[40, 60] = matmul(v0, g)",
                  "v2: f32[40, 60] = multiply(m, 0.9)", "v3: f32[40, 60] = add(v2, v1)",
                  "v4: f32[40, 60] = multiply(v3, 0.01)", "v5: f32[40, 60] = subtract(p, v4)", "return v5, v3")
    assert operators(graph) == ["permute+matmul+multiply+add+multiply+subtract"]


def test_however_late_it_comes() -> None:
    others = [f"v{k}: f32[9] = exp({f'v{k - 1}' if k else 'z'})" for k in range(210)]
    graph = fused("def f(x: f32[40, 80], g: f32[80, 60], p: f32[40, 60], z: f32[9]):", "w: f32[40, 60] = matmul(x, g)",
                  *others, "m: f32[40, 60] = multiply(w, 0.01)", "n: f32[40, 60] = subtract(p, m)", "return n, v209")
    assert "matmul+multiply+subtract" in operators(graph)


def test_what_a_product_multiplies_is_not_computed_beside_it() -> None:
    graph = fused("def f(x: f32[80, 80], m: f32[80, 80]):", "v0: f32[80, 80] = multiply(m, 0.9)",
                  "v1: f32[80, 80] = matmul(x, v0)", "v2: f32[80, 80] = add(v0, v1)", "return v2")
    assert operators(graph) == ["multiply", "matmul+add"]


def test_a_reshape_of_what_is_stored_stays_a_name_for_the_same_memory() -> None:
    graph = fused("def f(x: f32[8], y: f32[2, 4]):", "v0: f32[2, 4] = reshape(x, shape=(2, 4))",
                  "v1: f32[2, 4] = add(v0, y)", "return v1")
    assert operators(graph) == ["reshape", "add"]


def test_a_stored_view_is_fused_with_what_it_shows() -> None:
    graph = fused("def f(x: f32[8, 4]):", "v0: f32[8, 4] = exp(x)", "v1: f32[4, 8] = permute(v0, axes=(1, 0))",
                  "return v1")
    assert operators(graph) == ["exp+permute"]


def test_effects_keep_their_order() -> None:
    define("fuse_test_print", public=False, type=lambda x: x, ref=lambda x: x, effect=True)
    graph = fused("def f(x: f32[8]):", "v0: f32[8] = fuse_test_print(x)", "v1: f32[8] = exp(v0)",
                  "v2: f32[8] = fuse_test_print(x)", "v3: f32[8] = add(v1, v2)", "return v3")
    assert operators(graph).count("fuse_test_print") == 2
    np.testing.assert_allclose(interpret(graph, [np.ones(8, np.float32)])[0], np.exp(1) + 1, rtol=1e-6)


@pytest.mark.parametrize("read", [
    lambda x, i: tn.ones((2, 3))[i],
    lambda x, i: x.reshape(1, 4).expand(2, 4)[i],
    lambda x, i: tn.exp(x.reshape(1, 4).expand(2, 4))[i],
], ids=["fill", "broadcast", "function of a broadcast"])
def test_an_index_is_checked_even_where_every_place_holds_the_same(read):
    with pytest.raises(IndexError, match="index 7 is out of range"):
        tn.jit(read)(tn.ones(4), tn.asarray(np.array([0, 7])))


def test_a_cheap_value_is_computed_again_rather_than_stored_for_another_kernel() -> None:
    """A sum of columns and one of rows have no loop in common; both read x instead of a product in memory."""
    graph = fused("def f(x: f32[512, 512], w: f32[512, 512]):", "v0: f32[512, 512] = multiply(x, 2.0)",
                  "v1: f32[512, 512] = fuse_test_host(w)",
                  "v2: f32[512] = sum(v0, axis=(0,), keepdims=False, dtype=f32)",
                  "v3: f32[512, 512] = add(v0, v1)", "v4: f32[512] = sum(v3, axis=(1,), keepdims=False, dtype=f32)",
                  "return v2, v4")
    assert sorted(operators(graph)) == ["fuse_test_host", "multiply+add+sum", "multiply+sum"]


def test_what_is_expensive_is_stored_rather_than_computed_again() -> None:
    graph = fused("def f(x: f32[512, 512], w: f32[512, 512]):", "v0: f32[512, 512] = exp(x)",
                  "v1: f32[512, 512] = fuse_test_host(w)",
                  "v2: f32[512] = sum(v0, axis=(0,), keepdims=False, dtype=f32)",
                  "v3: f32[512, 512] = add(v0, v1)", "v4: f32[512] = sum(v3, axis=(1,), keepdims=False, dtype=f32)",
                  "return v2, v4")
    assert sum(name.count("exp") for name in operators(graph)) == 1


def test_what_is_read_at_places_among_the_data_is_not_read_so_for_every_reader() -> None:
    graph = fused("def f(x: f32[64, 37, 37], a: i64[74], b: i64[74], c: i64[74], d: i64[74]):",
                  "v0: f32[64, 37, 74] = take(x, a, axis=2)", "v1: f32[64, 37, 74] = multiply(v0, 0.5)",
                  "v2: f32[64, 37, 74] = take(x, b, axis=2)", "v3: f32[64, 37, 74] = add(v1, v2)",
                  "v4: f32[64, 74, 74] = take(v3, c, axis=1)", "v5: f32[64, 74, 74] = take(v3, d, axis=1)",
                  "v6: f32[64, 74, 74] = add(v4, v5)", "return v6")
    assert [sum("take" in name for name in names.split("+")) for names in operators(graph)] == [2, 2]


def test_kernels_that_read_the_same_memory_are_one() -> None:
    graph = fused("def f(x: f32[64, 100], y: f32[64, 100]):",
                  "v0: f32[64] = sum(x, axis=(1,), keepdims=False, dtype=f32)",
                  "v1: f32[64, 100] = multiply(x, y)", "v2: f32[64] = sum(v1, axis=(1,), keepdims=False, dtype=f32)",
                  "return v0, v2")
    assert len(graph.nodes) == 1


@pytest.mark.parametrize("norm", ["layer_norm", "batch_norm"])
def test_sums_over_rows_of_what_another_kernel_stores_are_added_up_there(norm: str) -> None:
    """The gradients of a norm with the norm itself as their seed: the shift's is a sum over what the norm gives back."""
    shape, axes = ((256, 64), (1,)) if norm == "layer_norm" else ((8, 16, 6, 6), (0, 2, 3))

    def normalised(x, w, b):
        centred = x - x.mean(axis=axes, keepdims=True)
        return centred * tn.rsqrt((centred * centred).mean(axis=axes, keepdims=True) + 1e-5) * w + b

    @tn.jit
    def both(x, w, b):
        result, pull = tn.vjp(normalised, x, w, b)
        return result, *pull(result)

    random = np.random.default_rng(0)
    weight = (64,) if norm == "layer_norm" else (16, 1, 1)
    x, w, b = (tn.asarray(random.standard_normal(s).astype(np.float32)) for s in (shape, weight, weight))
    found = both(x, w, b)
    before, pull = tn.vjp(normalised, x, w, b)
    for one, other in zip(found, (before, *pull(before)), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-3)
    graph = optimize(both.graph(x, w, b))
    assert not [node for node in graph.nodes if graph.results[0] in node.inputs], print_graph(graph)


def test_the_gradients_of_batch_norm_share_two_sums() -> None:
    """Mean and variance are two more."""
    @tn.jit
    def gradients(x, w, b, g):
        return tn.vjp(lambda *inputs: tn.batch_norm(x, None, None, *inputs, training=True), w, b)[1](g), \
            tn.vjp(lambda x: tn.batch_norm(x, None, None, w, b, training=True), x)[1](g)

    image, vector = tn.zeros((8, 16, 6, 6)), tn.ones(16)
    graph = optimize(gradients.graph(image, vector, vector, image))
    assert sum(name == "sum" for names in operators(graph) for name in names.split("+")) == 4, print_graph(graph)


@pytest.mark.parametrize("shape", [(6, 5), (1, 7), (0, 3)])
def test_fused_reductions_compute_the_same(shape: tuple[int, int]) -> None:
    n, m = shape
    graph = parse_graph(lines(
        f"def f(x: f32[{n}, {m}], y: f32[{n}, {m}]):", f"v0: f32[{n}, {m}] = multiply(x, y)",
        f"v1: f32[{m}] = sum(v0, axis=(0,), keepdims=False, dtype=f32)",
        f"v2: f32[{n}] = sum(v0, axis=(1,), keepdims=False, dtype=f32)", f"v3: f32[{n}, {m}] = subtract(v0, x)",
        f"v4: f32[{m}] = sum(v3, axis=(0,), keepdims=False, dtype=f32)", "return v1, v2, v3, v4"))
    arrays = arrays_for(graph)
    assert_close(interpret(verify(fuse(graph)), arrays), interpret(graph, arrays), 1e-6)


def test_a_product_takes_in_elementwise_work_on_its_result_under_another_name() -> None:
    graph = fused("def f(x: f32[64, 48], w: f32[48, 32], b: f32[32]):", "v0: f32[64, 32] = matmul(x, w)",
                  "v1: f32[4, 16, 32] = reshape(v0, shape=(4, 16, 32))",
                  "v2: f32[4, 16, 32] = broadcast_to(b, shape=(4, 16, 32))", "v3: f32[4, 16, 32] = add(v1, v2)",
                  "return v3")
    assert operators(graph) == ["matmul+reshape+broadcast_to+add"]


def test_a_product_that_is_read_under_two_names_stays_alone() -> None:
    graph = fused("def f(x: f32[64, 48], w: f32[48, 32]):", "v0: f32[64, 32] = matmul(x, w)",
                  "v1: f32[4, 16, 32] = reshape(v0, shape=(4, 16, 32))", "v2: f32[4, 16, 32] = exp(v1)",
                  "v3: f32[2048] = reshape(v0, shape=(2048,))", "return v2, v3")
    assert "matmul" in operators(graph)


def test_a_mean_does_not_keep_apart_what_it_is_made_of_and_what_it_scales() -> None:
    """The number of rows that count comes first, so that probabilities and their gradient are one kernel."""
    graph = fused("def f(x: f32[512, 256], m: bool[512]):", "v0: f32[512, 256] = exp(x)",
                  "v1: f32[512] = sum(v0, axis=(1,), keepdims=False, dtype=f32)", "v2: f32[512] = cast(m, dtype=f32)",
                  "v3: f32 = sum(v2, axis=(0,), keepdims=False, dtype=f32)",
                  "v4: f32 = sum(v1, axis=(0,), keepdims=False, dtype=f32)", "v5: f32 = divide(v4, v3)",
                  "v6: f32 = divide(1.0, v3)", "v7: f32[512, 256] = broadcast_to(v6, shape=(512, 256))",
                  "v8: f32[512, 256] = multiply(v0, v7)", "return v5, v8")
    assert any("exp" in name and "multiply" in name for name in operators(graph))


@pytest.mark.parametrize("shape", [(64, 300), (128, 10), (2048, 256), (16, 70_000)])
def test_cross_entropy_and_its_gradient_read_the_scores_once(shape: tuple[int, int]) -> None:
    """However large they are: only maps of their sums lie between the exponentials and what reads both."""
    rows, classes = shape
    random = np.random.default_rng(0)
    scores, labels = tn.asarray(random.standard_normal(shape).astype(np.float32)), random.integers(0, classes, rows)
    both = tn.jit(tn.value_and_grad(tn.cross_entropy))
    graph = optimize(both.graph(scores, tn.asarray(labels)))
    large = [node for node in graph.nodes if any(x.shape == shape for x in (*node.uses(), *node.outputs))]
    assert len(large) == 1, print_graph(graph)
    loss, gradient = both(scores, tn.asarray(labels))
    with tn.no_grad():
        assert float(loss) == pytest.approx(float(tn.cross_entropy(scores, tn.asarray(labels))), rel=1e-5)
        expected = (tn.softmax(scores, axis=1).numpy() - (labels[:, None] == np.arange(classes))) / rows
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-4, atol=1e-7)


def test_a_sum_of_all_rows_is_added_up_where_their_gradient_reads_them() -> None:
    """What is read twice, by a sum of everything and by rows, is not drawn into the rows' first kernel."""
    shape = (2048, 1000)
    scores, weights = (tn.asarray(np.ones(shape, np.float32)) for _ in range(2))
    graph = optimize(tn.jit(tn.value_and_grad(lambda x, p: -(tn.log_softmax(x, axis=1) * p).sum())).graph(scores, weights))
    assert len([node for node in graph.nodes if graph.params[1] in node.inputs]) == 1, print_graph(graph)


def test_rows_do_not_wait_for_what_reads_their_sums_too() -> None:
    """Of the two that lie between rows and what reads both, one is no kernel."""
    graph = fused("def f(x: f32[64, 100]):", "v0: f32[64, 100] = exp(x)",
                  "v1: f32[64, 1] = sum(v0, axis=(1,), keepdims=True, dtype=f32)", "v2: f32[64, 1] = divide(1.0, v1)",
                  "v3: f32[64, 1] = fuse_test_host(v2)", "v4: f32[64, 1] = add(v2, v3)",
                  "v5: f32[64, 100] = broadcast_to(v4, shape=(64, 100))", "v6: f32[64, 100] = multiply(v0, v5)",
                  "return v6")
    assert "fuse_test_host" in operators(graph)


def training_step() -> Graph:
    """Of a network of a convolution, two norms and two products."""
    return step_of(tn.nn.Sequential(
        tn.nn.Conv2d(3, 8, 3, bias=False), tn.nn.BatchNorm2d(8), tn.nn.ReLU(), tn.nn.Flatten(),
        tn.nn.Linear(8 * 14 * 14, 32), tn.nn.LayerNorm(32), tn.nn.GELU(), tn.nn.Linear(32, 5)))


def strided_step() -> Graph:
    """Of a network with a strided convolution, whose gradient is joined of phases, behind a norm."""
    return step_of(tn.nn.Sequential(
        tn.nn.Conv2d(3, 8, 3, padding=1, bias=False), tn.nn.BatchNorm2d(8), tn.nn.ReLU(),
        tn.nn.Conv2d(8, 8, 3, 2, 1, bias=False), tn.nn.BatchNorm2d(8), tn.nn.Flatten(), tn.nn.Linear(8 * 8 * 8, 5)))


def step_of(net: tn.nn.Module) -> Graph:
    optimizer = tn.optim.AdamW(net.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = tn.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return tn.jit(step).graph(tn.ones((4, 3, 16, 16)), tn.tensor([0, 1, 2, 3]))


@pytest.mark.parametrize("graph", [training_step, strided_step])
def test_what_is_not_tried_would_not_have_paid(monkeypatch, graph: Callable[[], Graph]) -> None:
    hopeless, pays = FusionProfit.is_hopeless, FusionProfit.pays
    met = []

    def tried(self, before, after, merged):
        met.append(hopeless(self, before, after, merged))
        with monkeypatch.context() as m:
            m.setattr(FusionProfit, "is_hopeless", lambda *pair: False)
            paid = pays(self, before, after, merged)
        assert not (met[-1] and paid)
        return paid

    monkeypatch.setattr(FusionProfit, "pays", tried)
    optimize(graph())
    assert any(met) and not all(met)


@pytest.fixture
def tried(monkeypatch) -> list[set[str]]:
    """The operators of each kernel that is tried."""
    found: list[set[str]] = []
    try_nodes = fusion_profitability.try_nodes
    monkeypatch.setattr(fusion_profitability, "try_nodes", lambda nodes, results, target: (
        found.append({node.op.name for node in nodes}), try_nodes(nodes, results, target))[1])
    return found


def test_what_is_joined_is_not_tried_with_sums_across_its_pieces(tried) -> None:
    graph = fused("def f(a: f32[4, 8, 64], b: f32[4, 8, 64], c: f32[4, 8, 128]):",
                  "v0: f32[4, 8, 128] = concat(a, b, axis=2)", "v1: f32[4, 8, 128] = multiply(v0, c)",
                  "v2: f32[8] = sum(v1, axis=(0, 2), keepdims=False, dtype=f32)", "return v1, v2")
    assert operators(graph) == ["concat+multiply", "sum"]
    assert not any({"concat", "sum"} <= names for names in tried)


def test_what_waits_for_sums_is_not_tried_with_them_however_many_nests_add_them_up(tried) -> None:
    """As the gradient of a norm does."""
    graph = fused("def f(x: f32[32, 64, 16, 16], g: f32[32, 64, 16, 16]):",
                  "v0: f32[32, 64, 16, 16] = multiply(x, g)",
                  "v1: f32[1, 64, 1, 1] = sum(v0, axis=(0, 2, 3), keepdims=True, dtype=f32)",
                  "v2: f32[1, 64, 1, 1] = sum(g, axis=(0, 2, 3), keepdims=True, dtype=f32)",
                  "v3: f32[32, 64, 16, 16] = broadcast_to(v1, shape=(32, 64, 16, 16))",
                  "v4: f32[32, 64, 16, 16] = multiply(x, v3)",
                  "v5: f32[32, 64, 16, 16] = subtract(g, v4)", "return v1, v2, v5")
    assert operators(graph) == ["multiply+sum+sum", "broadcast_to+multiply+subtract"]
    assert not any({"sum", "subtract"} <= names for names in tried)


def test_products_are_told_of_before_kernels_that_read_the_same_memory_are_merged() -> None:
    rows = lines("def f(x: f32[64, 64], w: f32[64, 64]):", "v0: f32[64, 64] = matmul(x, w)",
                 "v1: f32[64, 64] = exp(v0)", "v2: f32[64] = sum(x, axis=(1,), keepdims=False)",
                 "v3: f32[64] = max(x, axis=(1,), keepdims=False)", "return (v1, v2, v3)")
    told: list[Graph] = []
    graph = fuse(parse_graph(rows), begin=told.append)
    assert [sorted(operators(x)) for x in (told[-1], graph)] == [["matmul+exp", "max", "sum"], ["matmul+exp", "sum+max"]]


def test_a_product_is_told_of_at_once_if_its_result_is_added_up_or_multiplied() -> None:
    rows = lines("def f(x: f32[64, 64], w: f32[64, 64]):", "v0: f32[64, 64] = matmul(x, w)",
                 "v1: f32[64] = sum(v0, axis=(1,), keepdims=False)", "v2: f32[64, 64] = exp(v0)",
                 "v3: f32[64, 64] = matmul(v2, w)", "v4: f32[64, 64] = exp(v3)",
                 "v5: f32[64, 64] = permute(x, axes=(1, 0))", "v6: f32[64, 64] = matmul(v5, v5)",
                 "v7: f32[64, 64] = matmul(v6, w)", "return (v1, v4, v7)")
    told: list[Graph] = []
    fuse(parse_graph(rows), begin=told.append)
    assert operators(told[0]) == ["matmul", "permute+matmul"]


def test_products_that_are_told_of_early_are_kernels_in_the_end(monkeypatch) -> None:
    told: list[Graph] = []
    monkeypatch.setitem(PASSES, "fuse", lambda graph, target: fuse(graph, told.append, target))
    made = optimize(training_step())
    assert kernels(told[0]) and all(kernels(early) <= kernels(made) for early in told[:-1])


@settings(max_examples=60, deadline=None)
@given(graphs(most_nodes=20))
def test_products_of_random_graphs_that_are_told_of_early_are_kernels_in_the_end(graph: Graph) -> None:
    told: list[Graph] = []
    made = fuse(graph, begin=told.append)
    assert all(kernels(early) <= kernels(made) for early in told[:-1])


def kernels(graph: Graph) -> set[str]:
    """What every node computes, if it is more than a constant."""
    return {key_of(node.graphs[0] if node.op is fused_op else body_of([node], node.outputs)[0])
            for node in graph.nodes if node.inputs}


def test_views_that_meet_again_are_followed_once() -> None:
    """All is a view where there are no elements; a search along every way through 40 sums would not end."""
    def f(x: tn.Tensor) -> tn.Tensor:
        for _ in range(40):
            x = x + tn.tanh(x.sum(axis=1, keepdims=True)) * x
        return x
    (found,) = compile(trace(f, TensorType(float32, (0, 4)))).run([np.zeros((0, 4), np.float32)])
    assert found.shape == (0, 4)


def test_an_effect_stays_behind_the_one_before_it() -> None:
    graph = fused("def f(x: f32[64]):",
                  "a: f32[64] = sin(x)",
                  "r: tuple[f32[64], token] = all_reduce(a, over=('data',), op='sum')",
                  "q: tuple[f32[64], token] = all_reduce(x, over=('data',), op='sum')",
                  "b: f32[64] = add(a, q[0])",         # one kernel with `a` would wait for itself
                  "return r[0], b")
    assert operators(graph) == ["sin", "all_reduce", "all_reduce", "add"]
