"""stops the fuzzer: exit status 1

Seed 20261127001950.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x2, x3, x4):
    v0 = tn.hardtanh(x2, min_val=-0.5, max_val=0.5)
    v1 = tn.index_add(x2, (x3 % 12), tn.take(x2, (x4 % 12), axis=0), 0)
    v2 = tn.bincount(tn.abs(x4) % 7, minlength=7)
    v3 = x3 >= x3.max(-1, keepdims=True)
    return v1, v2, v0, v3


CALLS = [
    [np.random.default_rng(1697).standard_normal((12, 8)).astype(ml_dtypes.bfloat16)[::-1],
     np.random.default_rng(8794).integers(0, 1000, (8,)).astype(np.int64).T,
     np.random.default_rng(1024).integers(0, 1000, (1,)).astype(np.int64)[::-1]],
]


VECTORS = 512
