"""crashes: by signal SIGSEGV

Seed 99019011669.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS

op_add_windows = OPS["add_windows"]
del OPS


def program(x0, x2, x3):
    v0 = tn.einsum("bij,bkj->bik", x0, x0)
    v1 = tn.conv1d(v0, x2, groups=v0.shape[1], padding=1)
    v2 = op_add_windows(v1.reshape(-1)[:18].reshape((2, 3, 3)), sizes=(7,), kernel=(3,), stride=(2,), padding=((1, 0),), dilation=(1,))
    v3 = tn.fori_loop(0, 1, lambda k, a: tn.sin(a) * 0.5 + v2, v2)
    v5 = tn.where(v3 >= v3.max(1, keepdims=True), v3, 0.0)
    v7 = tn.stack([v5, v3], axis=-3)
    v8 = tn.interpolate(v7, scale_factor=2, mode="nearest-exact")
    v9 = tn.conv1d(v8, x3, groups=v8.shape[1], padding=1)
    v10 = tn.vecdot(v9, v9)
    return v10


CALLS = [
    [np.random.default_rng(7602).integers(-2, 3, (17, 12, 4)).astype(np.float32),
     np.random.default_rng(5595).standard_normal((12, 1, 2)).astype(np.float32),
     np.random.default_rng(3401).standard_normal((1, 1, 2)).astype(np.float32).T],
    [np.random.default_rng(7702).integers(-2, 3, (8, 12, 4)).astype(np.float32),
     np.random.default_rng(5695).standard_normal((12, 1, 8)).astype(np.float32),
     np.random.default_rng(3501).standard_normal((1, 1, 8)).astype(np.float32).T],
]


VECTORS = 256
