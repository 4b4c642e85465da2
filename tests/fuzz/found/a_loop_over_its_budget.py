"""compiled raises OverBudget: what a loop keeps of its turns, for its gradient, takes more than 0 MiB, and memory_budget leaves 0 MiB for that judge.py:181 results = function(*(tn.asarray(np.copy(a, order='K')) if isinstance(a, np.ndarray) else a for a in arrays)) ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ hint: let tn.checkpoint compute a part again, or end the loop sooner

Seed 20261128000125.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def inner(x0):
    v0 = x0
    while tn.abs((v0 * v0).sum() - 5) < 4:
        v0 = v0 * 0.5
    return tn.square(v0).sum()


def program(x0):
    return tn.grad(inner, argnums=(0,))(x0)


CALLS = [
    [np.asarray(np.random.default_rng(1088).integers(-2, 3, ())).astype(np.float32)],
]
BUDGET = 0


VECTORS = 512
