"""compiled wrong: compiled: result 0[5] of [6] is False, should be True within 0; 1 of 6 elements wrong

Seed 99022005379.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS

op_small_det = OPS["small_det"]
del OPS


def program(x1):
    v0 = op_small_det(x1)
    v1 = tn.logical_and(v0, v0)
    return v1


CALLS = [
    [np.random.default_rng(6627).integers(-2, 3, (6, 4, 4)).astype(np.float32)],
]


VECTORS = 128
