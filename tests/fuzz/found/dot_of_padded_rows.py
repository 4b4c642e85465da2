"""compiled raises RuntimeError: the function runs by part, by a mistake of Tenon's: compiling its graph raised IndexError: tuple index out of range

Seed 99003003506.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(yv3, yv1):
    v2 = tn.pad(yv1, [(0, 2), (1, 2)])[..., ::2]
    v4 = tn.einsum("ij,ij->i", yv3, v2)
    return v4


CALLS = [
    [np.random.default_rng(2).standard_normal((10, 18)).astype(np.float32),
     np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)],
]


VECTORS = 128
