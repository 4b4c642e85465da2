"""Unpooling, short-time Fourier transforms, windows, losses of lists and of other distances, methods: PyTorch's results."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)


def both(x: Any) -> tuple[Any, Any]:
    return tn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)


def close(found: Any, wanted: Any, **tolerance: float) -> None:
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), **({"rtol": 1e-9, "atol": 1e-10} | tolerance))


@pytest.mark.parametrize("name", ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"])
def test_windows(name: str) -> None:
    for n in (1, 2, 5, 8):
        for periodic in (True, False):
            close(getattr(tn, name)(n, periodic), getattr(torch, name)(n, periodic), rtol=1e-5, atol=1e-6)


def test_hamming_window_of_other_weights() -> None:
    close(tn.hamming_window(7, alpha=0.6, beta=0.3, dtype=tn.float64), torch.hamming_window(7, True, 0.6, 0.3, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(40,), (2, 40)])
@pytest.mark.parametrize(("n", "hop", "width", "center", "normalized", "onesided"), [
    (8, None, None, True, False, None), (8, 3, 6, True, True, True), (9, 2, None, False, False, False)])
def test_short_time_transforms(shape: Any, n: int, hop: Any, width: Any, center: bool, normalized: bool, onesided: Any) -> None:
    x, y = both(rng.normal(size=shape))
    window = np.hanning((width or n) + 2)[1:-1]
    options = {"center": center, "normalized": normalized, "onesided": onesided}
    found = tn.stft(x, n, hop, width, tn.tensor(window), **options)
    wanted = torch.stft(y, n, hop, width, torch.tensor(window), **options, return_complex=True)
    close(found, wanted)
    (found.abs() ** 2).sum().backward()
    (wanted.abs() ** 2).sum().backward()
    close(x.grad, y.grad)
    for length in (None, 33):
        close(tn.istft(found, n, hop, width, tn.tensor(window), **options, length=length),
              torch.istft(wanted, n, hop, width, torch.tensor(window), **options, length=length))


@pytest.mark.parametrize(("count", "shape", "kernel", "padding"), [
    (1, (2, 3, 8), 2, 0), (2, (2, 3, 8, 9), (2, 3), 0), (2, (3, 8, 8), 3, 1), (3, (1, 2, 4, 4, 4), 2, 0)])
def test_max_unpool(count: int, shape: Any, kernel: Any, padding: int) -> None:
    x, y = both(rng.normal(size=shape))
    a, i = getattr(nn, f"MaxPool{count}d")(kernel, padding=padding, return_indices=True)(x)
    b, j = getattr(torch.nn, f"MaxPool{count}d")(kernel, padding=padding, return_indices=True)(y)
    for size in (None, shape[-count:])[padding:]:
        found = getattr(nn, f"MaxUnpool{count}d")(kernel, padding=padding)(a, i, output_size=size)
        wanted = getattr(torch.nn, f"MaxUnpool{count}d")(kernel, padding=padding)(b, j, output_size=size)
        close(found, wanted)
    (found * found).sum().backward()
    (wanted * wanted).sum().backward()
    close(x.grad, y.grad)


def test_overlapping_windows_each_take_the_gradient_of_their_place() -> None:
    x, y = both(np.array([[2.0, 2.0, 1.0]]))
    at = np.array([[1, 1, 3]])
    tn.max_unpool1d(x, tn.tensor(at), 2, 1).sum().backward()
    torch.nn.functional.max_unpool1d(y, torch.tensor(at), 2, 1).sum().backward()
    close(x.grad, y.grad)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_multilabel_margin_loss(reduction: str) -> None:
    rows = np.array([[3, 0, -1, 1, -1], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 1, -1, 0, 0]])
    for scores, target in ((rng.normal(size=(4, 5)), rows), (rng.normal(size=3), np.array([2, -1, 0]))):
        x, y = both(scores)
        found = nn.MultiLabelMarginLoss(reduction=reduction)(x, tn.tensor(target))
        wanted = torch.nn.MultiLabelMarginLoss(reduction=reduction)(y, torch.tensor(target))
        close(found, wanted)
        found.sum().backward()
        wanted.sum().backward()
        close(x.grad, y.grad)


@pytest.mark.parametrize("options", [{}, {"margin": 2.0, "swap": True, "reduction": "sum"}])
def test_triplets_with_other_distances(options: Any) -> None:
    given = [rng.normal(size=(4, 3)) for _ in range(3)]
    for distance in (None, lambda p, q: (p - q).abs().sum(-1)):
        close(nn.TripletMarginWithDistanceLoss(distance_function=distance, **options)(*map(tn.tensor, given)),
              torch.nn.TripletMarginWithDistanceLoss(distance_function=distance, **options)(*map(torch.tensor, given)))


def test_layers_that_resample_or_are_random() -> None:
    x = rng.normal(size=(2, 3, 4, 5))
    for name, options in (("UpsamplingBilinear2d", {"scale_factor": 2}), ("UpsamplingNearest2d", {"size": (7, 9)})):
        close(getattr(nn, name)(**options)(tn.tensor(x)), getattr(torch.nn, name)(**options)(torch.tensor(x)))
    close(nn.RReLU().eval()(tn.tensor(x)), torch.nn.RReLU().eval()(torch.tensor(x)))
    drawn = (nn.RReLU()(tn.tensor(x)).numpy() / x)[x < 0]
    assert (drawn >= 1 / 8).all() and (drawn < 1 / 3).all() and len(set(drawn)) == len(drawn)


def test_methods() -> None:
    x, y = both(rng.normal(size=(3, 4)))
    at, values = np.array([0, 2, 0]), rng.normal(size=(3, 4))
    for found, wanted in [
            (x.where(x > 0, 2.0), y.where(y > 0, torch.tensor(2.0, dtype=y.dtype))), (x.mH, y.mH), (x.H, y.H),
            (x.masked_scatter(x > 0, tn.tensor(values)), y.masked_scatter(y > 0, torch.tensor(values))),
            (x.index_put((tn.tensor(at),), tn.tensor(values), accumulate=True),
             y.index_put((torch.tensor(at),), torch.tensor(values), accumulate=True)),
            (x.index_put((tn.tensor(at), tn.tensor(at)), tn.tensor(1.5)),
             y.index_put((torch.tensor(at), torch.tensor(at)), torch.tensor(1.5, dtype=y.dtype))),
            (x.take_along_dim(x.argsort(1), dim=1), y.take_along_dim(y.argsort(1), dim=1)),
            (x.clamp_min(0.1), y.clamp_min(0.1)), (x.clamp_max(0.1), y.clamp_max(0.1)),
            (x[:, :3].inverse(), y[:, :3].inverse()), (x.pinverse(), y.pinverse())]:
        close(found, wanted)
        x.grad = y.grad = None
        (found * found).sum().backward()
        (wanted * wanted).sum().backward()
        close(x.grad, y.grad, rtol=1e-7)
    held = tn.tensor(values)
    assert held.index_put_((tn.tensor(at),), tn.tensor(0.0, dtype="f64")) is held and (held.numpy()[at] == 0).all()
