"""A transformation of loops that changes what is stored is named, with a folder from which that can be seen again."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tenon as tn
from loops import toy
from tenon.backends.cpu.lower_kernel import loop_steps
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.graph.text import parse_graph
from tenon.loops import collapse_loops, lower, peeling, validate_loops
from tenon.loops.evaluate_targets import evaluate_targets
from tenon.loops.expressions import Binary, Buffer, Index, Load, Reduce, Select, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_interpreter import run_nest
from tenon.loops.loop_pipeline import LoopPass, all_elements, finish, run_loop_passes, schedule
from tenon.loops.simplify_expressions import substitute
from tenon.loops.store_target import StoreTarget
from tenon.loops.validate_loops import ChangedLoops, compare
from tenon.target import GENERIC
from tenon.types import TensorType, float32

ROOT = Path(__file__).parents[2]
B = symbol("B")
i, j, k = Index("i0", 5), Index("i1", 4), Index("k0", 3)
x, out = Buffer("x", TensorType(float32, (5, 4, 3)), "input"), Buffer("out", TensorType(float32, (5, 4)), "output")
PLACE = i * 12 + j * 3 + k
SUMS = StoreTarget(out, (i, j), i * 4 + j, Reduce("add", (k,), Load(x, PLACE, None), (size(3),)))


@pytest.fixture
def checking(monkeypatch):
    monkeypatch.setattr(validate_loops, "always_validate", True)


def test_targets_are_what_numpy_says():
    memory = {x: np.arange(60, dtype=np.float32), out: np.zeros(20, np.float32)}
    evaluate_targets([SUMS], memory, {})
    np.testing.assert_array_equal(memory[out], np.arange(60, dtype=np.float32).reshape(20, 3).sum(1))


@pytest.mark.parametrize("value", [
    SUMS.value, Load(x, i * 12 + j * 3, i * 4 + j >= 3), Select(i > j, Load(x, j, None), Load(x, i, None)),
    Reduce("max", (k,), Load(x, PLACE, None) - Reduce("min", (k,), Load(x, PLACE, None), (size(3),)),
           (Binary("min", size(3), i),)),
], ids=str)
def test_a_nest_stores_what_its_targets_say(value):
    target = StoreTarget(out, (i, j), i * 4 + j, value)
    random = np.random.default_rng(0).standard_normal(60).astype(np.float32)
    of_targets, of_nest = ({x: random.copy(), out: np.zeros(20, np.float32)} for _ in range(2))
    evaluate_targets([target], of_targets, {})
    run_nest(schedule([target]), of_nest, {})
    np.testing.assert_allclose(of_targets[out], of_nest[out], rtol=1e-6)


def wrong(targets, context):
    """The sum runs over the first two of three."""
    return [StoreTarget(t.buffer, t.indices, t.offset, Reduce("add", (k,), t.value.body, (size(2),))) for t in targets]


def test_a_wrong_transformation_is_named(checking):
    with pytest.raises(ChangedLoops, match=r"wrong changes what is stored to out: element \[0\]") as raised:
        run_loop_passes([SUMS], [LoopPass("wrong", wrong, all_elements)], LoopContext())
    folder = Path(str(raised.value.hint).split()[0])
    assert "for k0 in range(2, most=3)" in (folder / "after.txt").read_text() and (folder / "memory.npz").exists()


def test_a_result_that_is_no_longer_stored_is_missed():
    with pytest.raises(ChangedLoops, match="changes what is stored to out"):
        compare("forgets", (SUMS,), ())


def test_a_copy_that_was_made_for_another_target_is_known(checking):
    copy = Buffer("part", x.type, "temporary")
    made = StoreTarget(copy, (i, j, k), PLACE, Load(x, PLACE, None))
    of_copy = StoreTarget(out, (i, j), i * 4 + j, Reduce("add", (k,), Load(copy, PLACE, None), (size(3),)))
    compare("copies", (SUMS,), (made, of_copy))
    compare("copies again", (SUMS,), (of_copy,))
    validate_loops._made.targets.clear()
    with pytest.raises(ChangedLoops):
        compare("reads what is nowhere", (SUMS,), (of_copy,))


BREAK = """
from tenon.loops import collapse_loops
from tenon.loops.expressions import size
from tenon.loops.simplify_expressions import substitute
collapse_loops.Merging.__call__ = lambda self, x: substitute(x, {self.outer: self.flat, self.inner: size(0)})
"""


def forgetful(self, x):
    """Both indices in terms of the flat one, wrongly: the outer one is a multiple of it."""
    return substitute(x, {self.outer: self.flat, self.inner: size(0)})


def test_a_broken_pass_is_found_and_seen_again_from_its_folder(checking, monkeypatch):
    from tenon.graph.text import parse_graph
    monkeypatch.setattr(collapse_loops.Merging, "__call__", forgetful)
    graph = trace(lambda a: toy.exp(toy.transpose(a)), TensorType(float32, (4, 6)))
    text = "def body(p0: f32[4, 6]):\n    v0: f32[4, 6] = exp(p0)\n    return v0"
    with pytest.raises(ChangedLoops, match=r"collapse_loops (changes what is stored|leaves loops)"):
        lower.lower(graph, "kernel")
    with pytest.raises(ChangedLoops) as raised:
        lower.lower(parse_graph(text), "kernel")
    program = Path(str(raised.value.hint).split()[1])
    assert (program.parent / "graph.txt").read_text().strip() == text
    sound, broken = (subprocess.run([sys.executable, "-c", f"{first}\nexec(open({str(program)!r}).read(), "
                                     f"{{'__file__': {str(program)!r}}})"],
                                    capture_output=True, text=True, check=False,
                                    env={"PYTHONPATH": str(ROOT), "TENON_CHECK": "passes"})
                     for first in ("", BREAK))
    assert sound.returncode == 0, sound.stderr
    assert "ChangedLoops: collapse_loops" in broken.stderr


@pytest.mark.parametrize(("function", "shapes"), [
    (lambda a: toy.softmax(a, 1), [(5, 37)]), (lambda a: toy.sum_(a, axis=0), [(300, 40)]),
    (lambda a, b: toy.matmul(a, b), [(17, 9), (9, 33)]), (lambda a: toy.transpose(toy.exp(a)), [(19, 35)]),
    (lambda a: toy.argmax(a, axis=1), [(6, 11)]), (lambda a: toy.pad(a, low=2, high=1), [(B, 3)]),
    (lambda a, b: toy.add(a, toy.spread(b, axis=0, n=B)), [(B, 7), (7,)]),
    (lambda a: toy.total(toy.mul(a, a)), [(40, 70)]),
], ids=["softmax", "columns", "product", "transposed", "argmax", "padded", "spread", "total"])
def test_what_is_right_is_not_refused(checking, monkeypatch, function, shapes):
    looked_at = []
    monkeypatch.setattr(validate_loops, "_ran", lambda *given, run=validate_loops._ran: looked_at.append(run(*given)) or looked_at[-1])
    monkeypatch.setattr(peeling, "MIN_PEELED_WORK", 1)
    monkeypatch.setattr(validate_loops, "MAX_STEPS", 1 << 20)
    finish(lower.lower(trace(function, *(TensorType(float32, shape) for shape in shapes)), "kernel"))
    assert len(looked_at) >= 9 and all(memory is not None for memory in looked_at)


@pytest.mark.parametrize("target", ["uint8", "int8", "uint32", "int64", "uint64"])
def test_numbers_beyond_a_whole_type_end_where_it_does_in_loops_too(checking, target):
    values = tn.tensor([-1e30, -3e9, -1.5, 0.5, 300.7, 3e9, 1e30, np.inf, np.nan], dtype="float64")
    assert tn.jit(lambda x: (x * 2).astype(target))(values).tolist() == (values * 2).astype(target).tolist()


def test_sizes_that_the_graph_refuses_are_not_tried(checking):
    """Five elements of N0*N1: there is no run with four."""
    body = parse_graph("""def body(p0: f64[5, N0], p1: f64[N0*N1]):
    v0: f64[5] = slice(p1, start=(0,), stop=(5,), step=(1,))
    v1: f64[5, 1] = reshape(v0, shape=(5, 1))
    v2: f64[5, 1] = log(v1)
    v3: f64[5, N0] = broadcast_to(v2, shape=(5, N0))
    v4: f64[5, N0] = add(p0, v3)
    return v4""")
    assert loop_steps(body, "kernel", GENERIC)


def test_a_wide_result_of_narrow_numbers_resolves_no_more_than_they_do(checking):
    """Roundings of float32 differ before and after, and the result is float64."""
    x = tn.tensor(np.random.default_rng(78).standard_normal((5, 257)).astype(np.float32))
    power = tn.jit(lambda x: tn.float_power(tn.sigmoid(x) * 1.7 + 0.3, tn.sigmoid(x) * 1.7 + 0.3))
    assert power(x).dtype is tn.float64
