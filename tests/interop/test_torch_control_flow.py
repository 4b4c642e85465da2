"""`torch.cond`, `while_loop` and `scan` in compiled and in exported functions: Tenon's control flow, no fallback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import tenon as tn
import tenon.torch
from interop.torch_compiled import assert_close

pytestmark = [pytest.mark.filterwarnings(f"ignore:{text}") for text in (        # PyTorch's own
    ".*torch.jit.script_method:DeprecationWarning", "The .grad attribute of a Tensor that is not a leaf:UserWarning")]
WEIGHT = torch.linspace(0.5, 1.5, 3)


def branched(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: (x * WEIGHT).sin(), lambda x: x.cos() - WEIGHT, (x,))


def nested(x: torch.Tensor) -> torch.Tensor:
    def positive(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x[0] > 1, lambda x: x * 2, lambda x: x.exp(), (x,))
    return torch.cond(x.sum() > 0, positive, lambda x: -x, (x,))


def several(x: torch.Tensor) -> torch.Tensor:
    first, count = torch.cond(x.mean() > 0.1, lambda x: (x + 1, x.argmax()), lambda x: (x - 1, x.argmin()), (x,))
    return first * count


def counted(x: torch.Tensor) -> torch.Tensor:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * WEIGHT + i), (torch.tensor(0), x))[1]


def until(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return while_loop(lambda n, x: x.norm() < 10, lambda n, x: (n + 1, x * 1.5 + 0.1), (torch.zeros(()), x))


def recurrence(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    def step(h: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(h * WEIGHT[0] + row)
        return h.clone(), h * row
    return scan(step, torch.zeros(()), x)


def backwards(x: torch.Tensor) -> torch.Tensor:
    return scan(lambda h, row: (h + row, h * row), torch.ones(()), x, reverse=True)[1]


INPUTS = [torch.tensor([1.2, 0.3, 0.4]), torch.tensor([-1.0, 0.5, 0.1]), torch.tensor([0.5, 0.2, 0.9])]


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    tenon.torch.reset_report()
    return torch.compile(function, backend="tenon", **options)


@pytest.mark.parametrize("function", [branched, nested, several, counted, until, recurrence, backwards],
                         ids=lambda f: f.__name__)
def test_in_a_compiled_function(function: Callable[..., Any]) -> None:
    run = compiled(function)
    for x in INPUTS:
        assert_close(run(x), function(x), 1e-6)
    assert not tenon.torch.report().in_torch


@pytest.mark.parametrize("function", [branched, nested, recurrence, backwards], ids=lambda f: f.__name__)
def test_gradients(function: Callable[..., Any]) -> None:
    run = compiled(function)
    for x in INPUTS:
        gradients = []
        for call in (run, function):
            leaf = x.clone().requires_grad_()
            found = call(leaf)
            sum(y.square().sum() for y in (found if isinstance(found, tuple) else (found,))).backward()
            gradients.append(leaf.grad)
        assert_close(*gradients, 1e-5)
    assert not tenon.torch.report().in_torch


def test_sizes_may_change() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: x.sum() + x @ x.t(), (x,))
    run = compiled(function, dynamic=True)
    for size in (3, 5, 4, 1):
        for sign in (1, -1):
            x = torch.linspace(0.1, 1, size * 2).reshape(size, 2) * sign
            assert_close(run(x), function(x), 1e-6)


def test_what_a_branch_has_that_no_rule_takes_pytorch_runs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.mode(x).values + x, lambda x: x.cos(), (x,)) + 1
    run = compiled(function)
    for x in INPUTS[:2]:
        assert_close(run(x), function(x), 1e-6)
    assert dict(tenon.torch.report().in_torch) == {"cond": 1}
    assert "mode" in tenon.torch.report().reasons["cond"]


class Deep(nn.Module):
    """One layer, several times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda n, x: n < 4, lambda n, x: (n + 1, torch.tanh(self.layer(x)) + x),
                          (torch.tensor(0), x))[1]


class Routed(nn.Module):
    """One of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.left, self.right, (x,))


@pytest.mark.parametrize("kind", [Deep, Routed])
def test_in_an_exported_module(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    model = tn.torch.from_module(module, (INPUTS[0],))
    tn.save(tmp_path / "model.safetensors", model)
    loaded = tn.load(tmp_path / "model.safetensors")
    for x in INPUTS:
        expected = module(x).detach().numpy()
        for run in (model, loaded):
            tn.testing.assert_close(run(tn.tensor(x.numpy())), expected, rtol=1e-5)
