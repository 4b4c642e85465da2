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
