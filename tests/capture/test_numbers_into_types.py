"""Numbers that the graph computes among tensors of another type, and where functions take a number: as Python's."""

import pytest

import tenon as tn
from tenon import nn
from tests.capture.both import outcome

WHOLE = ([1.0, 3.0], [1.0, 2.0], [-1.0, -2.5], [300.0, 400.0], [1e10, 1e12], [float("nan"), 1.0], [float("inf"), 1.0])
PROBABLE = ([0.25, 0.5], [0.5, 0.25], [0.9, 0.1])


def zeros(dtype=tn.int64):
    return tn.zeros(3, dtype=dtype)




STORED = {
    "an element": lambda n: tn.setitem(zeros(), 0, n), "a mask": lambda n: tn.setitem(zeros(), zeros() > -1, n),
    "an array": lambda n: tn.setitem(zeros(), [0, 2], n), "full": lambda n: tn.full((2,), n, dtype=tn.int32),
    "full_like": lambda n: tn.full_like(zeros(), n), "new_full": lambda n: zeros().new_full((1,), n),
    "fill_": lambda n: zeros().fill_(n), "masked_fill": lambda n: tn.masked_fill(zeros(), zeros() > -1, n),
    "index_fill": lambda n: tn.index_fill(zeros(), tn.tensor([0]), n), "tensor": lambda n: tn.tensor(n, dtype=tn.int8),
    "scatter": lambda n: tn.scatter(zeros(), tn.tensor([0]), n), "float16": lambda n: tn.setitem(zeros(tn.float16), 0, n),
    "int8": lambda n: zeros(tn.int8) + int(n), "uint8": lambda n: zeros(tn.uint8) * int(n),
    "compared": lambda n: zeros(tn.int8) > int(n), "where": lambda n: tn.where(zeros() > 0, zeros(tn.int16), int(n)),
    "uint64": lambda n: zeros(tn.uint64) + int(n), "each of several": lambda n: tn.vmap(lambda x: x + int(n))(zeros(tn.int8)),
    "of a list": lambda n: tn.tensor([n, 1], dtype=tn.int8), "initial": lambda n: tn.arange(3).sum(initial=n),
}


def step_of(what):
    def step(x):
        n = float(x.mean())
        return what(n)
    return step


def agree(step, given):
    """Values and types, or errors, are the same; calls in turn."""
    said = []
    for function in (step, tn.jit(step)):
        tn.manual_seed(0)
        said.append([outcome(lambda f=function, v=v: told(f(tn.tensor(v)))) for v in given])
    assert said[1] == said[0]


def told(x):
    return repr(x), x.type, tuple(getattr(x, "shape", ()))


@pytest.mark.parametrize("name", STORED)
def test_a_number_has_to_fit_the_type_that_it_is_stored_in(name):
    agree(step_of(STORED[name]), WHOLE)


TAKEN = {
    "bernoulli_": lambda n: tn.zeros(8).bernoulli_(n), "tensor": tn.tensor, "Parameter": nn.Parameter,
    "Buffer": nn.Buffer, "Normal": lambda n: tn.distributions.Normal(n, 1.0).sample((2,)),
    "Bernoulli": lambda n: tn.distributions.Bernoulli(n).sample((8,)),
    "Uniform": lambda n: tn.distributions.Uniform(0.0, n + 1).log_prob(tn.tensor([0.1])),
    "assign": lambda n: tn.zeros(()).assign(n), "linspace": lambda n: tn.linspace(0, 1, int(n * 4)),
    "linspace from": lambda n: tn.linspace(n, 1, int(n * 4)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_number_is_no_tensor_where_a_function_takes_either(name):
    agree(step_of(TAKEN[name]), PROBABLE)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_fits_no_whole_type(value):
    with pytest.raises(tn.errors.DTypeError, match="does not fit int64"):
        tn.setitem(zeros(), 0, value)
