"""One graph for any batch size: these functions are captured with a symbolic first axis, compiled, and run eagerly."""

import numpy as np
import pytest

import tenon as tn
from tenon.dims.symbolic_dim import symbol
from tenon.errors import OutOfRange, ShapeError
from tenon.graph.build import trace
from tenon.pipeline import compile
from tenon.types import TensorType, as_dtype

B = symbol("B")
RNG = np.random.default_rng(0)
ROWS, IMAGES = RNG.standard_normal((5, 6)), RNG.standard_normal((5, 3, 8, 8))
KERNEL, AT = RNG.standard_normal((4, 3, 3, 3)), np.array([0, 2, 1, 4, 3])

FUNCTIONS = {
    "slice": (lambda x: (x[1:], x[:-1], x[::2], x[::-1], x[:, 1:3], x[:, None]), ROWS),
    "row": (lambda x: (x[0], x[-1]), ROWS),
    "rows": (lambda x, i: (x[i], x[:, [0, 2]], x[tn.arange(x.shape[0]), i]), ROWS, AT),
    "write": (lambda x: (tn.setitem(x, 0, 1.0), tn.setitem(x, np.s_[:, 1:3], 1.0), tn.setitem(x, x > 0, 1.0)), ROWS),
    "scatter": (lambda x, i: tn.scatter_add(x, i[:, None], 1.0), ROWS, AT),
    "one_hot": (lambda i: tn.one_hot(i, 6), AT),
    "order": (lambda x: (tn.sort(x, axis=0), *tn.topk(x, 2), tn.median(x, axis=1)), ROWS),
    "convolution": (lambda x, w: tn.conv2d(x, w, padding=1, stride=2), IMAGES, KERNEL),
    "pooling": (lambda x: (tn.max_pool2d(x, 2), tn.avg_pool2d(x, 3, padding=1, ceil_mode=True)), IMAGES),
    "adaptive": (lambda x: (tn.adaptive_avg_pool2d(x, 3), tn.adaptive_max_pool2d(x, 3)), IMAGES),
    "interpolate": (lambda x: tn.interpolate(x, (5, 11), mode="bilinear"), IMAGES),
    "unfold": (lambda x: tn.unfold(x, 2), IMAGES),
    "einsum": (lambda x, y: (tn.einsum("bi,bj->ij", x, y), tn.einsum("bi,ci,bj->cj", x, y, x)), ROWS, ROWS),
    "inverse": (lambda x: tn.linalg.inv(x[:, 0, :3, :3]), IMAGES),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_serves_every_batch_size(name):
    fn, *arrays = FUNCTIONS[name]
    types = [TensorType(as_dtype(a.dtype), (B if len(a) == 5 else len(a), *a.shape[1:])) for a in arrays]
    program = compile(trace(fn, *types, name=name))
    for count in (5, 3):
        cut = [a[:count] if len(a) == 5 else a for a in arrays]
        cut = [np.minimum(a, count - 1) if a.dtype.kind == "i" else a for a in cut]
        expected = fn(*map(tn.tensor, cut))
        listed = expected if isinstance(expected, tuple) else (expected,)
        for got, eager in zip(program.run(cut), listed, strict=True):
            np.testing.assert_allclose(got, eager.numpy(), rtol=1e-9, atol=1e-12)


def test_an_index_out_of_range_is_an_error_in_compiled_code():
    program = compile(trace(lambda x, i: x[i], TensorType(as_dtype("f64"), (B, 6)), TensorType(as_dtype("i64"), (2,))))
    with pytest.raises(OutOfRange, match="5"):
        program.run([ROWS, np.array([0, 5])])


def test_writing_in_a_jitted_function_rebinds_its_own_tensor():
    @tn.jit
    def f(x):
        y = x * 2
        y[1:] = 0.0
        y[0, [0, 2]] += 1.0
        return y
    x = tn.tensor(ROWS)
    expected = ROWS * 2
    expected[1:] = 0
    expected[0, [0, 2]] += 1
    np.testing.assert_allclose(f(x).numpy(), expected)
    np.testing.assert_array_equal(x.numpy(), ROWS)


def test_pieces_of_sizes_that_do_not_divide_are_those_of_each_call():
    split, parts = tn.jit(lambda x: tn.split(x, 3)), tn.jit(lambda x: tn.tensor_split(x, 3))
    for n in (3, 6, 8, 9, 11):
        x = np.arange(n)
        for found, expected in zip(parts(x), np.array_split(x, 3), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected)
        if n % 3:
            with pytest.raises(ShapeError, match="does not divide"):
                split(x)
        else:
            assert [piece.tolist() for piece in split(x)] == x.reshape(3, -1).tolist()
