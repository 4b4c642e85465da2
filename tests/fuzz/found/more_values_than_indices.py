"""compiled raises RuntimeError: the function runs by part, by a mistake of Tenon's: capturing it raised ShapeError: scatter: broadcast_to: shapes [N1, 1] and [N0, 1] do not broadcast: sizes N1 and N0 differ at axis -2 <fuzzed program>:9 v8 = tn.scatter(v6, tn.argsort(v6, axis=0), x5 * 2, axis=0, reduce='min') ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ with: v6 is f32[N0, 1], x5 is f16[31, 1] hint: axes are matched from the last one; two sizes fit when they are equal

Seed 99023000956.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def program(x0, x5):
    v6 = tn.expand_dims(x0, -1)
    v8 = tn.scatter(v6, tn.argsort(v6, axis=0), x5 * 2, axis=0, reduce="min")
    return v8


CALLS = [
    [np.random.default_rng(7112).integers(-2, 3, (1,)).astype(np.float32),
     np.random.default_rng(8488).standard_normal((1, 1)).astype(np.float16)],
    [np.random.default_rng(7212).integers(-2, 3, (12,)).astype(np.float32),
     np.random.default_rng(8588).standard_normal((31, 1)).astype(np.float16)],
]


VECTORS = 256
