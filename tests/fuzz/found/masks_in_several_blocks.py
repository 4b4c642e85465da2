"""crashes: by signal SIGABRT, of LLVM's code generator, on vectors of 128 bits.

Seed 99003005372.
"""

import ml_dtypes
import numpy as np

import tenon as tn
from tenon.graph.op import OPS

op_attention_gradient = OPS["attention_gradient"]
del OPS


def program(x1):
    v0, v1, v2 = op_attention_gradient((tn.sigmoid(x1) * 4 + -2), (tn.sigmoid(x1.reshape(-1)[:60].reshape((12, 5))) * 4 + -2), (tn.sigmoid(x1.reshape(-1)[:60].reshape((12, 5))) * 4 + -2), (tn.sigmoid(x1) * 4 + -2), (tn.sigmoid(x1) * 4 + -2), (tn.sigmoid(x1.reshape(-1)[:240].reshape((12, 5, 4))) * 4 + -2), (tn.sigmoid(x1.reshape(-1)[:25].reshape((5, 5))) * 4 + -2), is_causal=True, scale=0.5)
    return v0, v1, v2


CALLS = [
    [np.random.default_rng(7850).standard_normal((12, 5, 4)).astype(np.float32)],
]
BUDGET = 0

VECTORS = 128
