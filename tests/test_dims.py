"""Random sizes against enumeration: bounds hold for every value of the symbols, exact quotients are quotients."""

import itertools
import random

import pytest

from tenon.dims.symbolic_dim import Dim, bounds, evaluate, maximum, symbol

NAMES = ("B", "C", "data_0")
VALUES = [dict(zip(NAMES, sizes, strict=True)) for sizes in itertools.product((2, 3, 5, 8), (2, 4, 7), (0, 1, 6))]


def random_dim(rng: random.Random, depth: int = 3) -> Dim:
    """A size of a few symbols, with quotients and maxima."""
    if depth == 0 or rng.random() < 0.2:
        return symbol(rng.choice(NAMES)) if rng.random() < 0.7 else rng.randint(-3, 5)
    left, right = random_dim(rng, depth - 1), random_dim(rng, depth - 1)
    match rng.randrange(5):
        case 0:
            return left + right
        case 1:
            return left - right
        case 2:
            return left * right
        case 3:
            return left // rng.randint(1, 4)
    return maximum(left, right)


@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_for_all_values(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        dim = random_dim(rng)
        low, high = bounds(dim)
        found = [evaluate(dim, values) for values in VALUES]
        assert (low is None or low <= min(found)) and (high is None or max(found) <= high), dim


@pytest.mark.parametrize("seed", range(10))
def test_a_product_divided_by_a_factor_is_the_other(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        left, right = random_dim(rng), random_dim(rng)
        if isinstance(right, int) or bounds(right)[0] is None or bounds(right)[0] <= 0:     # type: ignore[operator]
            continue
        assert (left * right - left * right // right * right) == 0
        for values in VALUES:
            assert evaluate((left * right) // right, values) == evaluate(left, values)
            assert evaluate(left // right, values) == evaluate(left, values) // evaluate(right, values)


def test_a_size_less_than_another_is_known_to_be() -> None:
    B, C = symbol("B"), symbol("C")
    assert bounds(B * C - B)[0] == 2 and bounds((B + 1) // 2)[0] == 1 and bounds(B // (C + 1))[0] == 0
    assert str(maximum((B + 1) // 2, 0)) == "((B + 1)//(2))" and str((B * (C + 1)) // (C + 1)) == "B"
