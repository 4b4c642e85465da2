"""The profile of a jitted call: every step, timed by itself, and nothing done."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.debug.profiler import operations
from tenon.errors import ArgumentError, CaptureError
from tenon.graph.build import trace
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.types import TensorType, float32


def test_products_are_counted_and_nothing_is_assigned():
    net, x = nn.Linear(96, 64), tn.ones((32, 96))

    @tn.jit
    def step(x):
        net.bias.assign(net.bias + 1.0)
        return tn.relu(net(x))
    before = net.bias.numpy().copy()
    profile = tn.debug.profile(step, x)
    assert sum(s.operations for s in profile.steps) == 2 * 32 * 96 * 64
    assert all(s.seconds > 0 and s.bytes > 0 for s in profile.steps) and profile.seconds > 0
    assert np.array_equal(net.bias.numpy(), before)
    assert "GFLOP/s" in str(profile) and "matmul" in str(profile) and "test_profile.py:" in str(profile)


def test_a_kernel_of_several_functions_is_one_step():
    x, w = tn.ones((16, 20_000)), tn.ones((20_000, 16))
    (step,) = tn.debug.profile(tn.jit(tn.matmul), x, w).steps       # in parts of the depth, and their sum
    assert step.operations == 2 * 16 * 20_000 * 16 and step.seconds > 0


def test_steps_of_a_loop_find_their_pointers_within_its_arrays():
    def turn(c, row):
        return tn.tanh(c + (row * c).sum()), row * c
    profile = tn.debug.profile(tn.jit(lambda x: tn.scan(turn, tn.tensor(1.0), x)), tn.ones((40, 100_000)))
    assert sum(step.bytes >= 800_000 for step in profile.steps) >= 1


def test_the_parts_of_threads_are_timed_too():
    step, x = tn.jit(lambda x: tn.sum(tn.tanh(x @ x))), tn.ones((300, 300))
    before = tn.get_num_threads()
    try:
        tn.set_num_threads(1)
        alone = tn.debug.profile(step, x)
        tn.set_num_threads(3)
        shared = tn.debug.profile(step, x)
    finally:
        tn.set_num_threads(before)
    assert alone.shared == alone.seconds
    assert any(s.longest != s.seconds for s in shared.steps) and all(s.longest > 0 for s in shared.steps)
    assert float(step(x)) == pytest.approx(300 * 300)


def test_the_products_of_convolutions():
    x, w = TensorType(float32, (2, 3, 8, 8)), TensorType(float32, (5, 3, 3, 3))
    g = TensorType(float32, (2, 5, 6, 6))
    options = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    count = 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)
    graphs = [trace(lambda x, w: conv(x, w, **options), x, w),
              trace(lambda g, w: conv_input_grad(g, w, sizes=(8, 8), **options), g, w),
              trace(lambda x, g: conv_weight_grad(x, g, kernel=(3, 3), **options), x, g)]
    assert [sum(map(operations, graph.nodes)) for graph in graphs] == [count] * 3


def test_what_has_no_profile():
    with pytest.raises(ArgumentError, match="profile takes a function with"):
        tn.debug.profile(lambda x: x, tn.ones(3))
    with pytest.raises(CaptureError):
        tn.debug.profile(tn.jit(lambda x: x * np.asarray(x).sum()), tn.ones(3))
