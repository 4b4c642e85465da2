"""Processes that compile the same at once and keep it in one directory: both are right, a third makes nothing."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import numpy as np
import tenon as tn
from tenon.nn import functional as F
from tenon.observe import subscribe

made = []
subscribe(lambda event: made.append(event) if event.name == "llvm.compile" else None)
x, w = (tn.asarray(np.arange(n * m, dtype=np.float32).reshape(n, m) / 100) for n, m in ((33, 40), (40, 48)))
f = tn.jit(lambda x, w: F.softmax(F.relu(x @ w - 3), -1).sum(0))
got, want = np.asarray(f(x, w)), np.maximum(np.asarray(x) @ np.asarray(w) - 3, 0)
want = np.exp(want - want.max(-1, keepdims=True))
np.testing.assert_allclose(got, (want / want.sum(-1, keepdims=True)).sum(0), rtol=1e-4, atol=1e-6)
print(len(made), got.tobytes().hex())
"""


def start(cache: Path) -> subprocess.Popen[str]:
    settings = os.environ | {"TENON_CACHE": str(cache), "TENON_BACKEND": "cpu",
                             "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=settings, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def output_of(process: subprocess.Popen[str]) -> list[str]:
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    return printed.split()


def test_two_processes_compile_the_same_at_once(tmp_path):
    first, second = map(output_of, [start(tmp_path) for _ in range(2)])
    made, bits = output_of(start(tmp_path))
    assert int(first[0]) + int(second[0]) > 0 and made == "0"      # one may wait until the other is done
    assert first[1] == second[1] == bits
    assert not list(tmp_path.glob("*.tmp"))
