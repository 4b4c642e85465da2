"""Functions whose sizes change from call to call are captured once or twice, whatever is done with the sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn

SHAPES = [(2, 72), (3, 5), (5, 7), (2, 4), (7, 33), (40, 16), (31, 109), (3, 8), (37, 300)]


def halves(x: tn.Tensor) -> tn.Tensor:
    return x[:, ::2] + tn.arange(x[:, ::2].shape[1])


def pairs_of_rows(x: tn.Tensor) -> tn.Tensor:
    shifted = tn.cat([x, x[:, 1:]], 1)
    return tn.stack([shifted, shifted], 0).reshape(-1, shifted.shape[1])


def without_the_last(x: tn.Tensor) -> tn.Tensor:
    return x[:, :-1].reshape(-1, x.shape[1] - 1)


def padded(x: tn.Tensor) -> tn.Tensor:
    return tn.pad(x, [(0, 0), (0, -x.shape[1] % 8)]).reshape(x.shape[0], -1, 8).sum(2)


@pytest.mark.parametrize("f", [halves, pairs_of_rows, without_the_last, padded])
def test_two_captures_serve_all_sizes(f: Callable[..., Any]) -> None:
    jitted = tn.jit(f)
    for shape in SHAPES:
        x = tn.tensor(np.random.default_rng(0).standard_normal(shape))
        np.testing.assert_allclose(jitted(x).numpy(), f(x).numpy(), 1e-12)
    assert sum(record.family.captures for record in jitted.records.values()) == 2
