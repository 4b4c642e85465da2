"""Numbers rounded to few bits in training, as PyTorch's `FakeQuantize` does it: the same numbers, in Tenon alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tenon.torch

X = torch.linspace(-14.3, 14.3, 60).reshape(3, 4, 5)
SCALES, ZEROS = torch.tensor([0.1, 0.03, 0.5, 0.11]), torch.tensor([1, -2, 0, 7], dtype=torch.int32)

ROUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[0], ZEROS[3], 0, 255),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS, 1, -128, 127)}


class Network(nn.Module):
    """A layer whose inputs and weights are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.fake_quantize_per_channel_affine(self.layer.weight, SCALES, ZEROS, 0, -8, 7)
        return F.linear(ROUNDED["numbers"](x), weight, self.layer.bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ROUNDED)
def test_the_same_numbers_and_slopes(name: str, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    tenon.torch.reset_report()
    function = ROUNDED[name]
    found, expected = [], []
    for run, results in ((torch.compile(function, backend="tenon"), found), (function, expected)):
        x = X.to(dtype, copy=True).requires_grad_()
        y = run(x)
        y.sum().backward()
        results += [y, x.grad]
    assert all(map(torch.equal, found, expected))
    assert not tenon.torch.report().in_torch


def test_a_network_that_is_exported() -> None:
    torch.manual_seed(0)
    network = Network()
    x = X.reshape(-1, 5)
    model = tenon.torch.from_module(network, (x,))
    assert torch.allclose(torch.tensor(model(tenon.tensor(x.numpy())).tolist()), network(x), atol=1e-5)
