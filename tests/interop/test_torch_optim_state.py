"""States of PyTorch's optimizers, which Tenon's go on from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn, optim

torch = pytest.importorskip("torch")

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}), ("AdamW", {"lr": 0.1, "weight_decay": 0.2}),
    ("Adamax", {"lr": 0.1}), ("NAdam", {"lr": 0.1, "weight_decay": 0.1}), ("RAdam", {"lr": 0.1, "betas": (0.9, 0.9)}),
    ("RMSprop", {"lr": 0.1}), ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}), ("Rprop", {"lr": 0.05}),
    ("ASGD", {"lr": 0.2, "lambd": 0.1, "alpha": 0.9, "t0": 1}), ("Adafactor", {"lr": 0.1}), ("Adadelta", {"lr": 0.5}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
]
NARROW = ("NAdam", "ASGD")      # PyTorch keeps the product of momenta, and the rate, in float32


def made_step(params: Any, opt: Any, present: int) -> None:
    """A step in which the first parameters have a gradient."""
    opt.zero_grad()
    sum((p * p * p + p * (k + 1)).sum() for k, p in enumerate(params[:present])).backward()
    opt.step()


@pytest.mark.parametrize("by_file", [False, True])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_the_next_steps_are_those_of_pytorch(name: str, options: dict[str, Any], by_file: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    theirs = [torch.nn.Parameter(torch.tensor(random.normal(size=(3, 2)))) for _ in range(3)]
    their_opt = getattr(torch.optim, name)([{"params": theirs[:2], **options}, {"params": theirs[2:]}], lr=0.3)
    for present in (2, 1, 1):       # the second makes fewer steps, the third none
        made_step(theirs, their_opt, present)
    ours = [nn.Parameter(q.detach().numpy()) for q in theirs]
    opt = getattr(optim, name)([{"params": ours[:2], **options}, {"params": ours[2:]}], lr=0.5)
    made_step(ours, opt, 3)         # what it kept before is forgotten
    for p, q in zip(ours, theirs, strict=True):
        p.assign(q.detach().numpy())
    state = their_opt.state_dict()
    if by_file:
        torch.save(state, tmp_path / "opt.pt")
        state = tn.load(tmp_path / "opt.pt")
    opt.load_state_dict(state)
    for present in (3, 2, 3, 1, 3):
        made_step(theirs, their_opt, present)
        made_step(ours, opt, present)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-6 if name in NARROW else 1e-9)


def test_a_schedule_and_a_rate_come_with_it() -> None:
    q, p = torch.nn.Parameter(torch.ones(3)), nn.Parameter(np.ones(3, np.float32))
    theirs, ours = torch.optim.AdamW([q], lr=0.1), optim.AdamW([p], lr=0.5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(theirs, max_lr=0.2, total_steps=5)
    theirs.step()
    schedule.step()
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"].item() == theirs.param_groups[0]["lr"]
    assert ours.param_groups[0]["betas"] == theirs.param_groups[0]["betas"]


def test_an_optimizer_of_a_users_has_its_state() -> None:
    def with_mean(base: Any) -> Any:
        class WithMean(base):       # type: ignore[misc]
            def __init__(self, params: Any, lr: float):
                super().__init__(params, {"lr": lr})
        return WithMean
    q, p = torch.nn.Parameter(torch.ones(3)), nn.Parameter(np.ones(3, np.float32))
    theirs, ours = with_mean(torch.optim.Optimizer)([q], 0.1), with_mean(optim.Optimizer)([p], 0.2)
    theirs.state[q] = {"mean": torch.full((3,), 7.0), "step": 4}
    ours.load_state_dict(theirs.state_dict())
    assert ours.state[p]["step"] == 4
    np.testing.assert_array_equal(ours.state[p]["mean"].numpy(), [7, 7, 7])


REFUSED = [
    ("SGD", {"momentum": 0.9}, "SGD", {}, r"SGD keeps \[\] of each parameter"),
    ("Adam", {}, "RMSprop", {}, r"RMSprop keeps \['square_avg'\] of each parameter here, the state \['exp_avg'"),
    ("Adam", {}, "Adam", {"amsgrad": True}, "max_exp_avg_sq"),
    ("LBFGS", {}, "LBFGS", {}, "memory of PyTorch's is not taken over"),
]


@pytest.mark.parametrize(("their_name", "their_options", "name", "options", "said"), REFUSED)
def test_a_state_of_another_optimizer_is_refused(their_name: str, their_options: dict[str, Any], name: str,
                                                 options: dict[str, Any], said: str) -> None:
    q, p = torch.nn.Parameter(torch.ones(3)), nn.Parameter(np.ones(3, np.float32))
    theirs, ours = getattr(torch.optim, their_name)([q], **their_options), getattr(optim, name)([p], **options)
    q.grad = torch.ones(3)
    theirs.step(lambda: (q * q).sum())
    with pytest.raises(tn.errors.ArgumentError, match=said):
        ours.load_state_dict(theirs.state_dict())


def test_parameters_and_groups_are_counted() -> None:
    q, p = torch.nn.Parameter(torch.ones(3)), nn.Parameter(np.ones(3, np.float32))
    state = torch.optim.Adam([q, torch.nn.Parameter(torch.ones(2))]).state_dict()
    with pytest.raises(tn.errors.ArgumentError, match="Adam has 1 parameters, the state 2"):
        optim.Adam([p]).load_state_dict(state)
    with pytest.raises(tn.errors.ArgumentError, match="Adam has 1 groups, the state has 0"):
        optim.Adam([p]).load_state_dict({**state, "param_groups": []})
    with pytest.raises(tn.errors.ArgumentError, match="must be dictionaries"):
        optim.Adam([p]).load_state_dict({**state, "state": [1]})
