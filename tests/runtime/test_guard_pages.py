"""What code touches beyond the end of memory, or before it, faults where TENON_CHECK says so."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tenon.runtime import guard_pages
from tenon.runtime.arena_planning import ALIGNMENT, ArenaBuffer
from tenon.runtime.guard_pages import PAGE, guarded, guarded_arena, guarded_copy, spaced
from tenon.types import bfloat16


@pytest.fixture(params=[False, True], ids=["after", "before"])
def before(request, monkeypatch):
    monkeypatch.setattr(guard_pages, "guards_before", lambda: request.param)
    return request.param


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 1023), (4096,)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, bfloat16.numpy])
def test_an_array_ends_or_begins_at_a_page(before, shape, dtype):
    made = guarded(shape, np.dtype(dtype))
    assert made.shape == shape and made.dtype == dtype and made.flags.aligned and made.flags.writeable
    edge = made.ctypes.data if before else made.ctypes.data + made.nbytes
    assert edge % PAGE == 0
    values = np.arange(made.size).astype(dtype).reshape(shape)
    np.testing.assert_array_equal(guarded_copy(values), values)


def test_what_was_never_written_is_no_number(before):
    assert np.isnan(guarded((5,), np.dtype(np.float32))).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("scratch", [0, 100, 5000])
def test_buffers_and_scratch_of_an_arena_have_walls_of_their_own(before, threads, scratch):
    sizes = [1, 64, 100, 4096, 9000]
    plan, stride = spaced([ArenaBuffer(size, 0, 1) for size in sizes], scratch, threads)
    needed = plan.size + stride * threads
    regions = [*zip(plan.offsets, sizes, strict=True), *((plan.size + k * stride, scratch) for k in range(threads))]
    for offset, size in regions[:len(regions) if scratch else len(sizes)]:
        assert offset % ALIGNMENT == 0 and offset + size <= needed
        gap = min(offset - PAGE - wall if before else wall - offset - size for wall in plan.walls
                   if (wall < offset if before else wall >= offset + size))
        assert 0 <= gap < ALIGNMENT
        assert not any(offset - PAGE < wall < offset + size for wall in plan.walls)
    arena = guarded_arena(plan, needed)
    for offset, size in regions:
        arena[offset:offset + size] = 1


PROGRAM = """
import numpy as np
import tenon as tn
from tenon.graph import op
from tenon.types import TensorType

op._is_own = lambda op: True        # as if it were Tenon's: users' rules are proved, or checked
pick = op.Op("pick", type=lambda x, at: TensorType(x.dtype, at.shape), ref=lambda x, at: np.take(x, at, mode="clip"),
          compute=lambda s, i, x, at: x((s.cast(at(i), tn.int64),)))     # nobody looks whether it is inside

@tn.jit
def f(x, at):
    return pick(x, at) * 2.0

print(f(tn.ones(1000), tn.tensor([0, 999])).tolist(), flush=True)
print(f(tn.ones(1000), tn.tensor([0, {bad}])).tolist()[0])
"""
STEP = """
import numpy as np
import tenon as tn
from tenon import nn, optim
tn.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 49, 11))
sgd = optim.SGD(net.parameters(), lr=0.1)
x, y = tn.tensor(np.random.default_rng(0).standard_normal((3, 3, 7, 7)).astype(np.float32)), tn.tensor([1, 2, 3])

def step(x, y):
    loss = nn.functional.cross_entropy(net(x), y)
    sgd.zero_grad(); loss.backward(); sgd.step()
    return loss

run = tn.jit(step)
print(*(round(run(x, y).item(), 4) for _ in range(4)))
"""


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment})


@pytest.mark.parametrize(("mode", "bad"), [("guard", 1000), ("guard_before", -1)])
def test_a_kernel_that_reads_one_element_outside_faults(mode, bad):
    done = python(PROGRAM.format(bad=bad), TENON_CHECK=mode)
    assert done.stdout == "[2.0, 2.0]\n", done.stderr
    assert done.returncode == -signal.SIGSEGV


def test_without_guards_it_is_not_seen():
    assert python(PROGRAM.format(bad=1000)).stdout == "[2.0, 2.0]\n2.0\n"


def test_a_training_step_in_guarded_memory_gives_the_same_losses():
    plain, after, ahead = (python(STEP, **environment) for environment in (
        {}, {"TENON_CHECK": "guard"}, {"TENON_CHECK": "guard_before"}))
    assert len(plain.stdout.split()) == 4 and "nan" not in plain.stdout, plain.stderr
    assert after.stdout == ahead.stdout == plain.stdout, after.stderr + ahead.stderr
