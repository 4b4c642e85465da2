"""Convolutions of networks in use, whose channels are last inside: every stride, dilation, size, type and epilogue."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon as tn
from tenon.backends.cpu.conv_nhwc import WinogradPlan, plan_of
from tenon.backends.cpu.conv_nhwc.conv_schedule import direct_plan_of
from tenon.backends.cpu.prepack import Packed
from tenon.capture.constant_weights import WithConstants
from tenon.capture.constant_weights import given as given_constants
from tenon.config import config
from tenon.debug.step_times import DRIVE
from tenon.errors import ShapeError
from tenon.llvm.host_target import host
from tenon.program import step_executor
from tenon.program.steps import KernelStep
from tenon.runtime.run_frame import Frame
from tenon.runtime.thread_pool import get_num_threads, set_num_threads
from tests.layouts import facing, turned

# batch, channels, sizes, filters, kernel, stride, padding, dilation
CASES = [
    (1, 16, (8, 8), 32, (1, 1), 1, 0, 1),
    (1, 64, (28, 28), 64, (3, 3), 1, 1, 1),             # several blocks of rows
    (2, 5, (9, 11), 37, (3, 3), 2, 1, 1),               # filters that do not fill a vector
    (2, 5, (9, 11), 37, (3, 2), 1, 2, 2),
    (1, 3, (40, 40), 64, (7, 7), 2, 3, 1),              # few channels
    (3, 7, (7, 7), 50, (3, 3), 1, 1, 1),                # tiles of two rows, and one that is left over
    (1, 33, (7, 7), 48, (3, 3), 1, 0, 1),               # no window reaches over the edge
    (1, 24, (14, 14), 40, (1, 1), 2, 0, 1),
    (3, 8, (50,), 20, (5,), 1, 2, 1),
    (1, 8, (5000,), 16, (9,), 3, 4, 1),                 # several blocks of a row
    (2, 4, (6, 7, 8), 24, (3, 3, 3), 1, 1, 1),
    (1, 200, (6, 6), 300, (3, 3), 1, 1, 1),             # more weights than windows
    (1, 1, (17, 17), 9, (4, 4), 1, (2, 1), 1),
    (2, 11, (1, 13), 8, (1, 3), 1, (0, 4), 1),          # windows that are outside altogether
]


def arrays(case, dtype):
    batch, channels, sizes, filters, kernel, *_ = case
    random = np.random.default_rng(0)
    shapes = (batch, channels, *sizes), (filters, channels, *kernel), (filters, *[1] * len(sizes))
    return [random.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


def owned(array):
    """A tensor whose memory is nobody else's, so that it can be a constant of a captured function."""
    return tn.asarray(array) * 1


def steps_of(captured):
    assert isinstance(captured.program, WithConstants)
    return [step for step in captured.program.late.parts.steps if isinstance(step, KernelStep)]


def has_channels_last(captured):
    """Whether the first step is a convolution with its channels last, of packed weights."""
    unit = steps_of(captured)[0].unit
    return isinstance(unit, Packed) and bool(plan_of(unit.kernel.nests[0].body[0], unit.target))


def epilogue(y, more, act):
    if act == "plain":
        return y
    if act == "relu":
        return tn.maximum(y + more, 0)
    return tn.where(y > 0.1, tn.tanh(y), y * more) - y.sum(axis=1, keepdims=True) if act == "sum" else tn.tanh(y) * more


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_constant_convolution_has_its_channels_last(case):
    compiled, given = check(case, np.float32, "relu", 2e-4)
    assert has_channels_last(compiled.capture(*given))


@pytest.mark.parametrize("act", ["plain", "tanh", "sum"])
@pytest.mark.parametrize("case", CASES[2:4], ids=str)
def test_other_epilogues(case, act):
    check(case, np.float32, act, 2e-4)


