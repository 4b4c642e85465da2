"""What each of two threads does of a kernel: about half of the results."""

import ctypes

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu import driver as native
from tenon.capture.constants import given
from tenon.runtime.frame import Frame


def shares(program, arrays, threads=2):
    """The part of the first result that each thread writes by itself; kernels of one stage only."""
    before = tn.get_num_threads()
    tn.set_num_threads(threads)
    try:
        (result,) = program.run(arrays)
        layout = program.plan
    finally:
        tn.set_num_threads(before)
    assert layout.threads == threads
    frame = Frame(layout, native.driver())
    result, = frame.run(arrays, arena := np.zeros(layout.memory.size + layout.scratch * threads + 64, np.uint8))
    drive = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(frame.driver.drive)
    rows = [row for row in layout.steps.reshape(-1, native.STEP_WORDS) if row[0] == native.KERNEL_ALL]
    found = []
    for thread in range(threads):
        result[...] = np.nan
        for row in rows:
            table = np.concatenate([row, [native.END] + [0] * (native.STEP_WORDS - 1)])
            frame.context[native.STEPS] = table.ctypes.data
            drive(frame.address, thread, threads)
        found.append(1 - np.isnan(result).mean())
    del arena
    return found


@pytest.mark.parametrize("rows, depth, columns", [(32, 256, 1024), (64, 256, 256), (128, 768, 768), (33, 1024, 250)])
def test_a_product_with_constant_weights(rows, depth, columns):
    random = np.random.default_rng(0)
    weight = tn.asarray(random.standard_normal((depth, columns)).astype(np.float32)) * 1
    x = tn.asarray(random.standard_normal((rows, depth)).astype(np.float32))
    with tn.no_grad():
        captured = tn.jit(lambda x: x @ weight).capture(x)
    arrays = [holder.own.payload for holder in captured.inputs.holders([x])]
    arrays = given(captured.program.ready_for(arrays), arrays)
    found = shares(captured.program.late, arrays)
    assert sum(found) == pytest.approx(1)
    assert max(found) < 0.58


@pytest.mark.parametrize("rows, depth, columns", [(128, 784, 512), (512, 128, 784), (2048, 64, 40)])
def test_a_product(rows, depth, columns):
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, depth), (depth, columns)))
    found = shares(tn.jit(lambda x, w: x @ w).capture(tn.asarray(x), tn.asarray(w)).program, [x, w])
    assert sum(found) == pytest.approx(1)
    assert max(found) < 0.58
