"""An axis whose number a pool asks for, beside a vector that takes its symbol: the graph failed.

Seed 99015016323.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x1, x2):
    v0 = tn.adaptive_avg_pool1d(x1, 4)
    return v0, x2


CALLS = [
    [np.random.default_rng(1392).integers(-2, 3, (1, 1, 2)).astype(np.float32),
     np.random.default_rng(6935).integers(-2, 3, (1,)).astype(np.int64)],
    [np.random.default_rng(1492).integers(-2, 3, (8, 1, 8)).astype(np.float32),
     np.random.default_rng(7035).integers(-2, 3, (2,)).astype(np.int64)],
]


VECTORS = 512
