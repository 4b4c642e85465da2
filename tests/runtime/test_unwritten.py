"""No program reads what it has not written: its memory is full of NaN before each run, and results are the same."""

import numpy as np
import pytest

import tenon as tn
from tenon.runtime import buffer_pool, run_frame
from tenon.runtime.program import Program


class Filled:
    """NumPy, whose empty arrays are full of ones: NaN in every floating type, -1 in integers."""

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype=float):
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[...] = 0xFF
        return array


@pytest.fixture
def filled(monkeypatch):
    """The memory between kernels, of threads, and of results."""
    arenas = []
    take = Program._take_arena

    def take_filled(self, layout):
        arena = take(self, layout)
        if arena is not None:
            arena[...] = 0xFF
            arenas.append(arena)
        return arena
    monkeypatch.setattr(Program, "_take_arena", take_filled)
    monkeypatch.setattr(buffer_pool, "np", Filled())
    monkeypatch.setattr(run_frame, "np", Filled())
    return arenas


def pooled(a):
    return tn.max_pool2d(a, 2, 1, 1, 1, False)


PROGRAMS = {
    "softmax of pooled": lambda a: tn.nansum(tn.softmax(pooled(a), axis=-4), axis=(-4, 2, -1)),
    "beside other outputs": lambda a: (tn.nansum(tn.softmax(pooled(a), axis=-4), axis=(-4, 2, -1)), a * 2.0,
                                       tn.cumsum(a, axis=1), tn.nansum(tn.softmax(pooled(a), axis=-1), axis=(-1, 2))),
    "norm of windows": lambda a: tn.instance_norm(tn.avg_pool2d(a, 3, 2, 1)),
    "padded": lambda a: tn.log_softmax(tn.pad(a, ((0, 0), (0, 0), (1, 1), (1, 0))), axis=-1),
    "order of pooled": lambda a: (tn.sort(pooled(a), axis=2), tn.argmax(pooled(a), axis=1)),
    "product": lambda a: tn.relu(pooled(a).reshape(-1, 54) @ tn.ones((54, 20), dtype=a.dtype)).sum(axis=0),
    "gradient": tn.grad(lambda a: (tn.softmax(pooled(a), axis=2) ** 2).astype(tn.float32).sum())}


@pytest.mark.parametrize("dtype", [tn.bfloat16, tn.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_unwritten_is_read(name, dtype, filled):
    a = tn.tensor(np.random.default_rng(0).standard_normal((1, 3, 8, 5))).astype(dtype)
    program = tn.jit(PROGRAMS[name])
    first, again, expected = (x if isinstance(x, tuple) else (x,) for x in (program(a), program(a), PROGRAMS[name](a)))
    for one, two, wanted in zip(first, again, expected, strict=True):
        assert one.numpy().tobytes() == two.numpy().tobytes()
        np.testing.assert_allclose(one.numpy().astype(np.float64), wanted.numpy().astype(np.float64),
                                   rtol=0.05 if dtype is tn.bfloat16 else 1e-4, atol=1e-3)


def test_memory_is_filled_before_each_run(filled):
    """So a kernel that reads too early would read NaN."""
    tn.jit(lambda x: tn.sort(x @ x.mT, axis=0).sum(axis=1))(tn.ones((40, 40)))
    assert filled
    assert np.isnan(buffer_pool.take((3,), np.dtype(np.float32))).all()
