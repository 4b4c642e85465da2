"""Elements that are read where a mask holds."""

import re

from backends.kernel_text import ir_of
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host

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
