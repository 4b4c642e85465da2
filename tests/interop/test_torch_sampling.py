"""Images read between their elements, and bags of rows, against PyTorch: values and gradients in float64."""

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn

torch = pytest.importorskip("torch")


def both(call: Any, arrays: list[np.ndarray], compiled: bool = False) -> None:
    """`call(functional, *tensors)` has the same values and gradients in both libraries."""
    mine = [tn.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    others = [torch.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    y, z = call(nn.functional, *mine), call(torch.nn.functional, *others)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-10)
    factor = np.random.default_rng(5).normal(size=z.shape)
    (y * factor).sum().backward()
    (z * torch.tensor(factor)).sum().backward()
    wanted = [k for k, x in enumerate(others) if x.requires_grad]
    assert all(np.allclose(mine[k].grad.numpy(), others[k].grad.numpy(), rtol=1e-8, atol=1e-9) for k in wanted)
    if compiled:
        gradients = tn.jit(tn.grad(lambda *xs: (call(nn.functional, *xs) * factor).sum(), argnums=wanted))(*mine)
        for k, gradient in zip(wanted, gradients, strict=True):
            np.testing.assert_allclose(gradient.numpy(), others[k].grad.numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_are_read_at_places(mode: str, padding_mode: str, align_corners: bool) -> None:
    random = np.random.default_rng(0)
    images, grid = random.normal(size=(2, 3, 5, 4)), random.uniform(-2.5, 2.5, (2, 3, 7, 2))
    both(lambda of, x, grid: of.grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners),
         [images, grid], compiled=padding_mode == "zeros" and align_corners)


@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (2, 1, 3, 4, 5)])
def test_one_pixel_and_volumes(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    grid = random.uniform(-1.5, 1.5, (shape[0], *[3] * (len(shape) - 2), len(shape) - 2))
    both(lambda of, x, grid: of.grid_sample(x, grid, padding_mode="reflection", align_corners=False),
         [random.normal(size=shape), grid])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (2, 1, 2, 3, 4)])
def test_places_of_affine_maps(size: tuple[int, ...], align_corners: bool) -> None:
    count = len(size) - 2
    maps = np.random.default_rng(2).normal(size=(size[0], count, count + 1))
    both(lambda of, maps: of.affine_grid(maps, size, align_corners=align_corners), [maps])


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode: str, padding_idx: int | None) -> None:
    random = np.random.default_rng(3)
    table, at = random.normal(size=(6, 3)), np.array([0, 2, 5, 1, 1, 2, 2, 4])
    for offsets in ([0, 3, 3, 5], [0]):         # an empty bag among them
        both(lambda of, x, table, offsets: of.embedding_bag(x, table, offsets, mode=mode, padding_idx=padding_idx),
             [at, table, np.array(offsets)], compiled=mode == "mean" and padding_idx == 2)
    both(lambda of, x, table: of.embedding_bag(x, table, mode=mode), [at.reshape(4, 2), table])


def test_bags_with_weights_and_a_last_offset() -> None:
    random = np.random.default_rng(4)
    arrays = [np.array([0, 2, 5, 1]), random.normal(size=(6, 3)), np.array([0, 1, 4]), random.normal(size=4)]
    both(lambda of, x, table, offsets, factors: of.embedding_bag(
        x, table, offsets, mode="sum", per_sample_weights=factors, include_last_offset=True), arrays)


def test_the_layer_of_bags_takes_the_weights_of_pytorchs() -> None:
    theirs = torch.nn.EmbeddingBag(7, 4, mode="max", padding_idx=1)
    mine = nn.EmbeddingBag(7, 4, mode="max", padding_idx=1)
    mine.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    at, offsets = np.array([1, 4, 6, 1, 3]), np.array([0, 1, 4])
    np.testing.assert_array_equal(mine(tn.tensor(at), tn.tensor(offsets)).numpy(),
                                  theirs(torch.tensor(at), torch.tensor(offsets)).detach().numpy())


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_values_for_one_place_under_pytorchs_words(reduce: str) -> None:
    random = np.random.default_rng(6)
    x, at, values = random.normal(size=4), np.array([1, 1, 3, 0, 1]), random.normal(size=5)
    np.testing.assert_allclose(
        tn.tensor(x).scatter_reduce(tn.tensor(at), tn.tensor(values), reduce=reduce).numpy(),
        torch.tensor(x).scatter_reduce(0, torch.tensor(at), torch.tensor(values), reduce=reduce).numpy())


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_an_infinity_is_nothing_to_places_beside_it(padding_mode: str) -> None:
    image, places = np.array([[[[np.inf, 1.0, 2.0]]]]), np.array([[[[2 / 3, 0.0], [0.9, 0.0], [0.1, 0.0], [-0.7, 0.0]]]])
    ours = tn.grid_sample(tn.tensor(image), tn.tensor(places), padding_mode=padding_mode)
    theirs = torch.nn.functional.grid_sample(torch.tensor(image), torch.tensor(places), padding_mode=padding_mode,
                                             align_corners=False)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


@pytest.mark.parametrize("padding_idx", [-1, 3])
def test_a_row_left_out_of_the_gradient_may_be_counted_from_either_end(padding_idx: int) -> None:
    gradient = tn.grad(lambda w: tn.embedding(tn.tensor([0, 3, -1, 1]), w, padding_idx=padding_idx).sum())(tn.ones(4, 2))
    assert gradient.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]


def test_images_are_mirrored_in_every_call() -> None:
    image, places = np.arange(6.0).reshape(1, 1, 2, 3), np.array([[[[-1.7, 0.3], [2.5, -3.1], [0.2, 1.2]]]])
    theirs = torch.nn.functional.grid_sample(torch.tensor(image), torch.tensor(places), padding_mode="reflection",
                                             align_corners=False)
    for _ in range(4):
        ours = tn.grid_sample(tn.tensor(image), tn.tensor(places), padding_mode="reflection")
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)
