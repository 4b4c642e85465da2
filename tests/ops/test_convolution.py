"""Convolution and pooling against the definition written as loops, and their gradients against differences."""

import itertools

import numpy as np
import pytest

import tenon as tn
from compute_rule import check
from gradients import check_gradient
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.windows import add_windows, pad_or_cut, windows

RNG = np.random.default_rng(0)
CASES = [                        # x, w, attributes
    ((2, 3, 8), (4, 3, 3), {}),
    ((2, 4, 7), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ((1, 2, 6, 5), (3, 2, 3, 2), {"padding": "same", "dilation": (1, 2)}),
    ((2, 4, 7, 6), (4, 1, 3, 2), {"stride": (3, 2), "padding": ((2, 0), (0, 1)), "groups": 4}),
    ((1, 2, 4, 3, 5), (2, 2, 2, 1, 3), {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
    ((0, 2, 5), (3, 2, 2), {}),
]


def normal(shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


def by_loops(x, w, stride, padding, dilation, groups):
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation)]
    out = np.zeros((x.shape[0], w.shape[0], *counts), x.dtype)
    channels, outputs = w.shape[1], w.shape[0] // groups
    for o, p in itertools.product(range(w.shape[0]), itertools.product(*map(range, counts))):
        first = o // outputs * channels
        for c, k in itertools.product(range(channels), itertools.product(*map(range, w.shape[2:]))):
            at = tuple(a * s + b * d for a, b, s, d in zip(p, k, stride, dilation))
            out[(slice(None), o, *p)] += x[(slice(None), first + c, *at)] * w[(o, c, *k)]
    return out


@pytest.mark.parametrize(("x", "w", "attrs"), CASES)
def test_convolution_is_its_definition(x, w, attrs):
    x, w = normal(x), normal(w)
    full = dict(conv.canonical(tn.tensor(x), tn.tensor(w), **{"stride": 1, "padding": 0, "dilation": 1,
                                                              "groups": 1} | attrs))
    np.testing.assert_allclose(conv(x, w, **attrs).numpy(), by_loops(x, w, **full), rtol=1e-12)


@pytest.mark.parametrize(("x", "w", "attrs"), CASES[:5])
def test_compute_rules_and_references_of_the_three_convolutions_agree(x, w, attrs):
    x, w = normal(x), normal(w)
    full = dict(conv.canonical(tn.tensor(x), tn.tensor(w), **{"stride": 1, "padding": 0, "dilation": 1,
                                                              "groups": 1} | attrs))
    g = normal(conv(x, w, **full).shape)
    check(conv, x, w, **full)
    check(conv_input_grad, g, w, sizes=x.shape[2:], **full)
    check(conv_weight_grad, x, g, kernel=w.shape[2:], **full)


@pytest.mark.parametrize(("x", "w", "attrs"), CASES[:5])
def test_gradients_of_convolution_to_second_order(x, w, attrs):
    check_gradient(lambda x, w: conv(x, w, **attrs), normal(x), normal(w), order=2)


def test_complex_convolution_has_the_conjugate_gradient():
    x, w = normal((1, 2, 5)) + 1j * normal((1, 2, 5)), normal((3, 2, 2)) + 1j * normal((3, 2, 2))
    np.testing.assert_allclose(conv(x, w).numpy(), by_loops(x, w, (1,), ((0, 0),), (1,), 1))


def test_transposed_convolution_is_the_gradient_of_convolution():
    for stride, padding, more, dilation in [(1, 0, 0, 1), (2, 1, 1, 1), (3, 0, 2, 2), (1, 1, 1, 2)]:
        x, w = normal((2, 4, 5)), normal((4, 3, 3))
        y = tn.conv_transpose1d(x, w, stride=stride, padding=padding, output_padding=more, dilation=dilation)
        assert y.shape == (2, 3, 4 * stride - 2 * padding + 2 * dilation + 1 + more)
        h = normal(y.shape)
        low = tn.conv(h, w, stride=stride, padding=((padding, padding - more),), dilation=dilation)
        np.testing.assert_allclose((y.numpy() * h).sum(), (low.numpy() * x).sum())
    check_gradient(lambda x, w, b: tn.conv_transpose2d(x, w, b, stride=2, output_padding=(1, 0), groups=2),
                   normal((1, 2, 3, 2)), normal((2, 2, 2, 3)), normal(4))


def test_layers_take_inputs_without_a_batch_axis_and_a_bias():
    x, w, b = normal((3, 6, 6)), normal((2, 3, 3, 3)), normal(2)
    with_batch = tn.conv2d(x[None], w, b).numpy()[0]
    np.testing.assert_array_equal(tn.conv2d(x, w, b).numpy(), with_batch)


def test_half_precision_is_summed_in_single():
    x, w = normal((1, 64, 9), np.float16), normal((1, 64, 9), np.float16)
    y = conv(x, w)
    assert y.dtype is tn.tensor(x).dtype
    np.testing.assert_allclose(y.numpy().astype(float).item(), (x.astype(float) * w.astype(float)).sum(), rtol=1e-3)


@pytest.mark.parametrize("call", [
    lambda: tn.conv2d(tn.tensor(normal((1, 3, 8, 8))), tn.tensor(normal((4, 2, 3, 3)))),
    lambda: tn.conv2d(tn.tensor(normal((1, 3, 8, 8))), tn.tensor(normal((4, 3, 9, 3)))),
    lambda: tn.conv1d(tn.tensor(normal((1, 3, 8, 8))), tn.tensor(normal((4, 3, 9, 3)))),
    lambda: tn.conv2d(tn.tensor(normal((1, 3, 8, 8))), tn.tensor(normal((4, 3, 3, 3))), tn.tensor(normal(3))),
    lambda: tn.conv(tn.tensor(normal((1, 4, 8))), tn.tensor(normal((3, 2, 3))), groups=2),
])
def test_shapes_that_do_not_fit_are_shape_errors(call):
    with pytest.raises(ShapeError):
        call()


@pytest.mark.parametrize("attrs", [{"stride": 0}, {"stride": (1, 1)}, {"padding": "full"}, {"dilation": 1.5},
                                   {"padding": -1}])
def test_bad_attributes_are_argument_errors(attrs):
    with pytest.raises(ArgumentError):
        conv(normal((1, 2, 5)), normal((1, 2, 2)), **attrs)


def test_unfold_times_the_kernel_is_convolution_and_fold_is_its_transpose():
    x, w = normal((2, 3, 6, 5)), normal((4, 3, 3, 2))
    columns = tn.unfold(tn.tensor(x), (3, 2), padding=1, stride=2)
    y = np.einsum("ok,nkl->nol", w.reshape(4, -1), columns.numpy())
    np.testing.assert_allclose(y, conv(x, w, padding=1, stride=2).numpy().reshape(2, 4, -1))
    h = normal(columns.shape)
    back = tn.fold(tn.tensor(h), (6, 5), (3, 2), padding=1, stride=2)
    np.testing.assert_allclose((back.numpy() * x).sum(), (h * columns.numpy()).sum())
    check_gradient(lambda x: tn.unfold(x, 2, dilation=2), normal((1, 2, 5, 4)), order=2)


def test_compute_rules_of_windows():
    attrs = {"kernel": (3, 2), "stride": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (1, 2)}
    x = normal((2, 6, 5))
    check(windows, x, **attrs)
    g = normal(windows(x, **attrs).shape)
    check(add_windows, g, sizes=(6, 5), **attrs)


# ---------------------------------------------------------------- pooling

POOLS = [
    ((2, 3, 8), 2, {}),
    ((1, 2, 7, 6), (3, 2), {"stride": (2, 1), "padding": (1, 1)}),
    ((1, 2, 7, 6), 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    ((1, 2, 4, 3, 5), (2, 1, 3), {"stride": (1, 2, 2)}),
]


@pytest.mark.parametrize(("shape", "kernel", "attrs"), POOLS)
def test_pooling_against_loops_and_differences(shape, kernel, attrs):
    x = normal(shape)
    count = len(shape) - 2
    kernel = (kernel,) * count if isinstance(kernel, int) else kernel
    pad = attrs.get("padding", 0)
    pad = (pad,) * count if isinstance(pad, int) else pad
    stride = attrs.get("stride", kernel)
    stride = (stride,) * count if isinstance(stride, int) else stride
    largest, mean, plain = tn.max_pool(x, kernel, **attrs), tn.avg_pool(tn.tensor(x), kernel, **attrs), \
        tn.avg_pool(tn.tensor(x), kernel, **attrs, count_include_pad=False)
    inner = np.pad(np.ones(shape[2:]), [(p, p) for p in pad])
    wide = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)])
    for p in np.ndindex(*largest.shape[2:]):
        window = (..., *(slice(a * s, a * s + k) for a, s, k in zip(p, stride, kernel)))
        weight = inner[window[1:]]
        flat = np.where(weight, wide[window], -np.inf).reshape(*shape[:2], -1)
        np.testing.assert_allclose(largest.numpy()[(..., *p)], flat.max(-1))
        total = wide[window].reshape(*shape[:2], -1).sum(-1)
        np.testing.assert_allclose(mean.numpy()[(..., *p)], total / weight.size)
        np.testing.assert_allclose(plain.numpy()[(..., *p)], total / weight.sum())
    check_gradient(lambda x: tn.max_pool(x, kernel, **attrs), x, order=2)
    check_gradient(lambda x: tn.avg_pool(x, kernel, **attrs), x, order=2)


