"""Machine code for shorter vectors than this processor has: that of processors without AVX-512, or AVX, run here."""

import os
import platform
import subprocess
import sys

import pytest

from tenon.llvm.host_target import available

PROGRAM = """
import numpy as np
import tenon as tn
from tenon.autodiff import gradient_graph
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.pipeline import compile
from tenon.types import TensorType, as_dtype

rng = np.random.default_rng(0)
registers = set()

def agrees(function, *shapes, dtype="float32", tolerance=2e-5, wrt=()):
    types = [TensorType(as_dtype(dtype), shape) for shape in shapes]
    arrays = [rng.uniform(0.1, 1.0, t.shape).astype(t.dtype.numpy) for t in types]
    if wrt:
        graph = gradient_graph(trace(lambda *xs: (function(*xs) ** 2).mean(), *types, name="loss"), wrt=wrt)
    else:
        graph = trace(function, *types)
    program = compile(graph, backend="cpu")
    for found, expected in zip(program.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance)
    registers.update(name for name in ("xmm", "ymm", "zmm") if name in program.assembly)

for dtype, tolerance in ("float32", 2e-5), ("float64", 1e-12), ("bfloat16", 0.05):
    agrees(lambda x, w: tn.relu(x @ w), (65, 129), (129, 77), dtype=dtype, tolerance=tolerance)
agrees(lambda x, w: x @ w, (1, 300), (300, 70))
agrees(lambda x, w: tn.conv2d(x, w, padding=1), (2, 16, 14, 14), (16, 16, 3, 3))
agrees(lambda x, w: tn.conv2d(x, w, stride=2, padding=1), (2, 3, 9, 11), (5, 3, 3, 3), wrt=[0, 1])
agrees(lambda x, w: tn.conv2d(x, w, groups=6), (2, 6, 9, 9), (6, 1, 3, 3), wrt=[0, 1])
agrees(lambda q, k: tn.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True),
       (2, 3, 33, 17), (2, 3, 33, 17))
agrees(lambda x: tn.softmax(tn.gelu(x), -1), (33, 71), wrt=[0])
for name in ("exp", "log", "sin", "tanh", "erf", "sqrt", "sigmoid", "log1p", "lgamma"):
    agrees(getattr(tn, name), (1001,))
    agrees(getattr(tn, name), (1001,), dtype="float64", tolerance=1e-12)
agrees(lambda x: (tn.sort(x, axis=1), tn.cumsum(x, axis=0), x.max(1), x.argmin(0)), (37, 41))
agrees(lambda x: (tn.transpose(x, 1, 0) + 1, tn.max_pool2d(x[None, None], 2)), (36, 41))
print(*sorted(registers))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors have one length")
@pytest.mark.parametrize(("bits", "registers"), [(512, "xmm ymm zmm"), (256, "xmm ymm"), (128, "xmm")])
def test_code_for_vectors_of_every_length_computes_what_the_reference_computes(bits, registers):
    if not available().get({512: "avx512f", 256: "avx2", 128: "sse4.2"}[bits]):
        pytest.skip("this processor has none so long")
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | {"TENON_VECTORS": str(bits)}, text=True,
                          capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == registers.split()
