"""What an error in the middle of a compiled step leaves: what eager code leaves, and after Ctrl-C what was before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.errors import TenonError


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
