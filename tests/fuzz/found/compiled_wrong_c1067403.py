"""compiled wrong: compiled: result 1[1, 2] of [9, 4] is -1.871583776846819e-07, should be -1.8222899210891584e-07 within 1.6e-10; 2 of 36 elements wrong

Seed 99005003616.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS

op_matrix_exp = OPS["matrix_exp"]
del OPS


def inner(x2):
    v0 = op_matrix_exp(x2)
    v2 = tn.gelu(v0.reshape(-1)[:36].reshape((9, 4)), approximate='none')
    return v2


def program(x2):
    return tn.jvp(lambda x2: inner(x2), (x2,), (tn.cos(x2),))


CALLS = [
    [np.random.default_rng(7158).standard_normal((31, 31, 2)).astype(np.float32).T],
]


VECTORS = 512