def test_compute_rules_of_max_pooling():
    from tenon.ops.pooling import max_pool_grad, max_pool_op, max_pool_positions, max_pool_taps
    attrs = {"kernel": (3, 2), "stride": (2, 1), "padding": ((1, 2), (0, 1)), "dilation": (1, 2)}
    x = RNG.integers(0, 3, (2, 6, 5)).astype(float)
    check(max_pool_op, x, **attrs)
    check(max_pool_positions, x, **attrs)
    check(max_pool_taps, x, **attrs)
    taps = max_pool_taps(x, **attrs).numpy()
    check(max_pool_grad, normal(taps.shape), taps, sizes=(6, 5), **attrs)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(5, 3, (2, 1)), (4, 2, (0, 1)), (2, 3, (1, 0)),
                                                           (3, 2, (-1, -2)), (1, 2, (0, 0))])
def test_compute_rules_of_gradients_of_windows_that_leap(kernel, stride, padding):
    """Every element goes through the windows that it is in, whatever is left over by the stride."""
    from tenon.ops.pooling import max_pool_grad, max_pool_taps
    from tenon.ops.windows import add_windows, windows
    attrs = {"kernel": (kernel, 2), "stride": (stride, 1), "padding": (padding, (0, 1)), "dilation": (1, 2)}
    x = RNG.integers(0, 3, (2, 11, 5)).astype(float)
    check(add_windows, normal(windows(x, **attrs).shape), sizes=(11, 5), **attrs)
    taps = max_pool_taps(x, **attrs).numpy()
    check(max_pool_grad, normal(taps.shape), taps, sizes=(11, 5), **attrs)


