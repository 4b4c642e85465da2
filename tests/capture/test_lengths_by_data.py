"""The length of a list that the data prolong, beside numbers that change from call to call."""

from typing import Any

import pytest

import tenon as tn

INPUTS = [[1.0, -2.0], [3.0, 4.0], [-1.0, -1.0], [0.5, 0.1], [-3.0, 9.0], [-3.0, -3.0], [1.0, 1.0]]


class Holder:
    def __init__(self) -> None:
        self.listed: list[Any] = []


def kept(o: Holder, x: Any, n: int) -> Any:
    if x.sum() > 1:
        o.listed.append(x.sum())
    return x * n + len(o.listed)


def made(o: Holder, x: Any, n: int) -> Any:
    found = [v for v in x if v > 0] or [x[0]]
    return len(found) * n


def replaced(o: Holder, x: Any, n: int) -> Any:
    o.listed = [v for v in x if v > 0]
    return x * len(o.listed) + n


@pytest.mark.parametrize("f", [kept, made, replaced], ids=lambda f: f.__name__)
def test_a_length_is_that_of_this_call(f: Any) -> None:
    jitted = tn.jit(f)
    one, other = Holder(), Holder()
    for n, data in enumerate(INPUTS * 2):
        expected, found = f(one, tn.tensor(data), n), jitted(other, tn.tensor(data), n)
        assert getattr(found, "tolist", lambda x=found: x)() == getattr(expected, "tolist", lambda x=expected: x)()
        assert len(one.listed) == len(other.listed)
