"""Jitted functions that the captured code can name: what they remember of calls is no reason to capture again."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon import nn, optim


class Trainer:
    """Its method has the name of a method that it calls."""

    def __init__(self) -> None:
        self.net = nn.Linear(4, 2)
        self.opt = optim.Adam(list(self.net.parameters()), lr=0.01)

    @tn.jit
    def step(self, x: Any, y: Any) -> Any:
        loss = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss


def captures(f: Any) -> int:
    return sum(len(record.captures) for record in f.records.values())


def test_a_method_that_calls_one_of_its_own_name_is_captured_once() -> None:
    trainer, x, y = Trainer(), tn.rand(3, 4), tn.rand(3, 2)
    losses = [float(trainer.step(x, y)) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert captures(Trainer.step) == 1


def test_a_jitted_function_that_another_one_calls_may_be_called_in_between() -> None:
    inner = tn.jit(lambda x: x * 2)
    outer = tn.jit(lambda x: inner(x) + 1)
    for k in range(8):
        np.testing.assert_array_equal(outer(tn.ones(3)), np.full(3, 3))
        inner(tn.ones(k + 1))
    assert captures(outer) == 1


def test_attributes_that_a_user_gives_a_jitted_function_are_read_anew() -> None:
    @tn.jit
    def scaled(x: Any) -> Any:
        return x * scaled.factor
    for factor in (2.0, 2.0, 5.0, 7.0, 9.0):
        scaled.factor = factor
        np.testing.assert_array_equal(scaled(tn.ones(3)), np.full(3, factor))
    inner = tn.jit(lambda x: x + 1)
    outer = tn.jit(lambda x: inner(x))
    outer(tn.ones(3))
    inner.function = lambda x: x - 1
    np.testing.assert_array_equal(outer(tn.ones(3)), np.zeros(3))
