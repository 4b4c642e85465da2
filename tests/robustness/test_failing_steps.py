"""What an error in the middle of a compiled step leaves: what eager code leaves, and after Ctrl-C what was before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import OverBudget, TenonError
from tenon.runtime import stack_region


class Model:
    """Two tensors, a counter and a list; in the middle a step of the host, which may raise."""

    def __init__(self) -> None:
        self.first, self.second = tn.zeros(300, 300), tn.zeros(300, 300)
        self.count, self.log = 0, list[int]()
        self.error: BaseException | None = None

        def host(x: np.ndarray) -> np.ndarray:
            if self.error is not None:
                raise self.error
            return x
        self.host = tn.op(f"host_{id(self)}", type=lambda x: x, ref=host)

    def step(self, indices: Any) -> Any:
        self.first.assign(self.first + 1.0)
        self.count += 1
        one = tn.take(tn.ones(3), indices).sum()
        self.second.assign(self.second + self.host(self.first) * 0.0 + one)
        self.log.append(self.count)
        return one

    def state(self) -> tuple[Any, ...]:
        return self.first.numpy().tolist(), self.second.numpy().tolist(), self.count, list(self.log)


def advanced() -> tuple[Model, Any]:
    model = Model()
    step = tn.jit(model.step)
    for _ in range(4):
        step(tn.tensor([1]))
    return model, step


@pytest.mark.parametrize("what", ["host", "index"])
def test_an_error_leaves_what_eager_code_leaves(what: str) -> None:
    model, step = advanced()
    eager = Model()
    for _ in range(4):
        eager.step(tn.tensor([1]))
    for turn in range(2):
        eager.error = model.error = ValueError("no") if what == "host" else None
        for run in (eager.step, step):
            with pytest.raises(TenonError if what == "host" else IndexError):
                run(tn.tensor([1 if what == "host" else 7]))
        assert model.state() == eager.state() and model.count == 5 + 2 * turn
        eager.error = model.error = None
        eager.step(tn.tensor([1]))
        step(tn.tensor([1]))
        assert model.state() == eager.state()


def test_ctrl_c_in_a_step_of_the_host_leaves_the_state_before_the_step() -> None:
    model, step = advanced()
    before = model.state()
    model.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        step(tn.tensor([1]))
    assert model.state() == before
    model.error = None
    step(tn.tensor([1]))
    assert model.count == 5 and model.first.numpy().max() == model.second.numpy().min() == 5.0


class Looping:
    """A step with the gradient of a loop, which keeps a value of each turn on a stack."""

    def __init__(self) -> None:
        self.w, self.m, self.count = tn.ones(9, 9) * 0.01, tn.zeros(9, 9), 0

    def loss(self, w: Any, x: Any, turns: Any) -> Any:
        turn = 0
        while turn < turns:
            x, turn = tn.tanh(x @ w) + 0.1, turn + 1
        return (x * x).sum()

    def step(self, x: Any, turns: Any) -> None:
        self.m.assign(self.m * 0.9 + tn.grad(self.loss)(self.w, x, turns))
        self.count += 1
        self.w.assign(self.w - self.m * 0.01)

    def state(self) -> list[Any]:
        return [self.w.numpy().tolist(), self.m.numpy().tolist(), self.count]


@pytest.mark.parametrize("chunks", range(3))
def test_memory_that_runs_out_while_stacks_grow_leaves_a_whole_state(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """The function runs eagerly in place of the graph: after the step the state is that of one step, not of a part."""
    compiled, eager, x = Looping(), Looping(), tn.ones(9, 9)
    step = tn.jit(compiled.step)
    for turns in (3, 5, 4):
        step(x, tn.tensor(turns))
        eager.step(x, tn.tensor(turns))
    left, failed, plain = chunks, 0, stack_region.aligned_bytes

    def scarce(size: int) -> Any:
        nonlocal left, failed
        left, failed = left - 1, failed + (left <= 0)
        if left < 0:
            raise MemoryError
        return plain(size)
    with monkeypatch.context() as patch:
        patch.setattr(stack_region, "aligned_bytes", scarce)
        step(x, tn.tensor(4000))
    eager.step(x, tn.tensor(4000))
    assert failed and compiled.count == eager.count
    for found, wanted in zip(compiled.state()[:2], eager.state()[:2], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    for turns in (4, 30):
        step(x, tn.tensor(turns))
        eager.step(x, tn.tensor(turns))
    np.testing.assert_allclose(compiled.state()[0], eager.state()[0], rtol=1e-4, atol=1e-6)


def test_a_budget_that_stacks_overrun_leaves_the_state_before_the_step() -> None:
    model, x = Looping(), tn.ones(9, 9)
    step = tn.jit(model.step, memory_budget=1_000_000)
    step(x, tn.tensor(3))
    step(x, tn.tensor(5))
    before = model.state()
    for _ in range(2):
        with pytest.raises(OverBudget):
            step(x, tn.tensor(40_000))
        assert model.state() == before
    step(x, tn.tensor(5))
    assert model.count == 3
