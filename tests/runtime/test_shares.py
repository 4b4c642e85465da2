"""What each of two threads does of a kernel: about half of the results."""

import ctypes

import numpy as np
import pytest

import tenon as tn
from tenon.capture.constant_weights import given
from tenon.llvm.work_partition import PARTS_PER_THREAD
from tenon.program import step_executor as native
from tenon.runtime.run_frame import Frame


def shares(program, arrays, threads=2):
    """The part of the first result that each thread writes by itself; kernels of one stage only."""
    tn.set_num_threads(threads)
    (result,) = program.run(arrays)
    layout = program.plan
    assert layout.threads == threads
    frame = Frame(layout, native.driver())
    result, = frame.run(arrays, arena := np.zeros(layout.memory.size + layout.scratch * threads + 64, np.uint8))
    drive = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(frame.driver.drive)
    rows = [row for row in layout.steps.reshape(-1, native.STEP_WORDS) if row[0] == native.KERNEL_ALL]
    found = []
    for thread in range(threads):
        result[...] = np.nan
        for row in rows:
            table = np.concatenate([row[:native.MIN_PARTS_WORD], [PARTS_PER_THREAD], [native.END] + [0] * (native.STEP_WORDS - 1)])
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


def claimed(claims, least=1, threads=2):
    """The parts that a kernel is called with, by calls (first, until) of each thread, which takes its turns alone.

    `claims` are what the threads' words say before; they are written to.
    """
    calls = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int32] * 3, *[ctypes.c_void_p] * 2)
    def stage(buffers, sizes, first, until, count, scratch, status):
        assert count == threads
        calls.append((first, until))
    row = [native.KERNEL_ALL, ctypes.cast(stage, ctypes.c_void_p).value, 0, 0, 0, least]
    table = np.array([*row, *row, native.END, 0, 0, 0, 0, 0], np.int64)
    context, pointers = np.zeros(native.CONTEXT_WORDS, np.int64), np.zeros(1, np.int64)
    words = np.zeros((threads, native.CLAIM_BYTES // 8), np.int64)
    words[:, 0] = claims
    context[[native.STEPS, native.CLAIMS]] = table.ctypes.data, words.ctypes.data
    context[[native.POINTERS, native.SIZES, native.STATUSES]] = pointers.ctypes.data
    drive = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(native.driver().drive)
    found = []
    for thread in range(threads):
        calls.clear()
        drive(context.ctypes.data, thread, threads)
        found.append(list(calls))
    assert list(words[:, 0]) == [2 * PARTS_PER_THREAD] * threads or least == PARTS_PER_THREAD
    return found


def test_a_thread_that_comes_first_does_its_own_parts_then_those_of_others():
    halves = [(0, 8), (8, 12), (12, 14), (14, 15), (15, 16)]
    own, other = halves, [(a + 16, b + 16) for a, b in halves]
    assert claimed([0, 0]) == [[*own, *other] * 2, []]


def test_what_others_have_claimed_is_left_to_them():
    first, _ = claimed([12, 16])
    assert first[:3] == [(12, 14), (14, 15), (15, 16)]
    second_kernel = first[3:]
    assert second_kernel[0] == (0, 8) and second_kernel[-1] == (31, 32) and len(second_kernel) == 10
    assert claimed([32, 16 + 15])[0] == [(31, 32)]                  # another one is in the second kernel already


def test_no_call_is_for_fewer_parts_than_are_worth_it():
    assert claimed([0, 0], least=6)[0][:5] == [(0, 8), (8, 14), (14, 16), (16, 24), (24, 30)]
    assert claimed([0, 0], least=PARTS_PER_THREAD) == [[(0, 16)] * 2, [(16, 32)] * 2]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_are_the_same_whoever_does_the_parts(threads):
    random = np.random.default_rng(0)
    x, w = (tn.asarray(random.standard_normal(shape).astype(np.float32)) for shape in ((517, 301), (301, 410)))

    @tn.jit
    def step(x, w):
        y = tn.softmax(x @ w, axis=1)
        return y, y.sum(axis=0), tn.scaled_dot_product_attention(*(y[None, :, k:k + 100] for k in (0, 100, 200)), is_causal=True)
    tn.set_num_threads(1)
    expected = [value.numpy().copy() for value in step(x, w)]
    tn.set_num_threads(threads)
    for _ in range(20):
        for value, once in zip(step(x, w), expected, strict=True):
            np.testing.assert_array_equal(value.numpy(), once)