@pytest.mark.parametrize("act", ["relu", "tanh"])
@pytest.mark.parametrize("case", CASES[2:4], ids=str)
def test_double_precision(case, act):
    check(case, np.float64, act, 1e-12)


def check(case, dtype, act, tolerance):
    *_, stride, padding, dilation = case
    x, w, b = arrays(case, dtype)
    weight, bias = owned(w), owned(b)

    @facing
    def network(x, more):
        y = tn.conv(x, weight, stride=stride, padding=padding, dilation=dilation) + bias
        return epilogue(y, more, act)

    with tn.no_grad():
        shape = tn.conv(tn.asarray(x), weight, stride=stride, padding=padding, dilation=dilation).shape
        more = np.random.default_rng(1).uniform(-1, 1, shape).astype(dtype)
        given = tn.asarray(turned(x)), tn.asarray(turned(more))
        expected = np.asarray(network(*given))
        compiled = tn.jit(network)
        found = np.asarray(compiled(*given))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * case[1])
    return compiled, given


# batch, channels, sizes, filters, padding
SQUARES = [
    (1, 64, (28, 28), 64, 1),
    (1, 32, (56, 56), 32, 1),                           # several blocks
    (3, 40, (9, 13), 48, 1),                            # channels that do not fill a vector, places that fill no tile
    (5, 64, (7, 7), 60, 0),                             # filters that do not fill a panel, no window over the edge
    (2, 48, (11, 8), 96, 2),                            # windows that are outside altogether
]


def after_another(channels, filters, padding, dtype, seed=0):
    """A 1 x 1 convolution, which leaves its channels last, and one of 3 x 3; and its exact result in float64."""
    random = np.random.default_rng(seed)
    shapes = (channels, 8, 1, 1), (filters, channels, 3, 3), (filters, 1, 1)
    arrays = [random.standard_normal(s).astype(dtype) for s in shapes]
    constant = [owned(x) for x in arrays]

    def network(x, weights=constant):
        before = tn.conv(x, weights[0])
        y = tn.conv(before, weights[1], padding=padding) + weights[2]
        return tn.maximum(y + before if y.shape == before.shape else y, 0)

    def exact(x):
        wide, *weights = (tn.asarray(y.astype(np.float64)) for y in (x, *arrays))
        return np.asarray(network(wide, weights))
    return network, exact


def check_squares(case, dtype=np.float32, seed=0):
    batch, channels, sizes, filters, padding = case
    random = np.random.default_rng(seed)
    x = random.standard_normal((batch, 8, *sizes)).astype(dtype)
    network, exact = after_another(channels, filters, padding, dtype, seed)
    with tn.no_grad():
        compiled, given = tn.jit(facing(lambda x: network(x))), tn.asarray(turned(x))
        found, expected = np.asarray(compiled(given)), turned(exact(x))
        scale = np.sqrt(8 * 9 * channels)               # about the size of a sum before anything cancels
        assert np.abs(found - expected).max() <= scale * 100 * np.finfo(dtype).eps
        return compiled.capture(given)


@pytest.mark.parametrize("case", SQUARES, ids=str)
def test_windows_of_three_by_three_between_channels_that_are_last(case):
    captured = check_squares(case)
    plans = [plan_of(step.unit.kernel.nests[0].body[0], step.unit.target) for step in steps_of(captured) if isinstance(step.unit, Packed)]
    assert any(isinstance(plan, WinogradPlan) for plan in plans) or case != SQUARES[0]


def test_windows_of_three_by_three_in_double_precision():
    check_squares(SQUARES[2], np.float64)


@given(st.tuples(st.integers(1, 3), st.integers(8, 50), st.tuples(st.integers(1, 12), st.integers(1, 12)),
                 st.integers(8, 70), st.integers(1, 2)), st.integers(0, 9))
@settings(max_examples=5, deadline=None)
def test_any_windows_of_three_by_three(case, seed):
    check_squares(case, seed=seed)


