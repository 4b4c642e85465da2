"""Programs with every kind of schedule, compiled with each word of TENON_CHECK: no defect is found, nothing faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import tenon as tn
from tenon import nn

random = np.random.default_rng(0)

def data(*shape, dtype=np.float32):
    return tn.tensor(random.standard_normal(shape).astype(np.float32)).to(dtype)

def gradient(f):
    return tn.grad(lambda *xs: (f(*xs) ** 2).sum())

conv = lambda x, w: tn.conv2d(x, w, padding=1)
strided = lambda x, w: tn.conv2d(x, w, stride=2, padding=1)
depthwise = lambda x, w: tn.conv2d(x, w, padding=1, groups=5)
attention = lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
norm = lambda x, w: tn.layer_norm(x, (33,), w)
programs = {
    "product": (lambda a, b: tn.relu(a @ b), data(17, 33), data(33, 29)),
    "product of a vector": (lambda a, b: a @ b, data(37, 53), data(53)),
    "products of a batch": (lambda a, b: a @ b, data(5, 7, 9), data(5, 9, 11)),
    "bfloat16 product": (lambda a, b: a @ b, data(17, 34, dtype=tn.bfloat16), data(34, 19, dtype=tn.bfloat16)),
    "convolution": (conv, data(2, 3, 9, 11), data(7, 3, 3, 3)),
    "its gradient": (gradient(conv), data(1, 3, 9, 11), data(5, 3, 3, 3)),
    "many channels": (conv, data(1, 16, 14, 14), data(32, 16, 3, 3)),
    "strided convolution": (strided, data(2, 3, 9, 11), data(7, 3, 3, 3)),
    "its gradient, strided": (gradient(strided), data(1, 3, 9, 11), data(5, 3, 3, 3)),
    "depthwise": (depthwise, data(2, 5, 9, 7), data(5, 1, 3, 3)),
    "attention": (attention, data(1, 3, 19, 8), data(1, 3, 19, 8), data(1, 3, 19, 8)),
    "its gradient, of attention": (gradient(attention), *(data(1, 2, 19, 8) for _ in range(3))),
    "rows": (lambda x: tn.softmax(x * 2.0, axis=-1), data(5, 37)),
    "columns": (lambda x: tn.softmax(x, axis=0).sum(axis=1), data(67, 33)),
    "norm": (gradient(norm), data(13, 33), data(33)),
    "windows": (gradient(lambda x: tn.max_pool2d(x, 3, 2, 1)), data(2, 3, 9, 11)),
    "order": (lambda x: (tn.sort(x, axis=1), tn.argsort(x, axis=0), *tn.topk(x, 3, axis=1)), data(7, 41)),
    "running totals": (lambda x: tn.cumsum(x, axis=0) + tn.cumsum(x, axis=1), data(19, 35)),
    "transposed": (lambda x: tn.permute(x, (2, 0, 1)).reshape(-1) * 2.0, data(5, 17, 19)),
    "embedding": (tn.grad(lambda w: (w[tn.tensor([1, 0, 12, 1])] ** 2).sum()), data(13, 5)),
}
for name, (f, *xs) in programs.items():
    found, expected = tn.jit(f)(*xs), f(*xs)
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        a, b = (x.to(tn.float64).numpy() for x in (one, other))
        close = np.abs(a - b) <= (2e-2 if "bfloat16" in name else 1e-4) * max(1.0, np.abs(b).max())
        assert close.all(), (name, a[~close][:3], b[~close][:3])
print(len(programs), "programs agree")
"""


@pytest.mark.parametrize("words", ["bounds,passes", "guard", "guard_before"])
def test_programs_of_all_schedules_pass_every_check(words):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=600, env={
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "TENON_CHECK": words, "TENON_CACHE": "off"})
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "20 programs agree\n"
