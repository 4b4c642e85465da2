"""Convolutions of every channel by itself in networks in use: channels last, which are the lanes of vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon as tn
from tenon.backends.cpu.conv_direct import slides
from tenon.capture.constant_weights import WithConstants
from tenon.config import config
from tenon.errors import ShapeError
from tenon.llvm.host_target import host
from tenon.loops.loop_ir import Contraction
from tenon.program.steps import KernelStep
from tests.layouts import facing, turned

# batch, channels, sizes, kernel, stride, padding, dilation
CASES = [
    (1, 32, (14, 14), (3, 3), 1, 1, 1),
    (2, 37, (9, 11), (3, 3), 2, 1, 1),          # channels that do not fill a vector
    (1, 144, (28, 28), (5, 5), 1, 2, 1),        # several tiles of a row
    (1, 16, (112, 70), (3, 3), 2, 1, 1),        # tiles beside each other that have one code
    (2, 24, (5, 6, 7), (3, 3, 3), 1, 1, 1),
    (1, 16, (500,), (5,), 3, 2, 1),
    (1, 12, (3, 3), (5, 5), 1, 3, 1),           # a kernel larger than the image
    (1, 12, (3, 3), (3, 3), 1, 6, 1),           # windows that are outside altogether
    (1, 20, (40, 40), (3, 3), 1, 9, 9),
    (1, 20, (40, 8), (3, 1), 1, (1, 0), 1),
    (3, 8, (1, 90), (1, 3), 1, (0, 1), 1),
]


def network_of(case, dtype, act=tn.relu):
    """(x, a convolution of every channel by itself between two that mix them, whose channels are last therefore)."""
    batch, channels, sizes, kernel, stride, padding, dilation = case
    random, ones = np.random.default_rng(0), [1] * len(sizes)
    shapes = ((batch, channels, *sizes), (channels, 1, *kernel), (channels, *ones), (channels, channels, *ones),
              (8, channels, *ones))
    x, *weights = (random.uniform(-1, 1, shape).astype(dtype) for shape in shapes)
    kernels, bias, before, after = (tn.asarray(w) * 1 for w in weights)     # which are nobody else's: constants

    def network(x):
        y = tn.conv(tn.conv(x, before), kernels, stride=stride, padding=padding, dilation=dilation, groups=channels)
        return tn.conv(act(y + bias), after)
    return x, network


def check(case, act=tn.relu, dtype=np.float32, tolerance=1e-5):
    x, network = network_of(case, dtype, act)
    with tn.no_grad():
        expected = np.asarray(network(tn.asarray(x)))
        compiled, given = tn.jit(facing(network)), tn.asarray(turned(x))
        found = np.moveaxis(np.asarray(compiled(given)), -1, 1)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * case[1])
    return compiled.capture(given)


def ways(captured):
    """How the windows of every product of the program slide."""
    assert isinstance(captured.program, WithConstants)
    kernels = [step.unit.kernel for step in captured.program.late.parts.steps if isinstance(step, KernelStep)]
    products = [x for kernel in kernels for nest in kernel.nests for x in nest.body if isinstance(x, Contraction)]
    return [found.way for x in products if (found := slides(x, host())) is not None]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_channels_are_lanes(case):
    assert ways(check(case)) == ["depthwise_nhwc"]


@pytest.mark.parametrize("act", [tn.tanh, tn.relu6, tn.hardswish, tn.neg, lambda y: y - y.sum(axis=1, keepdims=True)])
@pytest.mark.parametrize("case", CASES[1:2], ids=str)
def test_other_epilogues(case, act):
    check(case, act)


@pytest.mark.parametrize("act", [tn.relu, tn.tanh])
@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_double_precision(case, act):
    check(case, act, np.float64, 1e-13)


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_any_shape(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    count = draw(1, 3)
    sizes, kernel = (tuple(draw(1, high) for _ in range(count)) for high in (9, 4))
    case = draw(1, 2), draw(8, 40), sizes, kernel, draw(1, 5), draw(0, 4), draw(1, 2)
    try:
        check(case, data.draw(st.sampled_from([tn.relu, tn.tanh])))
    except ShapeError:
        return


def test_what_is_no_number_stays_in_its_windows():
    x, network = network_of(CASES[0], np.float32)
    x[0, 3, 0, 7] = np.nan
    with tn.no_grad():
        found = np.asarray(tn.jit(network)(tn.asarray(x)))
    expected = np.zeros(found.shape, bool)
    expected[0, :, :2, 6:9] = True
    np.testing.assert_array_equal(np.isnan(found), expected)


def block(channels, kernel, stride):
    """An inverted residual block, as mobile networks have them."""
    nn = tn.nn
    return nn.Sequential(nn.Conv2d(channels, 48, 1), nn.BatchNorm2d(48), nn.ReLU6(),
                         nn.Conv2d(48, 48, kernel, stride, kernel // 2, groups=48), nn.BatchNorm2d(48), nn.ReLU6(),
                         nn.Conv2d(48, 24, 1), nn.BatchNorm2d(24))


def test_a_mobile_network_stores_nothing_twice():
    """One kernel for each convolution, and kernels that are kept as they are read."""
    net = tn.nn.Sequential(tn.nn.Conv2d(3, 24, 3, 2, 1), block(24, 3, 1), block(24, 5, 2)).eval()
    x = tn.asarray(np.random.default_rng(0).standard_normal((2, 3, 30, 30)).astype(np.float32))
    with tn.no_grad():
        compiled = tn.jit(lambda x: net(x))
        np.testing.assert_allclose(np.asarray(compiled(x)), np.asarray(net(x)), rtol=1e-4, atol=1e-5)
        captured = compiled.capture(x)
    assert ways(captured) == ["depthwise_nhwc"] * 2
    names = [step.unit.name for step in captured.program.late.parts.steps if isinstance(step, KernelStep)]
    assert sum("channels_last" in name for name in names) == 7 and len(names) <= 8, names


def test_the_same_bits_with_any_number_of_threads():
    net = block(24, 3, 1).eval()
    x = tn.asarray(np.random.default_rng(0).standard_normal((2, 24, 15, 15)).astype(np.float32))
    before, found = config().threads, []
    with tn.no_grad():
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            try:
                found.append(np.asarray(tn.jit(lambda x: net(x))(x)))
            finally:
                tn.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
