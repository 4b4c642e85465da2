"""reference raises GraphError: interpret: pop: the stack is empty, or holds other types on top judge.py:131 native = interpret(graph, given) ^^^^^^^^^^^^^^^^^^^^^^^

Seed 99007001133.
"""

import ml_dtypes
import numpy as np

import tenon as tn


def inner(yv3):
    v4 = tn.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, (lambda a: tn.cond(a.sum() > 0.3, lambda b: b * 0.5, lambda b: tn.sin(b), a))(s[1])), (0, yv3))[1]
    return tn.square(v4).sum()


def program(yv3):
    return tn.grad(inner, argnums=(0,))(yv3)


CALLS = [
    [np.random.default_rng(1).standard_normal((1, 1)).astype(np.float16)],
]


VECTORS = 256
