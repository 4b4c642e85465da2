"""Scales that are brought to a constant weight give the program's own numbers where they are not finite."""

import numpy as np
import pytest

import tenon as tn


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 3e38])
def test_a_scale_that_is_not_finite_multiplies_the_product(scale):
    net = tn.nn.Sequential(tn.nn.Linear(3, 4, bias=False), tn.nn.BatchNorm1d(4, eps=0.0)).eval()
    weight = np.arange(12, dtype=np.float32).reshape(4, 3) - 4
    net[0].weight.assign(tn.tensor(weight))
    net[1].running_mean.assign(tn.zeros(4))
    x = tn.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]])
    step = tn.jit(tn.no_grad()(lambda x: net(x)))
    for value in (1.0, scale, 2.0):
        net[1].weight.assign(tn.tensor([1.0, value, 0.5, value], dtype=tn.float32))
        for _ in range(3):
            np.testing.assert_allclose(step(x).numpy(), net(x).numpy(), rtol=1e-6)
