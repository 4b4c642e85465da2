"""compiled wrong: compiled: result 0[1, 1] of [2, 3] is 1, should be 0 within 0; 2 of 6 elements wrong

Seed 99001000970.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS


def program(x2):
    v0 = OPS["dealt"](x2)
    return v0


CALLS = [
    [np.random.default_rng(9240).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.5, 2.0], (2, 3)).astype(np.float64)],
]


VECTORS = 256
