"""compiled wrong: compiled: result 0[0, 2, 0] of [1, 9, 6] is 0.0, should be 5.090372567906343e-14 within 9.7e-20; 2 of 54 elements wrong

Seed 99005003256.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS

op_conv_channels_last = OPS["conv_channels_last"]
op_normal_cdf = OPS["normal_cdf"]
del OPS


def program(x0, x1):
    v0 = op_conv_channels_last(x1, x0.reshape(-1)[:48].reshape((3, 4, 4)), stride=(1,), padding=((0, 0),), dilation=(1,))
    v1 = v0 + v0
    v2 = tn.log1p(tn.sigmoid(v1) * 2.8 + -0.8)
    v3 = tn.dstack([v1, v2])
    v9 = op_normal_cdf(v3)
    return v9


CALLS = [
    [np.random.default_rng(4313).standard_normal((16, 17)).astype(np.float32).T,
     np.random.default_rng(3581).standard_normal((1, 12, 4)).astype(np.float32)],
]


VECTORS = 128
