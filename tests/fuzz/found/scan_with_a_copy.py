"""compiled raises RuntimeError: the function runs by part, by a mistake of Tenon's: compiling its graph raised ValueError: zip() argument 2 is longer than argument 1

Seed 20261127000866.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def inner(yv2):
    v4 = tn.cumprod(tn.tanh(yv2), 0)
    return tn.square(v4).sum()


def program(yv2):
    return tn.grad(inner, argnums=(0,))(yv2)


CALLS = [
    [np.random.default_rng(1).standard_normal((1, 2)).astype(np.float32)],
]
BUDGET = 0


VECTORS = 256
