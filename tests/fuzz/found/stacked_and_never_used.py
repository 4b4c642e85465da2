"""The reference gave the stacked result of a scan a gradient of zeros, which times inf is NaN.

Seed 99020014324.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def inner(x1):
    v2, v3 = tn.scan(lambda a, r: (tn.sin(a), a * r), x1[0] * 0.5, x1)
    return tn.square(v2).sum()


def program(x1):
    return tn.grad(inner, argnums=(0,))(x1)


CALLS = [
    [np.random.default_rng(1204).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.0], (7, 1, 1, 9)).astype(np.float32)],
]


VECTORS = 128
