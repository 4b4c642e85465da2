"""The profile of a jitted call: every step, timed by itself, and nothing done."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.debug.step_times import operations
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
    tn.set_num_threads(1)
    alone = tn.debug.profile(step, x)
    tn.set_num_threads(3)
    shared = tn.debug.profile(step, x)
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


def test_what_a_call_assigns_is_written_in_place_to_copies():
    net, x, y = nn.Linear(30, 5), tn.ones((8, 30)), tn.tensor(np.arange(8) % 5)
    optimizer = tn.optim.Adam(net.parameters(), lr=0.1)

    @tn.jit
    def step(x, y):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    step(x, y)
    before = [p.numpy().copy() for p in (*net.parameters(), optimizer.param_groups[0]["step"])]
    program = step.capture(x, y).program
    layouts = dict(program._layouts)
    assert tn.debug.profile(step, x, y).seconds > 0
    assert program._layouts == layouts and any(place.kind == "object" for place in program.plan.of.values())
    after = [p.numpy() for p in (*net.parameters(), optimizer.param_groups[0]["step"])]
    assert all(np.array_equal(a, b) for a, b in zip(after, before, strict=True))


def test_steps_that_numpy_does_are_timed_too():
    order = tn.op("reversed_order", type=lambda x: x, ref=lambda x: np.sort(x)[::-1].copy())
    profile = tn.debug.profile(tn.jit(lambda x: order(tn.exp(x)) * 2.0), tn.ones(1000))
    assert [step.name for step in profile.steps] == ["exp", "reversed_order", "multiply"]
    assert all(step.seconds > 0 and step.bytes == 8000 for step in profile.steps)


def test_what_has_no_profile():
    with pytest.raises(ArgumentError, match="profile takes a function with"):
        tn.debug.profile(lambda x: x, tn.ones(3))
    with pytest.raises(CaptureError):
        tn.debug.profile(tn.jit(lambda x: x * np.asarray(x).sum()), tn.ones(3))
