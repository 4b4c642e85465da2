"""compiled wrong: compiled: result 0[1, 3] of [4, 31] is True, should be False within 0; 3 of 124 elements wrong

Seed 99019004724.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x1):
    v0 = tn.cov(x1)
    v1 = tn.signbit(v0.reshape(-1)[:124].reshape((4, 31)))
    return v1


CALLS = [
    [np.random.default_rng(4707).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.0], (12, 3)).astype(np.float32)],
]


VECTORS = 256