def test_equal_elements_give_the_gradient_to_the_first():
    x = tn.tensor(np.ones((1, 1, 4)), requires_grad=True)
    tn.max_pool1d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[1, 0, 1, 0]]]


def test_positions_of_the_largest():
    y, at = tn.max_pool2d(tn.tensor([[[[1.0, 2], [4, 3]]]]), 2, return_indices=True)
    assert y.tolist() == [[[[4]]]] and at.tolist() == [[[[2]]]]


@pytest.mark.parametrize("size", [2, 3, (2, None), (6, 4)])
def test_adaptive_pooling_divides_as_evenly_as_can_be(size):
    x = normal((2, 2, 6, 4))
    wanted = [n if w is None else w for n, w in zip(x.shape[2:], size if isinstance(size, tuple) else (size, size))]
    mean, largest = tn.adaptive_avg_pool2d(tn.tensor(x), size), tn.adaptive_max_pool2d(tn.tensor(x), size)
    for p in np.ndindex(*wanted):
        window = (..., *(slice(a * n // w, -(-(a + 1) * n // w)) for a, n, w in zip(p, x.shape[2:], wanted)))
        np.testing.assert_allclose(mean.numpy()[(..., *p)], x[window].mean((-1, -2)))
        np.testing.assert_allclose(largest.numpy()[(..., *p)], x[window].max((-1, -2)))
    check_gradient(lambda x: tn.adaptive_avg_pool2d(x, size), x)


def test_the_first_of_equal_elements_is_the_largest_of_uneven_windows():
    """Row after row: the first row of [[0, 1], [1, 0]] has it, though the first column has one too."""
    x = tn.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    gradient = tn.grad(lambda x: tn.adaptive_max_pool2d(x, 2)[0, 0, 0])(x)
    np.testing.assert_array_equal(np.asarray(gradient), [[[0, 1, 0], [0, 0, 0], [0, 0, 0]]])


def test_pooling_bad_arguments():
    x = tn.tensor(normal((1, 1, 4, 4)))
    with pytest.raises(ArgumentError):
        tn.max_pool2d(x, 2, padding=2)
    with pytest.raises(ShapeError):
        tn.max_pool2d(x, 5)
    with pytest.raises(ShapeError):
        tn.max_pool1d(x, 2)


@pytest.mark.parametrize("padding", [((1, 2), (0, 3)), ((1, 1), (-1, 2)), ((0, 0), (0, 1)), ((2, 0), (1, 0))])
@pytest.mark.parametrize("x", [np.arange(24.0).reshape(2, 3, 4), np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
                               np.arange(24, dtype=np.int8).reshape(2, 3, 4)[:, ::2], np.zeros((0, 2, 3)),
                               np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1)])
def test_padding_has_the_elements_and_the_layout_that_numpy_gives(x, padding):
    added = [(max(low, 0), max(high, 0)) for low, high in padding]
    expected = np.pad(x, [(0, 0), *added], constant_values=-5)
    expected = expected[:, max(-padding[0][0], 0):, max(-padding[1][0], 0):]
    found = pad_or_cut(x, padding, -5)
    assert (found.dtype, found.strides, found.tobytes()) == (expected.dtype, expected.strides, expected.tobytes())
