"""hangs: no answer in 30 seconds

Seed 99018002971.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x1, x3):
    v11 = tn.conv2d(x1, x3, padding="same")
    return v11


CALLS = [
    [np.random.default_rng(1553).standard_normal((1, 9, 1, 2)).astype(ml_dtypes.bfloat16),
     np.random.default_rng(8530).standard_normal((2, 9, 2, 3)).astype(ml_dtypes.bfloat16)],
    [np.random.default_rng(1653).standard_normal((1, 4, 1, 31)).astype(ml_dtypes.bfloat16),
     np.random.default_rng(8630).standard_normal((31, 4, 31, 2)).astype(ml_dtypes.bfloat16)],
]


VECTORS = 256
