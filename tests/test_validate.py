"""A pass that changes a value is named, with a folder from which the error can be repeated."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tenon.graph.build import copy, rebuild, trace
from tenon.graph.compare import difference
from tenon.graph.interpret import OutOfPatience, interpret, with_patience
from tenon.graph.ir import Graph
from tenon.graph.sample_inputs import sample_inputs
from tenon.graph.text import parse_graph
from tenon.graph.validate import ChangedValue, PassWatch
from tenon.pipeline import run_passes
from tenon.types import TensorType, bfloat16, float32

ROOT = Path(__file__).parents[1]
TEXT = """def f(x: f32[B, 3], k: i64):
    v0: f32[B, 3] = add(x, x)
    v1: f32[B, 3] = maximum(v0, 0.0)
    v2: f32[3] = sum(v1, axis=(0,), keepdims=False, dtype=f32)
    return v2, v1"""


def nothing(graph: Graph) -> Graph:
    return rebuild(graph, copy)


def wrong(graph: Graph) -> Graph:
    """`minimum` in the place of `maximum`: other values, of the same types."""
    return parse_graph(TEXT.replace("maximum", "minimum"))


def test_the_first_pass_that_changes_a_value_is_named() -> None:
    passes = [("nothing", nothing), ("wrong", wrong), ("nothing again", nothing)]
    with pytest.raises(ChangedValue, match=r"the pass wrong changes a value of the graph f: result 0, element") as raised:
        run_passes(parse_graph(TEXT), passes, validate=True)
    assert raised.value.__notes__ == ["in pass wrong on graph f"]


def test_the_reproducer_shows_the_error_by_itself() -> None:
    with pytest.raises(ChangedValue) as raised:
        run_passes(parse_graph(TEXT), [("wrong", wrong)], validate=True)
    assert raised.value.hint is not None
    program = Path(raised.value.hint.split()[1])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, cwd=ROOT,
                          env={"PYTHONPATH": str(ROOT)})
    assert done.stdout.startswith("result 0, element [")
    (program.parent / "after.txt").write_text((program.parent / "before.txt").read_text())
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, cwd=ROOT,
                          env={"PYTHONPATH": str(ROOT)})
    assert done.stdout == "the same values\n"


def body(expression: str, parameters: str = "x: f32[40]", type: str = "f32[40]") -> str:
    return f"def f({parameters}):\n    a: f32[40] = abs(x)\n    v0: {type} = {expression}\n    return v0"


def replaced(name: str, before: str, after: str, **types: str) -> None:
    """Run a pass of this name that puts one expression in the place of another."""
    run_passes(parse_graph(body(before, **types)), [(name, lambda graph: parse_graph(body(after, **types)))],
               validate=True)


def test_zeros_of_the_other_sign_are_seen_where_a_pass_only_moves_nodes() -> None:
    replaced("simplify", "negative(x)", "subtract(0.0, x)")
    with pytest.raises(ChangedValue, match="ties inputs"):
        replaced("hoist", "negative(x)", "subtract(0.0, x)")


def test_what_differs_for_infinities_and_no_numbers_alone_is_seen() -> None:
    with pytest.raises(ChangedValue, match="special inputs"):
        replaced("simplify", "minimum(a, 0.0)", "multiply(x, f32(0.0))")


def test_a_pass_whose_graph_raises_is_seen() -> None:
    types = {"parameters": "x: f32[40], k: i64", "type": "f32"}
    with pytest.raises(ChangedValue, match="it raises an error"):
        replaced("simplify", "take(x, k, axis=0)", "take(x, i64(70), axis=0)", **types)


def test_a_loop_without_end_is_not_waited_for() -> None:
    graph = parse_graph("""def f(x: f32):
    def condition(c: f32):
        v0: bool = less_equal(c, 9.0)
        return v0
    def body(c: f32):
        v0: f32 = minimum(c, 9.0)
        return v0
    v0: f32 = while_loop(x, constants=0, condition=condition, body=body)
    return v0""")
    assert all(not sample.arrays[0] <= 9.0 for sample, _ in PassWatch(graph).runs)      # the others have no end
    with with_patience(100), pytest.raises(OutOfPatience):
        interpret(graph, [np.float32(0.5)])
    with with_patience(100):
        assert interpret(graph, [np.float32(9.5)]) == [9.5]


def test_inputs_have_ties_both_zeros_infinities_and_no_numbers() -> None:
    graph = trace(lambda x: x * 2.0, TensorType(float32, (40,)))
    by_kind = {sample.kind: sample.arrays[0] for sample in sample_inputs(graph)}
    assert len(np.unique(by_kind["ties"])) < 10
    special = by_kind["special"]
    assert np.isnan(special).any() and np.isposinf(special).any() and np.isneginf(special).any()
    assert (np.signbit(by_kind["ties"]) & (by_kind["ties"] == 0)).any()


def test_symbolic_sizes_are_odd_prime_and_longer_than_a_vector() -> None:
    found = {tuple(sample.sizes.values()) for sample in sample_inputs(parse_graph(TEXT))}
    assert found == {(2,), (3,), (17,)}


def test_tolerances_follow_from_the_type() -> None:
    x = np.array([1000.0, 1.0], np.float32)
    assert difference(x, x + np.float32(0.5)) is None and difference(x, x + np.float32(2.0)) is not None
    assert difference(x.astype(np.float64), x.astype(np.float64) + 1e-4) is not None
    narrow = x.astype(bfloat16.numpy)
    assert difference(narrow, (x + 4).astype(bfloat16.numpy)) is None
    assert difference(np.array([1]), np.array([2])) is not None
    assert difference(np.array([np.nan]), np.array([np.nan])) is None
    assert difference(np.array([np.inf]), np.array([np.nan])) is not None
