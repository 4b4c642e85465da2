"""`torch.compile(optimizer.step, backend="tenon")`, whole training steps, and the operators on lists that they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tenon.torch
from interop.torch_compiled import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")    # PyTorch's own

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True}, "Adam": {}, "AdamW": {"amsgrad": True}, "RMSprop": {"centered": True},
    "Adagrad": {}, "Adadelta": {}, "NAdam": {}, "RAdam": {}, "Adamax": {}, "ASGD": {}, "Rprop": {}}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    tenon.torch.reset_report()
    return torch.compile(function, backend="tenon")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def trained(name: str, compile: Callable[..., Any], options: dict[str, Any]) -> list[torch.Tensor]:
    network, draw = model(), torch.Generator().manual_seed(1)
    optimizer = getattr(torch.optim, name)(network.parameters(), lr=1e-2, **options)
    step = compile(optimizer.step)
    for _ in range(3):
        network(torch.randn(5, 4, generator=draw)).pow(2).sum().backward()
        step()
        optimizer.zero_grad()
    return [p.detach() for p in network.parameters()]


@pytest.mark.parametrize("foreach", [None, True], ids=["one by one", "as lists"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_an_optimizer(name: str, foreach: bool | None) -> None:
    options = OPTIMIZERS[name] | ({"foreach": True} if foreach else {})
    expected = trained(name, lambda step: step, options)
    assert_close(trained(name, compiled, options), expected, 1e-6)
    assert not tenon.torch.report().in_torch


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")   # which Dynamo reads
def test_a_whole_training_step_with_clipped_gradients() -> None:
    def losses(compile: Callable[..., Any]) -> list[torch.Tensor]:
        network, draw = model(), torch.Generator().manual_seed(1)
        optimizer = torch.optim.AdamW(network.parameters(), 1e-2)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
            return loss.detach()
        run = compile(step)
        return [run(torch.randn(6, 4, generator=draw), torch.randint(0, 2, (6,), generator=draw)) for _ in range(4)]
    expected = losses(lambda step: step)
    assert_close(losses(compiled), expected, 1e-5)
    assert not tenon.torch.report().in_torch


def numbers(seed: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=draw) + 0.5 for shape in ((3,), (2, 2), ())]


LISTS: dict[str, Callable[[list[torch.Tensor], list[torch.Tensor]], Any]] = {
    "numbers": lambda x, y: torch._foreach_add(torch._foreach_mul(x, 2.0), [1.0, 2.0, 3.0]),
    "alpha": lambda x, y: torch._foreach_sub(x, y, alpha=2),
    "a tensor for all": lambda x, y: torch._foreach_div(x, y[2]),
    "powers": lambda x, y: [*torch._foreach_pow(x, y), *torch._foreach_pow(2.0, x), *torch._foreach_pow(x, [1, 2, 3])],
    "norms": lambda x, y: [*torch._foreach_norm(x, float("inf")), *torch._foreach_norm(x, 1)],
    "bounds": lambda x, y: [*torch._foreach_maximum(x, y), *torch._foreach_minimum(x, 0.8)],
    "between": lambda x, y: [*torch._foreach_lerp(x, y, 0.3), *torch._foreach_lerp(x, y, y)],
    "in place": lambda x, y: (torch._foreach_addcmul_(x, y, y, [0.5, 1.0, 2.0]), torch._foreach_addcdiv_(x, y, y, 0.5)),
    "copied": lambda x, y: (torch._foreach_zero_(x[:1]), torch._foreach_copy_(x[1:], y[1:]))}


@pytest.mark.parametrize("name", LISTS)
def test_operators_on_lists(name: str) -> None:
    function = LISTS[name]
    found, expected = numbers(0), numbers(0)
    returned, of_eager = compiled(function)(found, numbers(1)), function(expected, numbers(1))
    assert_close(found, expected, 1e-6)
    if isinstance(of_eager, list):
        assert_close(list(returned), of_eager, 1e-6)
    assert not tenon.torch.report().in_torch
