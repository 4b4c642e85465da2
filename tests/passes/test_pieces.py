"""Kernels that read pieces of their inputs: told where those begin, equal ones are one kernel."""

import numpy as np
import pytest

import tenon as tn
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.passes.fusion.parametrize_slices import on_pieces
from tenon.pipeline import compile
from tenon.types import TensorType, as_dtype

rng = np.random.default_rng(0)


def floats(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


CUTS = {
    "a row": ((5, 3, 4), lambda x: x[3]),
    "rows": ((9, 4), lambda x: x[2:5]),
    "the first of each": ((5, 3, 4), lambda x: x[:, 0]),
    "the last of each": ((5, 3, 4), lambda x: x[:, 2]),
    "of four axes": ((2, 3, 5, 4), lambda x: x[:, :, 4]),
    "behind axes of one": ((1, 1, 7, 2), lambda x: x[:, :, 5:]),
    "a column": ((6, 7), lambda x: x[:, 3]),
    "one element": ((6,), lambda x: x[4]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("name", CUTS)
def test_a_piece_is_what_was_cut(name, dtype):
    shape, cut = CUTS[name]
    body = trace(lambda x, y: cut(x) * y, TensorType(as_dtype(dtype), shape), TensorType(as_dtype(dtype), ()))
    made, pieces = on_pieces(body)
    assert list(pieces) == [0] and made.params[0].type != body.params[0].type
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    piece = x.reshape(-1)[pieces[0] // x.itemsize:][:made.params[0].size].reshape(made.params[0].shape)
    y = np.array(3, dtype)
    np.testing.assert_array_equal(interpret(made, [piece, y])[0], interpret(body, [x, y])[0])


@pytest.mark.parametrize("function", [
    lambda x: x[1:] - x[:-1],               # is read twice
    lambda x: (x[0] * 2, x),                # is a result, too
    lambda x: x[::2] + 1,                   # in steps
    lambda x: x[1:3, 1:3] * 2,              # two axes
    lambda x: x[:, 1:3] * 2,                # what is left lies in groups
    lambda x: x[2:3],                       # nothing would be left to do
], ids=["read twice", "a result too", "in steps", "two axes", "groups", "nothing else"])
def test_what_else_is_read_stays(function):
    body = trace(function, TensorType(as_dtype("float32"), (4, 4)))
    assert on_pieces(body) == (body, {})


def test_where_a_piece_begins_may_be_a_symbol():
    """Which is a size of the kernel: a batch of a fixed size, at any place."""
    f = tn.jit(lambda x, k: x[k * 4:(k + 1) * 4] * 2, fullgraph=True)
    x = floats(40, 3)
    for k in range(8):
        np.testing.assert_array_equal(f(tn.asarray(x), k).numpy(), x[k * 4:(k + 1) * 4] * 2)
    captured = [c for record in f.records.values() for c in record.captures]
    assert len(captured) <= 3
    assert [c.failures for c in captured] == [0] * len(captured)


def kernels(function, *arrays):
    """How many different ones the program of a function has, once it has agreed with the reference."""
    graph = trace(function, *(TensorType(as_dtype(a.dtype), a.shape) for a in arrays))
    program = compile(graph, backend="cpu")
    for _ in range(2):
        for found, expected in zip(program.run(arrays), interpret(graph, arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return len(program.kernels)


def recurrent(x, w):
    h = tn.zeros(x.shape[0], w.shape[1])
    states = []
    for t in range(x.shape[1]):
        h = tn.tanh(x[:, t] @ w + h)
        states.append(h)
    return tn.stack(states, 1)


def test_steps_of_a_sequence_are_one_kernel():
    few, many = (kernels(recurrent, floats(3, steps, 5), floats(5, 7)) for steps in (4, 12))
    assert few == many


def test_layers_of_a_stack_are_one_kernel():
    def deep(x, weights):
        for k in range(weights.shape[0]):
            x = tn.relu(x @ weights[k])
        return x
    few, many = (kernels(deep, floats(3, 8), floats(layers, 8, 8)) for layers in (4, 12))
    assert few == many


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("function", [
    lambda x, y: tn.stack([(x * 2)[k] + y for k in range(3)]),                          # of the arena
    lambda x, y: tn.stack([tn.tensor(np.ones((3, 4), np.float32))[k] * y for k in range(3)]),   # of constants
    lambda x, y: tn.stack([x[k] * k + y for k in range(3)]) + x,                        # of arguments, read again
    lambda x, y: tn.scan(lambda h, row: (h + row * x[1], h), y, x)[1],                  # in a loop of the graph
    lambda x, y: tn.cond(y.sum() > 0, lambda: x[1] * 2, lambda: x[2] * 2),
], ids=["arena", "constants", "arguments", "loop", "branch"])
def test_pieces_of_all_kinds_of_memory(function):
    x, y = tn.tensor(floats(3, 4)), tn.tensor(floats(4))
    compiled = tn.jit(function)
    for _ in range(3):
        np.testing.assert_allclose(compiled(x, y).numpy(), function(x, y).numpy(), rtol=1e-6)


@pytest.mark.usefixtures("two_threads")
def test_rows_that_are_read_while_others_are_replaced():
    table, out = tn.tensor(floats(64, 1000)), tn.tensor(floats(1000))

    def turn():
        rows = table.detach() * 1
        for k in range(63):
            table[k + 1] = rows[k] * 2 + table[k] * 0.5 + out
        return table.sum(1)
    kept = table.numpy().copy()
    found = tn.jit(turn)().numpy().copy(), table.numpy().copy()
    table.assign(tn.tensor(kept))
    for one, expected in zip(found, (turn().numpy(), table.numpy()), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)
