"""`tn.tensor`, `tn.asarray` and their like of what is a tensor already: the same, eagerly and in a graph."""

import pytest

import tenon as tn
from tenon import nn
from tests.capture.both import outcome, vector

OF_A_TENSOR = {
    "tensor": tn.tensor, "another type": lambda x: tn.tensor(x, dtype=tn.float64),
    "a leaf": lambda x: tn.tensor(x, requires_grad=True), "of a list": lambda x: tn.tensor([x, x]),
    "asarray": tn.asarray, "as_tensor": tn.as_tensor, "asarray of its type": lambda x: tn.asarray(x, dtype=tn.float32),
    "asarray of another type": lambda x: tn.asarray(x, dtype=tn.float64), "a copy": lambda x: tn.asarray(x, copy=True),
    "no copy": lambda x: tn.asarray(x, copy=False), "asarray of a list": lambda x: tn.asarray([x, x]),
    "no copy in another type": lambda x: tn.asarray(x, dtype=tn.float64, copy=False), "Tensor": tn.Tensor,
}


def flags(x):
    return x.requires_grad, x.is_leaf, x.type


@pytest.mark.parametrize("name", OF_A_TENSOR)
def test_gradients_flow_alike(name):
    def step(w):
        y = w * 2
        found = OF_A_TENSOR[name](y)
        told = found is y, flags(found), flags(y)
        ((found * 3).sum() + y.sum()).backward()
        return told
    said = []
    for function in (step, tn.jit(step)):
        w = nn.Parameter(vector(1.0, 2.0))
        said.append((outcome(lambda f=function, w=w: f(w)), repr(w), repr(w.grad)))
    assert said[1] == said[0]


@pytest.mark.parametrize("name", OF_A_TENSOR)
def test_changes_reach_alike(name):
    def step(x):
        found = OF_A_TENSOR[name](x)
        with tn.no_grad():
            found += 1
        return found
    said = []
    for function in (step, tn.jit(step)):
        x = vector(1.0, 2.0)
        for _ in range(3):
            found = outcome(lambda f=function, x=x: f(x))
            said.append((repr(found), found is x, repr(x)))
    assert said[3:] == said[:3]


def test_a_parameter_is_not_cut_off():
    w = nn.Parameter(vector(1.0, 2.0))
    found = tn.jit(lambda: tn.tensor(w))()
    assert w.requires_grad and w.is_leaf and not found.requires_grad


def test_asarray_of_a_tensor_is_that_tensor_and_keeps_its_gradient():
    w = nn.Parameter(vector(1.0, 2.0))
    assert tn.asarray(w) is w and tn.tensor(w) is not w
    (tn.asarray(w * 2) * tn.asarray(w, dtype=tn.float64, copy=True)).sum().backward()
    assert w.grad.tolist() == [4.0, 8.0]
