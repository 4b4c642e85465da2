"""A network under `autocast`, beside PyTorch's, from the same weights."""

import numpy as np
import torch

import tenon as tn
from tenon import nn


def network(library):
    return library.Sequential(library.Conv2d(3, 8, 3, padding=1), library.ReLU(), library.Flatten(),
                              library.Linear(8 * 6 * 6, 16), library.LayerNorm(16), library.GELU(),
                              library.Linear(16, 4))


def test_outputs_and_gradients_are_as_near_as_bfloat16_allows():
    theirs, ours = network(torch.nn), network(nn)
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    random = np.random.default_rng(0)
    x, y = random.standard_normal((5, 3, 6, 6), np.float32), random.integers(0, 4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        expected = theirs(torch.from_numpy(x))
        torch.nn.functional.cross_entropy(expected.float(), torch.from_numpy(y)).backward()
    with tn.autocast():
        found = ours(tn.asarray(x))
        nn.functional.cross_entropy(found, tn.asarray(y)).backward()
    assert found.dtype is tn.bfloat16
    np.testing.assert_allclose(found.astype("float32").numpy(), expected.detach().float().numpy(), rtol=2e-2, atol=2e-2)
    for (name, mine), its in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        scale = float(its.grad.abs().max())
        np.testing.assert_allclose(mine.grad.numpy(), its.grad.numpy(), atol=3e-2 * scale, err_msg=name)


def test_sums_with_products_are_narrow_and_linear_algebra_is_not():
    x, y = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    x = x @ x.T + np.eye(4, dtype=np.float32)
    calls = {"addmm": lambda L, x, y: L.addmm(x, x, y), "baddbmm": lambda L, x, y: L.baddbmm(x[None], x[None], y[None]),
             "addbmm": lambda L, x, y: L.addbmm(x, x[None], y[None]), "addmv": lambda L, x, y: L.addmv(x[0], x, y[0]),
             "solve": lambda L, x, y: L.linalg.solve(x @ x, y), **{
                 name: lambda L, x, y, name=name: getattr(L.linalg, name)(x @ x) for name in (
                     "inv", "cholesky", "svdvals", "eigvalsh", "qr", "eigh")}}
    for name, call in calls.items():
        with torch.autocast("cpu", torch.bfloat16):
            theirs = call(torch, torch.from_numpy(x), torch.from_numpy(y))
        with tn.autocast("cpu"):
            ours = call(tn, tn.asarray(x), tn.asarray(y))
        first = [found[0] if isinstance(found, tuple) else found for found in (theirs, ours)]
        assert str(first[0].dtype) == f"torch.{first[1].dtype.name}", name
