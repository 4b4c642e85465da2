"""A date or path that changes from call to call is an input of the graph, as texts are: few captures, same results."""

import datetime
import pathlib

import pytest

import tenon as tn

START, HOUR = datetime.datetime(2024, 1, 30, 22), datetime.timedelta(hours=1)
INPUTS = [
    lambda x, d, p: x * d.day + d.month, lambda x, d, p: x * (d - START).total_seconds(), lambda x, d, p: d + HOUR,
    lambda x, d, p: x * 2 if d < START + 9 * HOUR else x, lambda x, d, p: (f"{d:%H} {d}", str(d), d.isoformat()),
    lambda x, d, p: {"at": d.replace(minute=3), "in": 2 * (d - START)}, lambda x, d, p: isinstance(d, datetime.date),
    lambda x, d, p: (x * 2, p / "a", p.with_suffix(".pt")), lambda x, d, p: (str(p), f"{p.stem}-{p}", p.parent.name),
    lambda x, d, p: p if p.name == "7.npy" else x, lambda x, d, p: x * 2 + d.weekday(),
]
BY_VALUE = [
    lambda x, d, p: (x * 2, {d: 1}), lambda x, d, p: x * (d in {START, START + HOUR}), lambda x, d, p: type(d) is datetime.datetime,
    lambda x, d, p: datetime.datetime.combine(d, datetime.time(3)), lambda x, d, p: (x * 2, p.exists(), d.timestamp()),
    lambda x, d, p: (p.parts, d.isocalendar()[1], x),
]


def called(function, k):
    return repr(function(tn.ones(2) * k, START + k * HOUR, pathlib.Path("/data") / f"{k % 9}.npy"))


def captures(function):
    return sum(len(record.captures) for x in function.with_pieces() for record in x.records.values())


@pytest.mark.parametrize("function", INPUTS + BY_VALUE)
def test_few_captures(function):
    jitted = tn.jit(function)
    for n in range(20):
        assert called(jitted, n) == called(function, n)
    assert captures(jitted) <= 3


def test_times_are_the_same_where_zones_are():
    @tn.jit
    def hour(x, at):
        return x * at.hour
    zones = [datetime.timezone(k * HOUR) for k in range(3)]
    assert [hour(tn.ones(()), START.astimezone(zone)).item() for zone in zones] == [
        START.astimezone(zone).hour for zone in zones]


def test_an_attribute():
    class State:
        at = START
    state = State()

    @tn.jit
    def step(x):
        state.at += HOUR
        return x * state.at.hour
    for k in range(1, 8):
        assert step(tn.ones(())).item() == (START + k * HOUR).hour == state.at.hour
    assert captures(step) <= 3
