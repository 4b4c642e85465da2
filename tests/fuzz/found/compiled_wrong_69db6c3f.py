"""compiled wrong: compiled: result 0[4, 0] of [5, 1] is 1, should be 0 within 0; 1 of 5 elements wrong

Seed 99005004107.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x0, x1, x2):
    v1, = tn.gradient(x0, axis=-1)
    v2 = tn.expand(v1, (5, 7, 31, 2))
    v4 = tn.reciprocal(v2)
    v5, = tn.split(v4, 1, 0)
    v6 = tn.conv2d(v5, x1, padding="same")
    v7 = tn.conv2d(v6, x2, stride=2, padding=1)
    v8 = v7 == v7.min(-4, keepdims=True)
    v10 = tn.prod(v8, (-1, 2))
    return v10


CALLS = [
    [np.random.default_rng(3667).standard_normal((7, 31, 2)).astype(np.float64)[::-1],
     np.random.default_rng(4753).standard_normal((8, 7, 3, 1)).astype(np.float64),
     np.random.default_rng(2533).standard_normal((1, 8, 4, 4)).astype(np.float64)],
]


VECTORS = 512
