"""Elements that are read where a mask holds."""

import re

import numpy as np

from backends.kernel_text import ir_of
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.pipeline import compile

ROLLED = """
def rolled(p0: f32[1, N0, N1]):
    v0: f32[2, N0, N1] = concat(p0, p0, axis=0)
    v1: f32[2*N0, N1] = reshape(v0, shape=(2*N0, N1))
    v2: f32[2*N0, n] = slice(v1, start=(0, -1*n + N1), stop=(2*N0, N1), step=(1, 1))
    v3: f32[2*N0, -1*n + N1] = slice(v1, start=(0, 0), stop=(2*N0, -1*n + N1), step=(1, 1))
    v4: f32[2*N0, N1] = concat(v2, v3, axis=1)
    return v4
"""


def test_divisions_of_places_are_made_before_the_mask() -> None:
    """LLVM makes them for the first lane's mask alone: a row rolled after its doubling was read from anywhere."""
    text = ir_of(kernel_of(parse_graph(ROLLED), "rolled"), host())
    inside = re.findall(r"^inside[.\d]*:(.*?)^after", text, re.MULTILINE | re.DOTALL)
    assert len(inside) >= 2
    assert not any(re.search(r" [us](div|rem) ", block) for block in inside)
    assert " urem " in text


GROUPED = """
def grouped(x: f32[1, 2, 14], w: f32[2*K, 1, 1]):
    v0: f32[1, 2*K, 16] = conv(x, w, stride=(1,), dilation=(1,), groups=2, padding=((1, 1),))
    v1: f32[1, 2*K, 16] = multiply(v0, v0)
    v2: f32[1, 2*K] = sum(v1, axis=(2,), keepdims=False, dtype=f32)
    return v2
"""


def test_divisions_that_all_turns_share_are_made_before_the_loop() -> None:
    """LLVM sinks one that a masked load alone reads behind the mask, and there it is of the first lane's again."""
    graph = parse_graph(GROUPED)
    text = ir_of(kernel_of(graph, "grouped"), host())
    (divided,) = re.findall(r"^divided[.\d]*:(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    assert " udiv " in divided
    rng = np.random.default_rng(0)
    for k in (1, 4, 2, 9, 0):
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 14), (2 * k, 1, 1))]
        np.testing.assert_allclose(compile(graph).run(arrays)[0], interpret(graph, arrays)[0], rtol=1e-5)
