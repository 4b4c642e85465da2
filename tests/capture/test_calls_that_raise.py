"""Calls that raise an error of the program: as eagerly, and no capture is tried at each of them."""

import pytest

import tenon as tn
from tenon.capture.jitted import Jitted


@pytest.fixture
def tried(monkeypatch):
    """One entry for each capture that is tried."""
    found, capture = [], Jitted._capture

    def counting(self, *given):
        found.append(self)
        return capture(self, *given)
    monkeypatch.setattr(Jitted, "_capture", counting)
    return found


def outcome(call):
    try:
        return call().tolist()
    except Exception as error:
        return type(error), error.args


class Schedule:
    def __init__(self, rate):
        self.rate = rate

    def next(self):
        if self.rate < 0.25:
            raise ValueError("the rate is too small")
        self.rate *= 0.5
        return self.rate


def test_a_call_that_always_raises_is_captured_once(tried):
    jitted = tn.jit(lambda x: x.reshape(7))
    for _ in range(5):
        with pytest.raises(tn.errors.ShapeError):
            jitted(tn.ones(3))
    assert len(tried) == 1


def test_errors_come_after_calls_without(tried):
    def step(schedule, x):
        return x * schedule.next()
    eager, found = Schedule(1.0), Schedule(1.0)
    jitted, x = tn.jit(step), tn.ones(2)
    for k in range(12):
        assert outcome(lambda: jitted(found, x)) == outcome(lambda: step(eager, x)), k
    assert found.rate == eager.rate and len(tried) <= 4


def test_a_call_that_raises_no_more_is_captured_at_the_next(tried):
    schedule = Schedule(0.1)
    jitted, x = tn.jit(lambda x: x * schedule.next()), tn.ones(2)
    for k in range(6):
        schedule.rate = 0.1 if k < 2 else 1.0
        assert outcome(lambda: jitted(x)) == ([0.5, 0.5] if k >= 2 else (ValueError, ("the rate is too small",)))
    assert sum(len(record.captures) for record in jitted.records.values()) == 1 and len(tried) == 2


def test_captures_that_raise_come_ever_more_rarely(tried):
    class Flaky:
        calls = 0

        def __call__(self, x):
            self.calls += 1
            if self.calls % 2:
                raise ConnectionError(f"call {self.calls}")
            return x * self.calls
    eager, found = Flaky(), Flaky()
    jitted, x = tn.jit(lambda x: found(x)), tn.ones(2)
    for k in range(100):
        assert outcome(lambda: jitted(x)) == outcome(lambda: eager(x)), k
    assert found.calls == eager.calls and len(tried) <= 8


def checked(x):
    if x.sum() < 0:
        raise ValueError("negative")
    return x * 2


def told(x):
    if x.sum() < 0:
        raise ArithmeticError(f"the sum is {x.sum():.1f}")
    return x.exp(), x.shape


def caught(x):
    try:
        if x.sum() < 0:
            raise KeyError("negative")
    except KeyError:
        return x - 1
    return x * 3


def of_a_gradient(x):
    loss = (x * W).sum()
    if loss < 0:
        raise ValueError("the loss is negative")
    return loss


W = tn.nn.Parameter([1.0, 2.0])


@pytest.mark.parametrize("function", [checked, told, caught, of_a_gradient])
def test_a_way_that_the_graph_does_not_hold_takes_the_fast_path_once_it_is_known(function, monkeypatch):
    def result(called, x):
        try:
            return str(called(x))
        except Exception as error:
            return type(error), error.args, error.__context__
    jitted, longer, find = tn.jit(function, fullgraph=function is not told), [], Jitted._find_and_run
    monkeypatch.setattr(Jitted, "_find_and_run", lambda self, *given: longer.append(given) or find(self, *given))
    for k, values in enumerate([[1.0, 2.0], [-1.0, -2.0]] * 40):
        if k == 40:
            longer.clear()
        x = tn.tensor(values)
        assert result(jitted, x) == result(function, x), k
    assert longer == []
