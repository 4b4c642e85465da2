"""The lines of a kernel's texts belong together, and what is read is the code that runs."""

import re

import pytest

import tenon as tn
from tenon.backends.cpu.kernel_listing import listing_of
from tenon.debug.instrumented_calls import programs_of
from tenon.graph.partition import innermost
from tenon.llvm import machine_code
from tenon.llvm.line_tables import without_directives


def kernels(f, *args):
    step = tn.jit(f)
    step(*args)
    _, captured = step.look(*args)
    program, _ = next(programs_of(captured))
    return program.kernels


def instructions(assembly):
    """What the processor does: no directives, labels without their numbers."""
    rows = [row.strip() for row in assembly.splitlines() if row.startswith("\t") and not row.startswith("\t.")]
    return [re.sub(r"\.L\w+", ".L", row.partition("#")[0].strip()) for row in rows]


def softmax(x):
    top = x.max(axis=1, keepdims=True)
    e = tn.exp(x - top)
    return e / e.sum(axis=1, keepdims=True)


CASES = [(softmax, (tn.ones((8, 50)),)),
         (lambda x, w, b: tn.tanh(x @ w + b), (tn.ones((8, 16)), tn.ones((16, 32)), tn.ones(32))),
         (lambda x: x.mT.reshape(-1) * 2 + tn.rand(64), (tn.ones((8, 8)),)),
         (lambda x: tn.nn.functional.scaled_dot_product_attention(x, x, x), (tn.ones((1, 2, 16, 8)),)),
         (lambda x, i: x[i].sum(axis=0), (tn.ones((9, 4)), tn.tensor([1, 2, 8]))),
         (lambda x: tn.nn.functional.max_pool2d(x, 2), (tn.ones((1, 3, 8, 8)),)),
         (lambda x: tn.while_loop(lambda x: x.sum() < 100, lambda x: tn.sin(x) + x * 2, x), (tn.ones(3),)),
         (lambda x: tn.scan(lambda c, a: (tn.tanh(c + a), c * 2), x[0], x), (tn.ones((7, 3)),))]


@pytest.mark.parametrize(("f", "args"), CASES)
def test_the_code_is_that_of_the_kernel(f, args):
    for unit in kernels(f, *args):
        listing = listing_of(unit, code=True)
        assert listing.loops == unit.loops
        assert instructions(listing.assembly[0]) == instructions(without_directives(machine_code.assembly(unit.ir))[0])
        assert "!dbg" not in listing.llvm[0] and "DILocation" not in listing.llvm[0] and ".loc" not in listing.assembly[0]
        count = len(listing.loops.splitlines())
        assert len(listing.nodes) == count
        for text, lines in (listing.llvm, listing.assembly):
            assert len(lines) <= len(text.splitlines()) and all(0 <= n <= count for n in lines)
            assert any(lines)
        named = {k for nodes in listing.nodes for k in nodes}
        assert named == set(range(sum(len(list(innermost(node))) for node in unit.body.nodes)))


def test_a_line_names_the_nodes_that_it_computes():
    unit, = kernels(softmax, tn.ones((8, 50)))
    listing = listing_of(unit, code=True)
    ops = [node.op.name for node in unit.body.nodes]
    told = [(row.strip(), {ops[k] for k in nodes}) for row, nodes in zip(listing.loops.splitlines(), listing.nodes, strict=True)]
    assert any("max(" in row and nodes == {"max"} for row, nodes in told)
    assert any("exp(" in row and {"exp", "subtract"} <= nodes and "max" not in nodes for row, nodes in told)
    assert all("exp" not in nodes for row, nodes in told if row.startswith("r0 = max"))
    divisions = [nodes for row, nodes in told if "divide" in nodes and not row.startswith("for")]
    assert divisions and all("sum" not in nodes for nodes in divisions)


def test_the_multiplications_of_a_product_are_on_its_line():
    unit = kernels(lambda x, w: tn.tanh(x @ w), tn.ones((64, 64)), tn.ones((64, 64)))[0]
    listing = listing_of(unit, code=True)
    text, lines = listing.assembly
    rows = listing.loops.splitlines()
    fused = {lines[k] for k, row in enumerate(text.splitlines()) if "vfmadd231ps" in row and k < len(lines) and lines[k]}
    assert fused and any("contraction" in rows[n - 1] or "sum(" in rows[n - 1] for n in fused)