def test_what_is_no_number_stays_in_the_windows_that_cover_its_tile():
    network, _ = after_another(64, 64, 1, np.float32)
    x = np.random.default_rng(0).standard_normal((1, 8, 28, 28)).astype(np.float32)
    x[0, 3, 9, 20] = np.nan
    with tn.no_grad():
        found = np.isnan(np.asarray(tn.jit(lambda x: network(x))(tn.asarray(x))))
    windows, tiles = np.zeros((2, 28, 28), bool)
    windows[8:11, 19:22] = tiles[8:12, 18:22] = True    # tiles of 2 x 2 windows are computed together
    assert found[0].all(0)[windows].all() and not found[0].any(0)[~tiles].any()


def test_the_same_bits_with_any_number_of_threads():
    net = tn.nn.Sequential(tn.nn.Conv2d(3, 20, 3, padding=1), tn.nn.ReLU(), tn.nn.Conv2d(20, 70, 3, 2, 1),
                           tn.nn.BatchNorm2d(70), tn.nn.Conv2d(70, 32, 1), tn.nn.Conv2d(32, 64, 3, padding=1)).eval()
    x = tn.asarray(np.random.default_rng(0).standard_normal((2, 3, 30, 30)).astype(np.float32))
    before, found = config().threads, []
    with tn.no_grad():
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            try:
                found.append(np.asarray(tn.jit(net)(x)))
            finally:
                tn.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("case, least", [(CASES[1], 14), ((1, 32, (28, 28), 32, (3, 3), 1, 1, 1), 14), (CASES[0], 1)])
def test_a_small_image_has_tasks_for_several_threads(case, least):
    *_, stride, padding, dilation = case
    x, w, _ = arrays(case, np.float32)
    weight = owned(w)
    captured = tn.jit(facing(lambda x: tn.conv(x, weight, stride=stride, padding=padding, dilation=dilation))).capture(
        tn.asarray(turned(x)))
    plan = direct_plan_of(steps_of(captured)[0].unit.kernel.nests[0].body[0], host())
    assert plan is not None and plan.blocks * plan.panels >= least


@pytest.mark.parametrize("channels, side, tasks", [(32, 28, 8), (48, 20, 6), (64, 28, 8), (16, 4, 1)])
def test_a_small_image_of_windows_of_three_by_three_has_tasks_too(channels, side, tasks):
    network, _ = after_another(channels, channels, 1, np.float32)
    with tn.no_grad():
        captured = tn.jit(facing(lambda x: network(x))).capture(tn.ones((1, side, side, 8)))
    plans = [plan_of(step.unit.kernel.nests[0].body[0], step.unit.target) for step in steps_of(captured) if isinstance(step.unit, Packed)]
    assert all(plan.blocks * plan.count >= tasks for plan in plans if isinstance(plan, WinogradPlan))
    assert any(isinstance(plan, WinogradPlan) for plan in plans) or tasks == 1


