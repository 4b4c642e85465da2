"""`tn.func`: modules as functions of their parameters, eager, jitted, batched; what it says of mistakes."""

import numpy as np
import pytest

import tenon as tn
from tenon import nn
from tenon.errors import ArgumentError


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).eval()


def test_a_module_is_a_function_of_its_parameters_in_one_capture():
    net, x = network(), tn.rand(5, 3)
    params = {name: p.detach() for name, p in net.named_parameters()}
    before = {name: p.numpy().copy() for name, p in net.named_parameters()}
    slope = tn.grad(lambda p, x: tn.func.functional_call(net, p, x).sum())
    jitted = tn.jit(slope)
    for _ in range(4):
        for name, g in slope(params, x).items():
            np.testing.assert_allclose(jitted(params, x)[name].numpy(), g.numpy(), rtol=1e-5, atol=1e-6)
        params = {name: p * 1.1 for name, p in params.items()}
    assert "1 capture" in str(tn.explain(jitted))
    assert all(np.array_equal(p.numpy(), before[name]) for name, p in net.named_parameters())


def test_an_error_in_the_module_leaves_it_as_it_was():
    net = network()
    weight = net[0].weight
    with pytest.raises(tn.errors.ShapeError):
        tn.func.functional_call(net, {"0.weight": tn.ones(4, 3)}, tn.ones(5, 7))
    assert net[0].weight is weight
    with pytest.raises(ArgumentError, match="no parameter or buffer 'weight'"):
        tn.func.functional_call(net, {"weight": tn.ones(4, 3)}, tn.ones(5, 3))
    with pytest.raises(ArgumentError, match=r"\Afunctional_call: .*\n  test_func"):
        tn.func.functional_call(net, {"weight": tn.ones(4, 3)}, tn.ones(5, 3))


def test_an_ensemble_is_a_batch_of_parameters():
    nets, x = [network() for _ in range(3)], tn.rand(5, 3)
    params, buffers = tn.func.stack_module_state(nets)
    call = tn.func.vmap(lambda p, b, x: tn.func.functional_call(nets[0], {**p, **b}, (x,)), in_dims=(0, 0, None))
    apart = tn.func.vmap(lambda p, b, x: tn.func.functional_call(nets[0], (p, b), (x,)), in_dims=(0, 0, None))
    for found in (call(params, buffers, x), tn.jit(call)(params, buffers, x), apart(params, buffers, x)):
        np.testing.assert_allclose(found.detach().numpy(), np.stack([net(x).detach().numpy() for net in nets]), rtol=1e-5)
    with pytest.raises(ArgumentError, match="parameters of other names"):
        tn.func.stack_module_state([nets[0], nn.Linear(3, 1)])
    with pytest.raises(ArgumentError, match="got none"):
        tn.func.stack_module_state([])
