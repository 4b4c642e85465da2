"""Numbers taken out of tensors: large integers, numbers of several kinds."""

import copy
import dataclasses
import math
from typing import Any

import pytest

import tenon as tn
from capture.both import check, outcome, same, vector
from tenon.errors import CaptureError


def check_on(function, values):
    jitted = tn.jit(function)
    for x in values * 2:
        same(outcome(lambda x=x: function(x)), outcome(lambda x=x: jitted(x)), str(x))


def test_integers_near_the_end_of_64_bits():
    def counted_on(n):
        k = int(n)
        for _ in range(3):
            if n > 0:
                k += 1
        return k
    values = [tn.tensor(2**63 - 2), tn.tensor(5), tn.tensor(-2**63)]
    check_on(counted_on, values)
    check_on(lambda n: int(n) - 5, values)
    check_on(lambda n: (-int(n), abs(int(n)), n.item() + 1), values)
    check_on(lambda n: n.item() + 1 if n.item() > 0 else 0, [tn.tensor(2**64 - 1, dtype=tn.uint64),
                                                             tn.tensor(5, dtype=tn.uint64)])


def test_floats_beyond_64_bits_made_into_integers():
    floats = ([1e30], [2.5], [float("inf")], [float("nan")], [-3.0])
    check(lambda x: int(x.sum()) + 1, inputs=floats)
    check(lambda x: round(float(x.sum())) * 2, inputs=floats)


@pytest.mark.parametrize("digits", [0, 1, 2, 5, 10])
def test_a_number_of_the_graph_is_rounded_to_the_decimal_nearest_to_it(digits):
    """Not to that nearest to its product with a power of ten: 0.015 lies below the middle of 0.01 and 0.02."""
    halves = [(2 * k + 1) / 2 / 10**digits for k in (*range(-9, 60), 10**min(digits + 1, 8), -12345)]
    jitted = tn.jit(lambda x: round(float(x), digits), fullgraph=True)
    for x in [*halves, 0.0, -0.0, -1e-9, 2.675, 1e300, -1e17, float("inf"), 123456789012345.67]:
        assert repr(jitted(tn.tensor(x, dtype=tn.float64))) == repr(round(x, digits))


def test_a_number_of_the_graph_rounded_to_tens_and_an_integer_to_decimals():
    values = [tn.tensor(x) for x in (1234, 15, -25)]
    check_on(lambda n: (round(int(n), 2), n * 2), values)
    check_on(lambda n: (round(int(n), -1), round(float(n), -1), n * 2), values)


def test_the_kind_of_a_number_is_not_lost():
    def of_two_kinds(x):
        v = 1 if x.sum() > 0 else True
        return isinstance(v, bool), v, type(v) is int, v.__class__ is bool
    check(of_two_kinds)
    check(lambda x: str(type(1 if x.sum() > 0 else 2.0)), fullgraph=False)


def test_arithmetic_with_a_number_of_two_kinds():
    def either(x):
        v = 1 if x.sum() > 0 else 2.0
        return v / 2, v > 1, x * v
    check(either)

    def left_behind(x):
        v = 1 if x.sum() > 0 else 2.0
        return v + 1

    def carried(x):
        v = 1 if x.sum() > 0 else True
        w = v + 1
        for k in range(3):
            if x[k] > 0:
                w = w + v
        return w, type(w).__name__
    check(left_behind, fullgraph=False)
    check(carried, fullgraph=False)


def test_a_number_is_divided_with_its_remainder() -> None:
    def parts(x):
        whole, left = divmod(int(x.sum().item()), 3)
        quotient, rest = divmod(x.mean().item(), 1.5)
        return whole, left, quotient, rest, x * whole, divmod(7, int(x[0].item()) + 10)
    check(parts)


