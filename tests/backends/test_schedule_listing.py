"""The list of schedules that a statement was offered: what is marked as taken is what is emitted, and refusals say why."""

from __future__ import annotations

import re

import pytest

import tenon as tn
from tenon.backends.cpu.contraction import tile_of
from tenon.backends.cpu.contraction_codegen import template_of
from tenon.backends.cpu.conv_direct import slides
from tenon.backends.cpu.lower_kernel import kernel_of, scheduled, schedules
from tenon.backends.cpu.product_schedules import considered
from tenon.backends.cpu.schedule_listing import schedules_text
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.loops.loop_ir import Contraction
from tenon.loops.refusal import Refusal
from tenon.records import replace
from tenon.target import TARGETS, Target

SIZES = [(64, 96, 200), (1000, 3, 64), (1, 512, 512), (700, 900, 300), (8, 9, 64), (2000, 1500, 7)]
# Machines that nobody builds, of which one adds beside multiply-adds.
SMALL = Target(16, 16, l2_bytes=64 << 10, l1_bytes=8 << 10)
LARGE = Target(64, 32, l2_bytes=16 << 20, l1_bytes=64 << 10)


def product_of(m, n, k):
    return kernel_of(parse_graph(f"def f(x: f32[{m}, {k}], w: f32[{k}, {n}]):\n    v0: f32[{m}, {n}] = matmul(x, w)\n"
                                 "    return v0\n"), "f")


def convolution(channels=32, filters=32, size=16):
    image, weight = f"f32[8, {channels}, {size}, {size}]", f"f32[{filters}, {channels}, 3, 3]"
    return kernel_of(parse_graph(
        f"def f(x: {image}, w: {weight}):\n    v0: f32[8, {filters}, {size}, {size}] = conv(x, w, stride=(1, 1), "
        "padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)\n    return v0\n"), "f")


def taken(statement, target, packed=False):
    return next(row.name for row in considered(statement, target, packed) if not isinstance(row.found, Refusal))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("machine", [SMALL, LARGE, *TARGETS.values()], ids=lambda x: x.cpu or str(x.vector_bytes))
def test_what_is_taken_is_the_tile_that_is_emitted(sizes, machine):
    statement = product_of(*sizes).nests[0].body[0]
    assert isinstance(statement, Contraction)
    tile = tile_of(template_of(statement, {}, 0, machine))
    name = taken(statement, machine)
    assert name.endswith(tile.name) or (name == "unpacked_gemm" and tile.schedule == "blocks")


def test_two_machines_take_two_schedules():
    statement = product_of(64, 96, 200).nests[0].body[0]
    assert taken(statement, SMALL).startswith("blocked_gemm") and taken(statement, LARGE).startswith("small_gemm")
    text = schedules_text(product_of(64, 96, 200), SMALL)
    assert re.search(r"small_gemm +refused: right takes too much of the second cache", text)
    assert "* blocked_gemm" in text and "nest 0: a product, 64 x 96, sums of 200" in text


@pytest.mark.parametrize("adders", [False, True])
def test_windows_are_transformed_where_additions_cost_less(adders):
    """The backend and the list say the same of Winograd on a machine with adders of its own."""
    machine = replace(LARGE, separate_add_ports=adders)
    statement = convolution(20, 50, 14).nests[-1].body[0]
    found = slides(statement, machine)
    assert (taken(statement, machine) == "winograd_forward") == (found is not None and found.way == "winograd_forward")


def test_a_packed_factor_is_offered_what_reads_it_packed():
    statement = convolution().nests[-1].body[0]
    rows = {row.name.split(" ")[0]: row.found for row in considered(statement, host(), packed=True)}
    assert "winograd_forward" not in rows and isinstance(rows["small_gemm"], Refusal)
    assert str(rows["winograd_nhwc"]) != "right is not packed before"


def test_a_schedule_that_is_asked_for_is_the_one_that_is_taken():
    kernel = product_of(64, 96, 200)
    for name in schedules(kernel, host()):
        statement = scheduled(kernel, name).nests[0].body[0]
        assert taken(statement, host()).endswith(name)


def test_every_kernel_of_a_program_tells_its_schedules():
    def f(q, k, v, x):
        return tn.softmax(q @ k.mT, axis=-1) @ v, tn.sin(x)

    tensors = [tn.zeros(2, 64, 32) for _ in range(3)]
    kernels = tn.jit(f).capture(*tensors, tn.zeros(7)).program.kernels
    texts = [unit.schedules for unit in kernels]
    assert all("* " in text for text in texts) and any("* loop_nest" in text for text in texts)


@pytest.mark.parametrize("adders", [False, True])
def test_loops_are_made_ready_for_the_schedule_that_the_backend_takes(adders):
    """A copy with zeros around it is made where Winograd's tiles pay, which depends on the machine."""
    graph = parse_graph(
        "def f(x: f32[2, 16, 3, 16, 14], w: f32[20, 16, 3, 3, 3]):\n    v0: f32[2, 20, 3, 16, 14] = conv(x, w, "
        "stride=(1, 1, 1), padding=((1, 1), (1, 1), (1, 1)), dilation=(1, 1, 1), groups=1)\n    return v0\n")
    machine = replace(LARGE, separate_add_ports=adders)
    kernel = kernel_of(graph, "f", target=machine)
    found = slides(kernel.nests[-1].body[0], machine)
    assert bool(kernel.temporaries) == adders == (found is not None and found.way == "winograd_forward")
