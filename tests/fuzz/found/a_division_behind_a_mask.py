import numpy as np

import tenon as tn


def program(x, w):
    v = tn.conv1d(x, w, groups=2, padding=1)
    return tn.vecdot(v, v)


CALLS = [
    [np.random.default_rng(7602).standard_normal((2, 2, 14)).astype(np.float32),
     np.random.default_rng(3401).standard_normal((2, 1, 1)).astype(np.float32)],
    [np.random.default_rng(7702).standard_normal((2, 2, 14)).astype(np.float32),
     np.random.default_rng(3501).standard_normal((8, 1, 1)).astype(np.float32)],
    [np.random.default_rng(7802).standard_normal((2, 2, 14)).astype(np.float32),
     np.random.default_rng(3601).standard_normal((18, 1, 1)).astype(np.float32)],
]
