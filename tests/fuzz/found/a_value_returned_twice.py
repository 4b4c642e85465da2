"""reference types: result 1 is float32[7, 2, 4], eagerly float32[7, 2, 8]

Seed 20261127001408.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x1, x2, yv6):
    v1 = tn.mvlgamma((tn.sigmoid(x1) * 2 + 2), p=3)
    v2 = tn.normalize(v1, axis=0)
    v4 = tn.stack([v2, x2], axis=1)
    v5 = tn.squeeze(v4)
    v7 = tn.interpolate(yv6, scale_factor=2, mode="nearest-exact")
    v8 = tn.einsum("bij,bkj->bik", v7, v7)
    v9 = tn.interpolate(v8, scale_factor=2)
    return v5, v4, v9


CALLS = [
    [np.random.default_rng(5760).standard_normal((7, 8)).astype(np.float32),
     np.random.default_rng(418).uniform(0.5, 2.0, (7, 8)).astype(np.float32)[::-1],
     np.random.default_rng(4).standard_normal((7, 2, 1)).astype(np.float32)],
]


VECTORS = 256
