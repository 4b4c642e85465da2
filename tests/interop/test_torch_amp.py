"""`tn.amp.GradScaler` makes the factors and the steps that PyTorch's makes, eagerly and as one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tenon as tn

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def trained(of: Any, model: Any, scaler: Any, wrap: Any) -> list[tuple[float, float]]:
    optimizer = of.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        loss = (model(x) ** 2).mean() * 20
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss
    step = wrap(step)
    return [(step(of.tensor(X)).item(), scaler.get_scale()) for _ in range(8)]


@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit], ids=["eager", "jit"])
def test_infinities_make_the_factor_smaller_and_leave_the_step_out(wrap: Any) -> None:
    options: Any = {"init_scale": 1e38, "growth_interval": 3}
    torch.manual_seed(0)
    theirs, ours = torch.nn.Linear(4, 1), tn.nn.Linear(4, 1)
    ours.load_state_dict({name: p.detach().numpy() for name, p in theirs.state_dict().items()})
    scaler = tn.amp.GradScaler("cpu", **options)
    expected = trained(torch, theirs, torch.amp.GradScaler("cpu", **options), lambda f: f)
    assert len({scale for _, scale in expected}) > 3
    np.testing.assert_allclose(trained(tn, ours, scaler, wrap), expected, rtol=1e-5)
    other = tn.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()


def test_it_is_off_where_a_gpu_is_asked_for() -> None:
    scaler, x = tn.cuda.amp.GradScaler(), tn.ones(2)
    assert not scaler.is_enabled() and scaler.scale(x) is x and scaler.get_scale() == 1.0


def test_the_order_of_scatter_reduce_is_pytorchs_too() -> None:
    at, values = tn.tensor([0, 1, 0]), tn.tensor([2.0, 3.0, 4.0])
    assert tn.ones(3).scatter_reduce(0, at, values, "amax").tolist() == [4, 3, 1]
    assert tn.nn.functional.lp_pool2d(tn.ones(1, 1, 2, 2), 2, 2).item() == 2
