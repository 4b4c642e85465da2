"""Results' memory is used again when nobody can see the result any more, and not before."""

import gc
import sys

import numpy as np
import pytest

from tenon.runtime.buffer_pool import MAX_IDLE, MIN_POOLED_BYTES, take

F32 = np.dtype(np.float32)


def address(x):
    return x.__array_interface__["data"][0]


def test_memory_is_used_again():
    first = take((MIN_POOLED_BYTES,), F32)
    where = address(first)
    del first
    assert address(take((2, MIN_POOLED_BYTES // 2), F32)) == where


@pytest.mark.parametrize("view", [lambda x: x[3:], lambda x: x.reshape(2, -1).T, memoryview, lambda x: x.view(np.int32)])
def test_memory_that_a_view_shows_is_not_used_again(view):
    first = take((MIN_POOLED_BYTES,), F32)
    where, seen = address(first), view(first)
    del first
    gc.collect()
    assert address(take((MIN_POOLED_BYTES,), F32)) != where
    del seen
    assert address(take((MIN_POOLED_BYTES,), F32)) == where


def test_results_are_ordinary_arrays():
    x = take((300, 300), F32)
    x[:] = 1
    assert type(x) is np.ndarray and x.flags.c_contiguous and x.flags.writeable and x.flags.aligned
    assert address(x) % 64 == 0 and type(x[1:]) is np.ndarray and x.sum() == 90000


def test_small_and_empty_results_have_memory_of_their_own():
    assert take((3,), F32).base is None and take((0, 5), F32).shape == (0, 5) and take((), F32).shape == ()


def test_idle_memory_is_bounded():
    from tenon.runtime import buffer_pool
    blocks = [take((MAX_IDLE // 8,), np.dtype(np.int8)) for _ in range(12)]
    del blocks
    assert sum(size * len(found) for size, found in buffer_pool._idle.items()) <= MAX_IDLE
    buffer_pool._idle.clear()


def test_results_of_other_threads_and_at_the_end_of_the_interpreter_are_no_trouble():
    import subprocess
    code = ("import numpy as np, threading; from tenon.runtime.buffer_pool import take; keep = []\n"
            "def work():\n    for _ in range(200): keep.append(take((300000,), np.dtype(np.int8))); keep[:-3] = []\n"
            "ts = [threading.Thread(target=work) for _ in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize("left", ["{}", "dict.fromkeys(vars(buffer_pool)) | {'__builtins__': __builtins__}"])
def test_a_result_that_outlives_the_modules_is_no_trouble(left):
    import subprocess
    code = ("import numpy as np; from tenon.runtime import buffer_pool; x = buffer_pool.take((300000,), np.dtype(np.int8))\n"
            f"left = {left}; vars(buffer_pool).clear(); vars(buffer_pool).update(left); del x")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
