"""What kernels, messages and pipelines cost, beside formulas and beside slower simulations."""

from math import prod

import numpy as np
import pytest

import tenon as tn
from tenon.errors import ArgumentError
from tenon.pipelining.schedules import pipeline_schedule
from tenon.pipelining.simulate_schedule import StageCosts, simulate
from tenon.planning.cluster import Cluster, Interconnect, load_cluster
from tenon.planning.collective_time import MODELS, collective_seconds, sent_bytes
from tenon.planning.device_graph import device_graph
from tenon.planning.device_group import DeviceGroup, device_group
from tenon.planning.kernel_time import kernel_seconds, product_efficiency, tiles_used
from tenon.planning.node_work import KernelWork, ProductShape, WorkRules
from tenon.planning.pipeline_time import PipelineSizes, micro_batches_kept, pipeline_seconds
from tenon.planning.shapes_only import hollow_tensor
from tenon.planning.timeline import device_timeline
from tenon.records import replace

A100 = load_cluster("a100")
CHIP = A100.chip
BUS, NET = Interconnect("bus", 4, 100e9, 1e-6), Interconnect("net", 8, 10e9, 10e-6)
CLUSTER = Cluster("small", CHIP, (BUS, NET))


# ---------------------------------------------------------------- groups and messages

@pytest.mark.parametrize(("axes", "spans"), [
    (((1, 1),), (1, 1)), (((4, 1),), (4, 1)), (((8, 1),), (4, 2)), (((2, 2),), (2, 1)), (((8, 4),), (1, 8)),
    (((8, 2),), (2, 4)), (((2, 1), (8, 4)), (2, 8)), (((32, 1),), (4, 8))])
def test_groups_are_found_by_level(axes: tuple[tuple[int, int], ...], spans: tuple[int, int]) -> None:
    group = device_group(CLUSTER, *axes)
    assert group.spans == spans and group.size == prod(n for n, _ in axes)


def test_a_group_of_more_devices_than_there_are_is_refused() -> None:
    with pytest.raises(ArgumentError, match="has 32 devices, and 33"):
        device_group(CLUSTER, (2, 32))


def test_long_messages_are_as_quick_as_the_ring_of_the_paper() -> None:
    size, inside, across = 1e9, device_group(CLUSTER, (4, 1)), device_group(CLUSTER, (8, 4))
    assert collective_seconds("all_reduce", size, inside) == pytest.approx(2 * 3 / 4 * size / 100e9, rel=1e-3)
    assert collective_seconds("all_reduce", size, across) == pytest.approx(2 * 7 / 8 * size / 10e9, rel=1e-3)
    assert collective_seconds("all_gather", size, across) == pytest.approx(7 / 8 * size / 10e9, rel=1e-3)
    assert collective_seconds("send", size, across) == pytest.approx(10e-6 + size / 10e9)


def test_a_ring_through_nodes_has_all_their_ways_out() -> None:
    whole, one = device_group(CLUSTER, (32, 1)), device_group(CLUSTER, (8, 4))
    assert whole.rate == pytest.approx(4 * one.rate)
    assert collective_seconds("all_reduce", 1e9, whole) < collective_seconds("all_reduce", 1e9, one) / 3


def test_short_messages_cost_latency_by_the_logarithm() -> None:
    assert collective_seconds("all_reduce", 8, device_group(CLUSTER, (8, 4))) == pytest.approx(3 * 10e-6, rel=0.01)
    assert collective_seconds("all_reduce", 8, device_group(CLUSTER, (4, 1))) == pytest.approx(2 * 1e-6, rel=0.01)


@pytest.mark.parametrize("kind", MODELS)
def test_costs_grow_with_bytes_and_are_none_alone(kind: str) -> None:
    group = device_group(CLUSTER, (16, 1))
    times = [collective_seconds(kind, size, group) for size in (0.0, 1e3, 1e6, 1e9)]
    assert times == sorted(times) and times[0] >= 0.0
    assert collective_seconds(kind, 1e9, DeviceGroup((BUS, NET), (1, 1))) == 0.0
    assert sent_bytes(kind, 1e6, 1) == 0.0 and sent_bytes(kind, 1e6, 4) <= 1.5e6


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no cost of a collective 'shout'"):
        collective_seconds("shout", 1.0, device_group(CLUSTER, (4, 1)))


# ---------------------------------------------------------------- kernels

