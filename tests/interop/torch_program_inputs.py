"""Numbers and parameters that are the same in every framework, for the programs in double precision.

The test puts this text in the place of its import, and changes the imports of both.
"""

import numpy as np
import torch

rng = np.random.default_rng(1)


def normal(*shape):
    """Normally distributed numbers, the same in every framework."""
    return torch.from_numpy(rng.standard_normal(shape))


def integers(end, *shape):
    """Integers from 0 to `end`, the same in every framework."""
    return torch.from_numpy(rng.integers(0, end, shape))


def set_params(net, seed=0, scale=0.3):
    """A network in double precision, of the same parameters in every framework."""
    net.double()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.from_numpy(rng.standard_normal(tuple(p.shape)) * scale))
    return net
