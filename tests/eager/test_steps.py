"""The NumPy calls that a reference is recorded as give its bits; what types do not tell is not recorded."""

import numpy as np
import pytest

from operator_examples import data, intervals, succeeding
from tenon.eager.trace_reference import ReferenceStep, steps_of
from tenon.graph.build import canonical_attrs
from tenon.graph.op import OPS
from tenon.graph.text import parse_example
from tenon.types import TensorType, as_dtype, bool_, float32, float64, int8, int64, uint8

SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, 3e38]
WITH_REFERENCE = [p for p in succeeding() if parse_example(p.id).op.ref is not None]
RECORDED = {"relu", "clip", "leaky_relu", "rsqrt", "sigmoid", "softmax", "log_softmax", "sum", "prod", "max", "min",
            "reshape", "permute", "slice", "reciprocal", "random_advance", "isposinf", "isneginf", "scaled", "where"}


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert a.tobytes() == b.tobytes()


def given(example, kind):
    """Arrays for an example, where floating ones are of this kind; NaN, infinity and zeros among them."""
    found = []
    for k, (x, interval) in enumerate(zip(example.inputs, intervals(example), strict=True)):
        if x is None:
            found.append(None)
            continue
        type = TensorType(as_dtype(kind) if x.dtype.kind == "f" else x.dtype, getattr(x, "shape", ()))
        array = data(type, interval, k)
        if array.dtype.kind == "f" and array.size > len(SPECIAL):
            array.reshape(-1)[-len(SPECIAL):] = SPECIAL
        found.append(array)
    return found


def steps_on(ref, arrays, attrs):
    return steps_of(ref, [None if x is None else TensorType(as_dtype(x.dtype), x.shape) for x in arrays], attrs)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("text", WITH_REFERENCE)
def test_steps_give_the_bits_of_the_reference(text, kind):
    example = parse_example(text)
    op, arrays = example.op, given(example, kind)
    if any(x is not None and x.dtype.itemsize == 2 for x in arrays):
        pytest.skip("its reference is not called on these")
    types = [None if x is None else TensorType(as_dtype(x.dtype), x.shape) for x in arrays]
    attrs = canonical_attrs(op, tuple(types), {**op.signature.attrs, **example.attrs})
    steps = steps_of(op.ref, types, attrs)
    assert steps is not None or op.name not in RECORDED
    if steps is not None:
        turned = [None if x is None else np.asfortranarray(x) for x in arrays]
        with np.errstate(all="ignore"):
            for row in (arrays, turned):
                same(steps.run(row), op.ref(*row, **attrs))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [bool_, int8, uint8, int64, float32, float64])
def test_numbers_take_the_type_that_numpy_gives_them(dtype, shape):
    refs = [lambda x: 1 / (x + 3), lambda x: x * 2.5 - x, lambda x: np.where(x > 0, x, 0), lambda x: np.float32(0.1) * x,
            lambda x: np.where(x > 0, 0.5, x), lambda x: np.maximum(0, x), lambda x: np.add(x, True),
            lambda x: x * np.array([2], np.float64), lambda x: x + 1j, lambda x: np.absolute(x)]
    x = (np.arange(np.prod(shape, dtype=int)) - 2).astype(dtype.numpy).reshape(shape)
    with np.errstate(all="ignore"):
        for ref in refs:
            steps = steps_on(ref, [x], {})
            assert steps is not None
            same(steps.run([x]), ref(x))


@pytest.mark.parametrize("ref", [
    lambda x: x if np.any(x > 0) else -x, lambda x: x if x[0] > 0 else -x, lambda x: x if x.max() > 0 else -x,
    lambda x: x + len(x), lambda x: x + float(x[0]), lambda x: sum(x), lambda x: x[x > 0], lambda x: np.asarray(x) + 1,
    lambda x: x if 1 in x else -x, lambda x: x if x.strides[0] > 4 else -x, lambda x: x if x.flags.c_contiguous else -x,
    lambda x: x ** 2, lambda x: x @ x, lambda x: np.add(x, x, out=x), lambda x: np.divmod(x, 2)[0], lambda x: x.sum(),
    lambda x: np.add.accumulate(x), lambda x: np.add.reduce(x, where=x > 0), lambda x: np.nonzero(x)[0], lambda x: 1.0,
    lambda x: {x: 1}, lambda x: getattr(x, "mask", x), lambda x: x + np.uint8(1) if hasattr(x, "base") else x,
    lambda x: np.where(x > 0), lambda x: np.add(x, 1, dtype=np.float64), lambda x: np.frompyfunc(abs, 1, 1)(x),
])
def test_what_types_do_not_tell_is_not_recorded(ref):
    assert steps_of(ref, [TensorType(float32, (4,))], {}) is None


def test_a_reference_that_catches_what_it_asked_for_is_not_recorded():
    def ref(x):
        try:
            return x if x[0] > 0 else -x
        except Exception:
            return x
    assert steps_of(ref, [TensorType(float32, (4,))], {}) is None


def test_a_branch_on_the_shape_is_the_one_of_the_types():
    ref = OPS["sum"].ref
    few, many = (steps_of(ref, [TensorType(float32, shape)], {"axis": (1,), "keepdims": False, "dtype": float32})
                 for shape in ((4, 3), (3000, 3)))
    assert [type(row) for row in few.rows] == [ReferenceStep]
    assert many is None             # it asks how the elements lie


def test_an_integer_that_the_type_does_not_hold_is_not_recorded():
    assert steps_of(lambda x: x > 300, [TensorType(int8, (4,))], {}) is None