def test_a_large_product_reaches_what_the_file_says_and_small_ones_less() -> None:
    large = ProductShape(1, 16384, 27648, 16384)
    assert product_efficiency(large, CHIP) == pytest.approx(CHIP.efficiency.product, rel=0.03)
    for less in (replace(large, depth=64), replace(large, rows=1), ProductShape(1, 300, 300, 16384)):
        assert product_efficiency(less, CHIP) < 0.8 * CHIP.efficiency.product
    assert 0 < tiles_used(ProductShape(1, 1, 1, 1), CHIP) < 1e-3


def test_the_roof_is_memory_or_arithmetic() -> None:
    moved = KernelWork("add", 1e3, 2.039e12)
    assert kernel_seconds(moved, CHIP) == pytest.approx(1 / CHIP.efficiency.bandwidth, rel=1e-3)
    slow = KernelWork("exp", 19.5e12, 1e3)
    assert kernel_seconds(slow, CHIP) == pytest.approx(1.0, rel=1e-3)


def test_work_is_read_off_the_graph() -> None:
    x, w, b = hollow_tensor((4096, 1024), "float16"), hollow_tensor((1024, 512), "float16"), hollow_tensor((512,), "float16")
    graph = device_graph(lambda x, w, b: tn.relu(x @ w + b), x, w, b, chip=CHIP)
    rules = WorkRules(CHIP, tn.float16)
    product, rest = (work for node in graph.nodes for work in rules.of(node))
    assert product.product == ProductShape(1, 4096, 512, 1024) and product.operations == 2 * 4096 * 512 * 1024
    assert product.bytes == 2 * (4096 * 1024 + 1024 * 512 + 4096 * 512) and product.dtype == "float16"
    assert rest.bytes == 2 * (2 * 4096 * 512 + 512)         # reads the product, writes the result
    together = replace(CHIP, fused_products=True)
    graph = device_graph(lambda x, w, b: tn.relu(x @ w + b), x, w, b, chip=together)
    (whole,) = (work for node in graph.nodes for work in WorkRules(together, tn.float16).of(node))
    assert whole.bytes == product.bytes + 2 * 512


def test_a_loop_that_the_data_end_has_no_cost() -> None:
    def f(x: tn.Tensor) -> tn.Tensor:
        while x.sum() < 100.0:
            x = x * 2.0
        return x
    graph = device_graph(f, tn.ones(3), chip=CHIP)
    with pytest.raises(ArgumentError, match="depends on the data"):
        device_timeline(graph, WorkRules(CHIP), lambda over: device_group(CLUSTER, (1, 1)))


def test_messages_run_beside_kernels_where_that_is_asked_for() -> None:
    from tenon.ops.collectives import all_reduce
    x = hollow_tensor((2048, 2048), "float16")
    graph = device_graph(lambda x: (all_reduce(x, over=("model",)), x @ x @ x), x, chip=CHIP)
    group = device_group(A100, (8, 1))
    apart, beside = (device_timeline(graph, WorkRules(CHIP, tn.float16), lambda over: group, overlap=overlap)
                     for overlap in (False, True))
    message = collective_seconds("all_reduce", 2.0 * 2048 * 2048, group)
    assert apart.seconds == pytest.approx(apart.computing + message)
    assert beside.seconds == pytest.approx(max(beside.computing, message))
    assert beside.sent(2) == (2 * 7 / 8 * 2.0 * 2048 * 2048, 0)


# ---------------------------------------------------------------- pipelines

@pytest.mark.parametrize(("name", "devices", "micro", "chunks"), [
    ("1f1b", 1, 1, 1), ("1f1b", 4, 3, 1), ("1f1b", 4, 29, 1), ("gpipe", 3, 20, 1), ("zero_bubble", 5, 31, 1),
    ("interleaved", 3, 24, 2), ("interleaved", 2, 7, 3)])
def test_pipelines_take_as_long_as_the_slow_simulation_says(name: str, devices: int, micro: int, chunks: int) -> None:
    random = np.random.default_rng(0)
    ahead, back, weights = (tuple(random.uniform(0.9, 1.1, devices * chunks)) for _ in range(3))
    sizes = PipelineSizes(name, devices, micro, chunks)
    seconds = StageCosts(ahead, back, weights, 0.1)
    slow = simulate(pipeline_schedule(name, devices, micro, chunks), seconds).seconds
    assert pipeline_seconds(sizes, seconds, exact=True) == pytest.approx(slow, rel=1e-12)
    assert pipeline_seconds(sizes, seconds) == pytest.approx(slow, rel=0.01)


def test_gpipe_keeps_all_micro_batches_and_1f1b_as_many_as_devices() -> None:
    assert micro_batches_kept(PipelineSizes("gpipe", 4, 96)) == (96,) * 4
    assert micro_batches_kept(PipelineSizes("1f1b", 4, 96)) == (4, 3, 2, 1)
