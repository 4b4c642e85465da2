"""Epilogues of products whose columns are several axes: what they read and write in one run is one run of columns."""

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu.contraction_codegen import template_of
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("sizes", [(7, 5), (14, 14), (3, 17), (1, 33)], ids=str)
@pytest.mark.parametrize("name", ["bias", "residual", "gradient", "row", "column", "turned"])
def test_what_is_done_with_the_result_of_a_convolution(name, sizes):
    x, w = normal(3, 8, *sizes), normal(19, 8, 3, 3)
    shapes = {"bias": (19, 1, 1), "residual": (3, 19, *sizes), "gradient": (3, 19, *sizes), "row": (sizes[0], 1),
              "column": (sizes[1],), "turned": (3, 19, *sizes[::-1])}
    other = normal(*shapes[name])

    def function(x, w, other):
        y = tn.conv2d(x, w, padding=1)
        if name == "gradient":
            return tn.where(other > 0, y, 0.0)
        return y + (other.swapaxes(2, 3) if name == "turned" else other)
    found = tn.jit(function)(*map(tn.asarray, (x, w, other)))
    plain = tn.conv2d(*map(tn.asarray, (x, w)), padding=1).numpy()
    wide = other.swapaxes(2, 3) if name == "turned" else other
    expected = np.where(wide > 0, plain, 0) if name == "gradient" else plain + wide
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_an_epilogue_may_ask_for_the_place_of_a_column():
    """The last index alone says where neighbours are, but not what it is itself."""
    x, w = normal(2, 8, 9, 11), normal(16, 8, 3, 3)

    def function(x, w):
        y = tn.conv2d(x, w, padding=1)
        return tn.where(tn.arange(11) < 4, y, 0.0)
    found = tn.jit(function)(tn.asarray(x), tn.asarray(w)).numpy()
    plain = tn.conv2d(tn.asarray(x), tn.asarray(w), padding=1).numpy()
    np.testing.assert_allclose(found, np.where(np.arange(11) < 4, plain, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("result", "shared", "reads", "writes"), [
    ("add(v0, b)", False, 1, 1),        # two matrices
    ("add(v0, b)", True, 1, 0),         # one, which is read where it is written
    ("add(v0, v0)", False, 0, 1)])
def test_lines_that_an_epilogue_writes_are_to_be_near(result, shared, reads, writes):
    graph = parse_graph(f"def f(x: f32[64, 32], w: f32[32, 48], b: f32[64, 48]):\n    v0: f32[64, 48] = matmul(x, w)\n"
                        f"    v1: f32[64, 48] = {result}\n    return v1\n")
    kernel = kernel_of(graph, "f")
    (statement,) = kernel.nests[0].body
    arguments = {buffer: place for place, buffer in enumerate(kernel.buffers)}
    if shared:
        arguments[kernel.outputs[0]] = arguments[kernel.inputs[2]]
    template = template_of(statement, arguments, len(arguments), host())
    assert (len(template.near), len(template.written)) == (reads, writes)