def test_data_that_decide_how_often_something_is_repeated() -> None:
    def repeated(x):
        n = int(abs(x).sum().item())
        return "#" * n, n * [0], (1, 2) * n, x * n, -n * b"a"
    check(repeated, fullgraph=False)
    with pytest.raises(CaptureError, match="how often a str is repeated"):
        tn.jit(repeated, fullgraph=True)(vector(1.0, 2.0))


def test_sizes_beside_numbers_of_the_graph():
    def counted(x):
        n, k = x.shape[0], int(x.sum())
        return (n - k, k % n, n * float(x.sum()), divmod(k, n), n < k, k < n, n == k, n // (k + 0.5), x.size + k, n + True)
    check_on(counted, [tn.arange(float(n)) for n in (2, 3, 4, 3, 5)])
    check_on(lambda x: (2 - x.shape[0]) ** int(x.sum()), [tn.arange(float(n)) for n in (2, 3, 4)])


def test_what_python_numbers_can_be_asked():
    def asked(x):
        n, z = int(x.sum()), x.sum().item()
        return n.bit_length(), z.is_integer(), hasattr(n, "shape"), hasattr(z, "hex"), getattr(z, "dtype", None), n.real
    check_on(asked, [tn.tensor([1.0, 2.0]), tn.tensor([0.5, 7.0]), tn.tensor([-9.0])])
    jitted = tn.jit(lambda x: x if x.sum().item().is_integer() else -x, fullgraph=True)
    assert [float(jitted(tn.tensor([x]))) for x in (2.0, 2.5, float("inf"))] == [2.0, -2.5, -float("inf")]
    check_on(lambda x: int(x.sum()).shape, [tn.tensor([1.0])])


def test_numbers_of_the_graph_beside_one_of_two():
    def either(x):
        n = int(x.sum())
        return n >= min(n, 1), n // (n or 1.0), n - (n or 1), n * (n and 2.5)
    check_on(either, [tn.tensor([3.0]), tn.tensor([0.0]), tn.tensor([-2.0])])


def test_python_refuses_shifts_by_less_than_nothing():
    def shifted(x):
        int(x) << -3
        return x
    check_on(shifted, [tn.tensor(3), tn.tensor(4)])
    check_on(lambda x: int(x) | round(1e300), [tn.tensor(3)])


def test_a_number_of_one_of_two_kinds():
    def either(x):
        n = 3 if x.sum() > 0 else 2.5
        return -n, abs(n), divmod(n, 2), divmod(7, n), (1 if x.sum() > 0 else True) << 2, 1 << (True if n == 3 else 2)
    check_on(either, [tn.tensor([3.0]), tn.tensor([0.0])])


@pytest.mark.parametrize("function", [
    math.sqrt, math.log, math.log2, math.log10, math.log1p, math.expm1, math.asin, math.acos, math.atanh, math.asinh,
    math.acosh, lambda x: math.log(x, 10)])
def test_functions_of_mathematics_with_a_domain(function):
    """They ran with graph breaks; outside of the domain the call raises what Python raises."""
    jitted = tn.jit(lambda x: function(x.sum().item()))
    for value in (0.5, 0.25, -2.0, 0.0, 1.5, math.nan, math.inf, 0.75):
        try:
            wanted = function(value)
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                jitted(tn.tensor([value], dtype=tn.float64))
        else:
            assert jitted(tn.tensor([value], dtype=tn.float64)) == pytest.approx(wanted, rel=1e-14, nan_ok=True)
    assert "with graph breaks" not in str(tn.explain(jitted))


@dataclasses.dataclass
class Held:
    number: Any


def test_copies_of_a_number_are_that_number():
    """They came to a RecursionError, and ran with graph breaks."""
    def copies(x):
        n = int(x.max())
        return copy.copy(n), copy.deepcopy([n, x.mean().item()]), dataclasses.asdict(Held(n)), dataclasses.replace(Held(n))
    check_on(copies, [tn.tensor([3.0, 1.0]), tn.tensor([0.0, 4.0])])
