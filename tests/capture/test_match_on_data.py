"""`match` and `is` on numbers that the data decide take the case that Python takes."""

import dataclasses

import numpy as np
import pytest

import tenon as tn

INPUTS = [[1.0, 2.0], [-1.0, 0.5], [-3.0, -4.0], [0.5, 3.0], [-1.0, 3.0]]


def singleton(x):
    match bool(x.sum() > 0):
        case True:
            return x
        case False:
            return x * 2


def classes(x):
    match (x > 0).sum().item():
        case 0:
            return x
        case 1 as k:
            return x * (k + 1)
        case int():
            return x * 3
        case _:
            return x * 4


def guarded_capture(x):
    v = 7.0
    match x.sum().item():
        case float(v) if v > 1:
            return x * v
        case int(v):
            return x * 5
        case float():
            return x * 2 + v
        case _:
            return x * 4


def names(x):
    match int((x > 0).sum()):
        case 1 | 2 as k if k > 1:
            y = x * 10
        case bool() | int() as k:
            y = x + 1
    return y * k


def inside_a_tuple(x):
    match (bool(x.sum() > 0), x):
        case (True, y):
            return y
        case (int(), y):
            return y * 2


@dataclasses.dataclass
class Flagged:
    flag: bool
    value: int


def inside_an_object(x):
    match Flagged((x.sum() > 0).item(), int((x > 0).sum())):
        case Flagged(flag=True, value=v):
            return x * v
        case Flagged(value=int(v)):
            return x - v


def identity(x):
    above = (x.sum() > 0).item()
    return x if above is True else x * 2


def no_identity(x):
    above = bool(x.sum() > 0)
    return x if above is not False else x * 2


def two_flags(x):
    one, other = bool(x[0] > 0), bool(x[1] > 0)
    return x if one is other else x * 2


def other_kinds(x):
    n = int((x > 0).sum())
    return x if n is True else x * 2


PROGRAMS = [singleton, classes, guarded_capture, names, inside_a_tuple, inside_an_object, identity, no_identity,
            two_flags, other_kinds]


@pytest.mark.parametrize("f", PROGRAMS, ids=[f.__name__ for f in PROGRAMS])
def test_the_case_is_pythons(f):
    jitted = tn.jit(f)
    for data in INPUTS * 2:
        x = tn.tensor(data)
        np.testing.assert_array_equal(jitted(x).numpy(), f(x).numpy())


@pytest.mark.parametrize("f", [singleton, classes, guarded_capture, names, identity, no_identity, two_flags],
                         ids=lambda f: f.__name__)
def test_values_and_classes_of_numbers_stay_in_one_graph(f):
    jitted = tn.jit(f, fullgraph=True)
    for data in INPUTS:
        jitted(tn.tensor(data))
