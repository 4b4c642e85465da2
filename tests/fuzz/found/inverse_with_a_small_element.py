"""compiled wrong: compiled: result 0[22, 0, 0] of [29, 2, 2] is 0.00013422641495708376, should be 0.00013427577897371387 within 9.4e-10; 1 of 116 elements wrong

Seed 99001000438.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS


def program(x1):
    v1 = OPS["inv"](x1)
    return v1


CALLS = [
    [np.random.default_rng(1676).standard_normal((29, 2, 2)).astype(np.float32)],
]


VECTORS = 128
