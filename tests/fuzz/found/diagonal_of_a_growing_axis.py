"""compiled raises RuntimeError: the function runs by part, by a mistake of Tenon's: compiling its graph raised UndecidedSize: whether 1 < N0 - 1 depends on the sizes at run time

Seed 20261127000483.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS


def program(x4):
    v2 = OPS["diagonal"](x4, offset=1)
    return v2


CALLS = [
    [np.random.default_rng(0).integers(-2, 3, (1, 1)).astype(np.float32)],
    [np.random.default_rng(100).integers(-2, 3, (1, 9)).astype(np.float32)],
]


VECTORS = 128