def test_a_residual_network_stores_nothing_twice():
    """One kernel for each convolution, with what is added and cut off in it; pooling in the same layout."""
    class Block(tn.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = tn.nn.Conv2d(16, 16, 3, padding=1), tn.nn.Conv2d(16, 16, 3, padding=1)
            self.norm = tn.nn.BatchNorm2d(16)

        def forward(self, x):
            return tn.relu(x + self.norm(self.second(tn.relu(self.first(x)))))

    net = tn.nn.Sequential(tn.nn.Conv2d(3, 16, 7, 2, 3), tn.nn.MaxPool2d(3, 2, 1), Block(), Block(),
                           tn.nn.AdaptiveAvgPool2d(1), tn.nn.Flatten(), tn.nn.Linear(16, 10)).eval()
    x = tn.asarray(np.random.default_rng(0).standard_normal((2, 3, 40, 40)).astype(np.float32))
    with tn.no_grad():
        compiled = tn.jit(lambda x: net(x))
        np.testing.assert_allclose(np.asarray(compiled(x)), np.asarray(net(x)), rtol=1e-4, atol=1e-5)
        names = [step.unit.name for step in steps_of(compiled.capture(x))]
    assert len(names) == 8, names
    assert sum("conv_channels_last" in name for name in names) == 5


def test_a_weight_that_is_assigned_is_packed_again():
    conv = tn.nn.Conv2d(8, 16, 3, padding=1)
    x = tn.asarray(np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype(np.float32))
    with tn.no_grad():
        compiled = tn.jit(lambda x: conv(x))
        before = np.asarray(compiled(x))
        conv.weight.assign(conv.weight * 2) if hasattr(conv.weight, "assign") else conv.weight.copy_(conv.weight * 2)
        after = np.asarray(compiled(x))
        np.testing.assert_allclose(after, np.asarray(conv(x)), rtol=1e-5, atol=1e-5)
    assert not np.allclose(before, after)


@pytest.mark.parametrize("net", [
    tn.nn.Sequential(tn.nn.Conv2d(8, 16, 1), tn.nn.Conv2d(16, 16, 3, groups=4)),
    tn.nn.Conv2d(8, 2, 3),                                                              # few filters
], ids=["grouped", "narrow"])
def test_others_stay_as_they_are(net):
    x = tn.asarray(np.random.default_rng(0).standard_normal((1, 8, 9, 9)).astype(np.float32))
    with tn.no_grad():
        compiled = tn.jit(lambda x: net(x))
        np.testing.assert_allclose(np.asarray(compiled(x)), np.asarray(net(x)), rtol=1e-4, atol=1e-5)
        assert not any("channels_last" in step.unit.name for step in steps_of(compiled.capture(x)))


@pytest.mark.parametrize("rows", [2, 40])
def test_a_few_rows_read_their_weights_where_they_are(rows):
    net = tn.nn.Linear(64, 256)
    x = tn.asarray(np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float32))
    with tn.no_grad():
        compiled = tn.jit(lambda x: net(x))
        np.testing.assert_allclose(np.asarray(compiled(x)), np.asarray(net(x)), rtol=1e-4, atol=1e-5)
        assert isinstance(steps_of(compiled.capture(x))[0].unit, Packed) == (rows > 4)


def test_a_thread_reads_a_part_of_weights_that_are_more_than_the_data():
    layer, x = tn.nn.Linear(3072, 512), tn.ones((32, 3072))
    before = get_num_threads()
    set_num_threads(2)
    try:
        with tn.no_grad():
            captured = tn.jit(lambda x: layer(x)).capture(x)
        arrays = [np.asarray(holder) for holder in captured.inputs.holders([x])]
        arrays, late = given_constants(captured.program.ready_for(arrays), arrays), captured.program.late
        frame = Frame(late._layout_for([x.shape for x in arrays], ()), step_executor.driver())
        (result,) = frame.run(arrays, np.zeros(1 << 24, np.uint8))
        expected = result.copy()
        result.fill(np.nan)
        DRIVE(frame.driver.drive)(frame.address, 0, 2)      # one of two threads
    finally:
        set_num_threads(before)
    done = np.isfinite(result)
    np.testing.assert_array_equal(result[done], expected[done])
    assert done.all(0).any() and not done.all(0).all()      # some columns of all rows


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_any_shape(data):
    count = data.draw(st.integers(1, 3))

    def draw(low, high):
        return data.draw(st.integers(low, high))

    sizes, kernel = (tuple(draw(1, high) for _ in range(count)) for high in (9, 3))
    case = draw(1, 2), draw(1, 20), sizes, draw(8, 40), kernel, draw(1, 3), draw(0, 2), draw(1, 2)
    try:
        check(case, np.float32, data.draw(st.sampled_from(["plain", "relu", "tanh"])), 2e-4)
    except ShapeError:
        return
