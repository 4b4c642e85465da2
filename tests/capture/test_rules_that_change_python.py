"""Functions with a gradient of their own that change what Python holds: as often as eager code does, and no more."""

from collections.abc import Callable
from typing import Any

import pytest

import tenon as tn
from tenon import nn

Program = Callable[[Callable[..., Any]], list[Any]]


def function_of(calls: list[str], told: bool) -> Any:
    """A Function that says when its forward runs, and its backward where it is told to."""
    class Scaled(tn.autograd.Function):
        count = 0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            calls.append("forward")
            Scaled.count += 1
            return x * Scaled.count

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if told:
                calls.append("backward")
            return g * 10 * Scaled.count
    return Scaled


def stepped(jit: Any, told: bool) -> list[Any]:
    calls: list[str] = []
    scaled, w = function_of(calls, told), nn.Parameter([1.0, 2.0])

    def step(x: Any) -> Any:
        loss = scaled.apply(w * x).sum()
        loss.backward()
        return loss.detach()
    run = jit(step)
    return [(str(run(tn.ones(2))), str(w.grad), list(calls), scaled.count) for _ in range(3)]


def differentiated_from_outside(jit: Any, told: bool) -> list[Any]:
    calls: list[str] = []
    scaled, w, seen = function_of(calls, told), nn.Parameter([1.0, 2.0]), []
    run = jit(lambda x: scaled.apply(w * x).sum())
    for _ in range(3):
        run(tn.ones(2)).backward()
        seen.append((str(w.grad), list(calls), scaled.count))
    return seen


def in_a_branch(jit: Any, told: bool) -> list[Any]:
    calls: list[str] = []
    scaled, w = function_of(calls, told), nn.Parameter([1.0, 2.0])
    run = jit(lambda x: scaled.apply(w * x).sum() if x.sum() > 0 else scaled.apply(x).sum())
    return [(str(run(x)), list(calls), scaled.count) for x in (tn.ones(2), -tn.ones(2), tn.ones(2))]


def by_tn_grad(jit: Any, told: bool) -> list[Any]:
    calls: list[str] = []
    scaled = function_of(calls, told)
    run = jit(tn.grad(lambda x: scaled.apply(x).sum()))
    return [(str(run(tn.ones(2))), list(calls)) for _ in range(3)]


def by_custom_vjp(jit: Any, told: bool) -> list[Any]:
    calls: list[str] = []
    w = nn.Parameter([1.0, 2.0])

    @tn.custom_vjp
    def twice(x: Any) -> Any:
        calls.append("function")
        return x * 2

    def forward(x: Any) -> Any:
        calls.append("forward")
        return x * 2, None

    def backward(kept: None, g: Any) -> Any:
        if told:
            calls.append("backward")
        return (g * 2,)
    twice.defvjp(forward, backward)

    def step(x: Any) -> Any:
        twice(w * x).sum().backward()
        return twice(x)
    run = jit(step)
    return [(str(run(tn.ones(2))), str(w.grad), list(calls)) for _ in range(3)]


@pytest.mark.parametrize("told", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("program", [
    stepped, differentiated_from_outside, in_a_branch, by_tn_grad, by_custom_vjp], ids=lambda f: f.__name__)
def test_a_rule_changes_python_as_often_as_eagerly(program: Any, told: bool) -> None:
    assert program(tn.jit, told) == program(lambda f: f, told)


def test_a_forward_that_counts_is_one_graph() -> None:
    assert stepped(lambda f: tn.jit(f, fullgraph=True), False) == stepped(lambda f: f, False)
