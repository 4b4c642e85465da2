"""Host operators on the device `python`: functions of users and of NumPy that run beside the other devices."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.graph.op import OPS

LIMIT = 20.0        # seconds


@pytest.fixture
def threads() -> Iterator[list[str]]:
    """The names of the threads that `noted` ran on."""
    names: list[str] = []

    def ref(x: np.ndarray) -> np.ndarray:
        names.append(threading.current_thread().name)
        return np.sort(x)
    tn.op("noted", type=lambda x: x, ref=ref, vjp=lambda g, y, x: (g * 2,), replace=True)
    yield names


def noted(x: Any) -> Any:
    with tn.device("python"):
        return OPS["noted"](x)


def test_a_function_runs_beside_the_rest(threads: list[str]) -> None:
    """Each waits for the other, so that neither would end if one ran after the other."""
    first, second = threading.Event(), threading.Event()

    def meet(mine: threading.Event, other: threading.Event) -> Any:
        def ref(x: np.ndarray) -> np.ndarray:
            mine.set()
            assert other.wait(LIMIT)
            return x
        return ref
    here = tn.op("meets_here", type=lambda x: x, ref=meet(first, second), replace=True)
    there = tn.op("meets_there", type=lambda x: x, ref=meet(second, first), replace=True)

    @tn.jit(fullgraph=True)
    def f(x: Any) -> Any:
        with tn.device("python"):
            a = there(x)
        return here(x) + 1, a * 2
    a, b = f(tn.ones(2))
    assert a.tolist() == b.tolist() == [2, 2] and a.device == b.device == "cpu"


def test_results_are_those_of_eager_code(threads: list[str]) -> None:
    x = tn.tensor([3.0, 1.0, 2.0])
    jitted = tn.jit(lambda x: noted(x * 2) + 1, fullgraph=True)
    for _ in range(3):
        assert jitted(x).tolist() == noted(x * 2).add(1).tolist() == [3, 5, 7]
    text = str(jitted.graph(x))
    assert "f32[3] @ python = noted(" in text
    assert len({name for name in threads if name != threading.current_thread().name}) >= 1


def test_operators_of_tenon_stay_where_they_are(threads: list[str]) -> None:
    def f(x: Any) -> Any:
        with tn.device("python"):
            return tn.tanh(x) + tn.ones(3)
    assert "@ python" not in str(tn.jit(f).graph(tn.ones(3))) and f(tn.ones(3)).device == "cpu"


def test_gradients_go_through(threads: list[str]) -> None:
    w = nn.Parameter(tn.tensor([1.0, 2.0]))

    @tn.jit(fullgraph=True)
    def step(x: Any) -> Any:
        w.grad = None
        loss = (noted(w * x) * 3).sum()
        loss.backward()
        return loss
    assert float(step(tn.ones(2))) == 9 and w.grad is not None and w.grad.tolist() == [6, 6]


def test_functions_of_several_devices_meet_in_one_graph(threads: list[str]) -> None:
    tn.set_devices(2)
    try:
        f = tn.jit(lambda x: (noted(x.to("cpu:1") * 2) + 1, noted(x)), fullgraph=True)
        a, b = f(tn.tensor([2.0, 1.0]))
        assert (a.device, b.device) == ("cpu:1", "cpu") and a.tolist() == [3, 5] and b.tolist() == [1, 2]
    finally:
        tn.set_devices(1)


def test_what_a_function_raises_ends_the_call() -> None:
    def ref(x: np.ndarray) -> np.ndarray:
        raise ValueError("no such picture")
    load = tn.op("raises_there", type=lambda x: x, ref=ref, replace=True)

    @tn.jit
    def f(x: Any) -> Any:
        with tn.device("python"):
            y = load(x)
        return y + tn.exp(x)
    for _ in range(2):
        with pytest.raises(Exception, match="no such picture"):
            f(tn.ones(2))
