"""No program touches what lies behind or before its memory: it is run between pages that nobody may touch.

Such a program ends the process, so all are run in one of their own, on one thread and on three.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAM = """
import sys
import faulthandler; faulthandler.enable()      # says in which line of the list below it ended
sys.path.insert(0, {tests!r})
import guarded as walls
walls.guard(walls.{gap})
import numpy as np
import tenon as tn
from tenon import nn, optim
rng = np.random.default_rng(0)
def guarded(array):
    return walls.guarded(array, walls.{gap})
def floats(*shape):
    return guarded(rng.standard_normal(shape).astype(np.float32))
def near(function, *arrays):
    found, expected = tn.jit(function)(*arrays).numpy(), function(*map(tn.asarray, arrays)).numpy()
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-3), function
def trains(network, optimizer, *inputs):
    def step(x):
        loss = (network(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    step, held = tn.jit(step), []
    for x in (*inputs, *inputs):
        held.append((step(x), [p.detach() for p in network.parameters()]))     # which keep their memory
    assert all(np.isfinite(loss.item()) for loss, _ in held)
def strided(x, w):
    return tn.conv1d(x, w, stride=2, padding=3, groups=2)

near(lambda x, w, g: tn.grad(lambda w: (strided(x, w) * g).sum())(w), floats(3, 2, 33), floats(4, 1, 3), floats(3, 4, 19))
near(lambda x, w: tn.softmax(x @ w, axis=-1).sum(axis=0), floats(33, 71), floats(71, 129))
near(lambda x: tn.sort(tn.cumsum(x, axis=1), axis=0)[1::3, ::-2], floats(67, 31))
near(lambda q, k: nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True), floats(2, 3, 65, 17), floats(2, 3, 65, 17))
near(lambda x, w: tn.conv2d(x, w, stride=2, padding=1), floats(3, 5, 13, 11), floats(7, 5, 3, 3))
near(lambda x, k: tn.index_add(x, k, x[:5]), floats(31, 33), guarded(np.array([30, 0, 30, 7, 1])))
near(lambda x, w: tn.stack([tn.tanh(x[:, t] @ w) + x[t, 2] for t in range(5)]), floats(7, 5, 13), floats(13, 13))
mlp = nn.Sequential(nn.Linear(129, 65), nn.LayerNorm(65), nn.GELU(), nn.Linear(65, 3))
trains(mlp, optim.Adam(mlp.parameters()), floats(17, 129), floats(3, 129))
cnn = nn.Sequential(nn.Conv2d(3, 17, 3), nn.BatchNorm2d(17), nn.ReLU(), nn.Conv2d(17, 8, 3, padding=1), nn.MaxPool2d(2))
trains(cnn, optim.SGD(cnn.parameters(), lr=0.1, momentum=0.9), floats(5, 3, 11, 9))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for pages that nobody may touch")
@pytest.mark.parametrize("gap", ["at_the_end", "at_the_start"])
@pytest.mark.parametrize("threads", [1, 3])
def test_programs_stay_within_their_memory(threads, gap):
    settings = os.environ | {"PYTHONPATH": str(TESTS.parent), "TENON_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(tests=str(TESTS), gap=gap)], env=settings, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-2000:]
