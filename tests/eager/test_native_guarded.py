"""Machine code for eager calls reads no element behind or before an array: it is run between pages that nobody may touch.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAM = """
import sys
import faulthandler; faulthandler.enable()
sys.path.insert(0, {tests!r})
import numpy as np
import guarded
import tenon as tn
from tenon.cpython import object_layout
from tenon.eager import native_fast_path
from tenon.eager import recipes
from tenon.eager.ufunc_fast_path import PRODUCT, SHORTS
if not object_layout.READABLE:
    sys.exit()
native_fast_path.give_native(SHORTS, PRODUCT)

def drawn(shape, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    return guarded.guarded(np.asarray(values).astype(dtype), guarded.{gap})
def same(call, reference, *given):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(call(*given), reference(*given))

SHAPES = [(), (1,), (7,), (15,), (16,), (17,), (33,), (0,), (3, 5), (1, 5), (5, 1), (2, 3, 5), (2, 1, 5), (64, 64), (37, 19)]
for dtype in (np.float32, np.float64, np.int64):
    for one in SHAPES:
        x = drawn(one, dtype)
        for other in SHAPES:
            try:
                np.broadcast_shapes(one, other)
            except ValueError:
                continue
            y = drawn(other, dtype, 1)
            for ufunc in (np.add, np.less, np.maximum, np.multiply):
                same(recipes.natives.get(ufunc, ufunc), ufunc, x, y)
                same(recipes.natives.get(ufunc, ufunc), ufunc, x[..., ::-1] if x.ndim else x, y)
                same(recipes.natives.get(ufunc, ufunc), ufunc, x[..., 1::2] if x.ndim else x, y[..., :1] if y.ndim else y)
        for y in (drawn(one, dtype, 2), drawn((), dtype, 3)):
            same(recipes.natives[np.where], np.where, drawn(one, bool, 4), x, y)
            same(recipes.natives[np.where], np.where, drawn(one, bool, 5), y, x)
for dtype in (np.float32, np.float64):
    for shape in SHAPES:
        x = drawn(shape, dtype)
        same(recipes.natives[np.exp], np.exp, x)
        for axis in (None, *range(-x.ndim, x.ndim)):
            for ufunc in (np.add, np.multiply) + (np.maximum, np.minimum) * bool(x.size):
                for keep in (False, True):
                    same(recipes.natives[ufunc.reduce], ufunc.reduce, x, axis, None, None, keep)
    for n, k, m in ((1, 1, 1), (3, 5, 7), (1, 9, 1), (16, 17, 3), (32, 32, 32)):
        a, b = drawn((n, k), dtype), drawn((k, m), dtype, 1)
        same(lambda a, b: (tn.asarray(a, copy=False) @ tn.asarray(b, copy=False)).numpy(), np.matmul, a, b)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for pages that nobody may touch")
@pytest.mark.parametrize("gap", ["at_the_end", "at_the_start"])
def test_calls_stay_within_their_arrays(gap):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(tests=str(TESTS), gap=gap)],
                          env=os.environ | {"PYTHONPATH": str(TESTS.parent)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
