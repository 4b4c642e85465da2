"""What a training step does with the loss after `backward()` has been through its tape is part of the one graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from capture.both import outcome, same
from tenon import nn, optim

INPUTS = ([1.0, 1.0], [-1.0, -1.0], [2.0, 1.0], [1.0, 1.0])
Step = Callable[[Any], Any]


class Run:
    """A step with a parameter and an optimizer of its own, and what it notes."""

    def __init__(self) -> None:
        self.w = nn.Parameter([1.0, 2.0])
        self.optimizer = optim.SGD([self.w], lr=0.1)
        self.log: list[Any] = []
        self.best, self.bad, self.total = float("inf"), 0, 0.0

    def update(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def item_is_returned(run: Run, x: Any) -> Any:
    loss = (run.w * x).sum()
    run.update(loss)
    return loss.item()


def float_is_logged(run: Run, x: Any) -> Any:
    loss = ((run.w * x) ** 2).sum()
    run.update(loss)
    run.log.append(float(loss))
    return loss.detach()


def nan_is_noted(run: Run, x: Any) -> Any:
    loss = (run.w * x).log().sum()
    loss.backward()
    if tn.isnan(loss):
        run.log.append(1)
    else:
        run.optimizer.step()
    run.optimizer.zero_grad()
    return loss.detach()


def means_of_a_dictionary(run: Run, x: Any) -> Any:
    out = run.w * x
    loss = ((out - 1) ** 2).mean()
    run.update(loss)
    return {"loss": float(loss), "right": (out > 0).sum().item() / len(x), "bad": bool(tn.isnan(loss))}


def best_loss_is_kept(run: Run, x: Any) -> Any:
    loss = ((run.w * x) ** 2).sum()
    run.update(loss)
    if loss.item() < run.best:
        run.best = loss.item()
    else:
        run.bad += 1
    return "stop" if run.bad >= 2 else "go"


def steps_until_it_is_small(run: Run, x: Any) -> Any:
    loss = ((run.w * x - 1) ** 2).sum()
    for _ in range(3):
        loss = ((run.w * x - 1) ** 2).sum()
        run.update(loss)
        if loss.item() < 0.1:
            break
    return loss.detach(), loss.requires_grad


def loss_is_scaled_in_a_branch(run: Run, x: Any) -> Any:
    loss = ((run.w * x - 1) ** 2).sum()
    run.update(loss)
    if loss > 0.5:
        loss = loss * 2
    return loss.detach()


def largest_loss(run: Run, x: Any) -> Any:
    losses = []
    for k in range(1, 4):
        loss = (run.w * x * k).sum()
        run.update(loss)
        losses.append(loss)
    return max(losses, key=float).detach(), sum(one.item() for one in losses)


STEPS = [item_is_returned, float_is_logged, nan_is_noted, means_of_a_dictionary, best_loss_is_kept,
         steps_until_it_is_small, loss_is_scaled_in_a_branch, largest_loss]


@pytest.mark.parametrize("step", STEPS)
def test_a_loss_is_used_after_backward(step: Step) -> None:
    eager, jitted = Run(), Run()
    compiled = tn.jit(step, fullgraph=True)
    for k, values in enumerate(INPUTS):
        x = tn.tensor(values)
        same(outcome(lambda x=x: step(eager, x)), outcome(lambda x=x: compiled(jitted, x)), f"call {k}")
        same(eager.log, jitted.log, f"log after call {k}")
        np.testing.assert_allclose(jitted.w.numpy(), eager.w.numpy(), rtol=1e-5)
        same((eager.best, eager.bad), (jitted.best, jitted.bad), f"state after call {k}")


def test_what_is_computed_from_a_released_tape_cannot_be_differentiated() -> None:
    w = nn.Parameter([1.0, 2.0])

    def step(x):
        loss = (w * x).sum()
        loss.backward()
        return loss * 2
    for function in (step, tn.jit(step, fullgraph=True)):
        for _ in range(3):
            y = function(tn.ones(2))
            assert y.requires_grad and not y.is_leaf
            with pytest.raises(tn.errors.GradientError, match="a second time"):
                y.backward()


def test_which_branch_released_a_tape_is_left_to_python() -> None:
    w, v = nn.Parameter([1.0, 2.0]), nn.Parameter([3.0, 1.0])

    def step(x):
        loss = (w * x).sum()
        loss.backward()
        return loss * v if x.sum() > 0 else v * x
    jitted = tn.jit(step)
    for values in INPUTS:
        for function in (step, jitted):
            y = function(tn.tensor(values)).sum()
            if values[0] > 0:
                with pytest.raises(tn.errors.GradientError):
                    y.backward()
            else:
                y.backward()


def test_a_number_is_formatted_when_the_graph_has_run() -> None:
    def told(x):
        return f"{x.sum().item():.3f} of {x.mean().item():>6.1f}, {x.sum().item()}"
    jitted = tn.jit(told, fullgraph=True)
    for values in INPUTS:
        assert jitted(tn.tensor(values)) == told(tn.tensor(values))
