"""The passes over loops stand in one list: each is timed, told, verified, and named where it fails."""

import pytest

from loops import toy
from tenon.errors import CompilerDefect
from tenon.graph.build import trace
from tenon.loops.expressions import Buffer, Index, Load, Local, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_ir import Kernel, Let, Loop, Nest, Store, Update
from tenon.loops.loop_pipeline import (
    ELEMENT_PASSES,
    FIRST_PASSES,
    KERNEL_PASSES,
    NEST_PASSES,
    LoopPass,
    all_elements,
    finish,
    run_loop_passes,
)
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower
from tenon.loops.store_target import StoreTarget
from tenon.loops.verify_loops import verify_loops
from tenon.types import TensorType, float32

ROW = TensorType(float32, (6,))
X, OUT = Buffer("x", ROW, "input"), Buffer("out", ROW, "output")
KEPT = Buffer("kept", ROW, "local")
i, j = Index("i", 6), Index("j", 6)
v, r = Local("v", float32), Local("r", float32)


def steps_of(function, *shapes):
    steps = []
    kernel = finish(lower(trace(function, *(TensorType(float32, shape) for shape in shapes)), "f", steps), steps)
    return steps, kernel


def test_each_pass_of_the_list_is_a_step_and_the_last_is_the_kernel():
    steps, kernel = steps_of(lambda a: toy.softmax(a, 1), (5, 37))
    passes = [*FIRST_PASSES, *ELEMENT_PASSES, *NEST_PASSES, *KERNEL_PASSES]
    assert [step.name for step in steps] == ["compute_rules", *(each.name for each in passes)]
    assert steps[-1].text == print_kernel(kernel)
    assert [step.name for step in steps if step.changed] == ["compute_rules", "compute_at"]


def test_what_changes_nothing_says_so_and_what_does_is_shown():
    steps, _ = steps_of(lambda a: toy.total(a), (300, 1001))
    told = {step.name: str(step) for step in steps}
    assert told["split_k"] == "# split_k (unchanged)"
    assert told["split_reductions"].startswith("# split_reductions: ") and "part0: f32[" in told["split_reductions"]
    assert "with elements(" in told["compute_rules"] and "with elements(" not in told["compute_at"]


def test_the_text_of_what_is_read_again_and_again_stays_short():
    def doubled(a):
        for _ in range(24):
            a = toy.add(toy.exp(a), toy.exp(a))
        return a
    steps, _ = steps_of(doubled, (5,))
    assert len(steps[0].text) < 4000 and "out[i0] = exp(exp(e1 + e1)" in steps[0].text


def test_a_value_that_is_kept_in_memory_is_told_of_once():
    steps, _ = steps_of(lambda a: toy.sum_(toy.matmul(a, a), axis=0), (40, 40))
    assert [step.name for step in steps].count("compute_rules") == 1


def test_a_pass_that_fails_is_named():
    def fails(elements, context):
        raise RuntimeError("broken")
    with pytest.raises(RuntimeError) as raised:
        run_loop_passes([StoreTarget(OUT, (i,), i, Load(X, i, None))], [LoopPass("fails", fails, all_elements)],
                        LoopContext("softmax"))
    assert raised.value.__notes__ == ["in the loop pass fails on softmax"]


@pytest.mark.parametrize(("body", "said"), [
    ((Loop(i, size(6), (Store(OUT, j, Load(X, i, None)),)),), "j reads j, which no loop around it has"),
    ((Store(OUT, size(0), v),), "v is read before it is made"),
    ((Let(v, size(0)), Update(v, "add", size(1))), "v is no accumulator"),
    ((Store(X, size(0), Load(X, size(1), None)),), "x, an input, is written"),
    ((Store(OUT, Load(X, size(0), None), Load(X, size(0), None)),), "a place in out, is tenon.float32"),
    ((Loop(i, size(6), (Loop(i, size(6), ()),)),), "the index of one around it"),
    ((Store(OUT, size(0), Load(KEPT, size(0), None)), Store(KEPT, size(0), Load(X, size(0), None))), "kept: read before"),
    ((Store(Buffer("lost", ROW, "temporary"), size(0), Load(X, size(0), None)),), "lost is no memory of the kernel"),
], ids=["index", "local", "accumulator", "input", "place", "twice", "row", "memory"])
def test_loops_that_are_not_well_formed_are_refused(body, said):
    kernel = Kernel("k", (X,), (OUT,), (), (), (Nest(body),))
    with pytest.raises(CompilerDefect, match=said):
        verify_loops(kernel, LoopContext("k", (X,), (OUT,)))
