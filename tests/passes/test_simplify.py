"""Every rule of the table: it fires, and both sides give the same numbers."""

import inspect
from typing import Any

import numpy as np
import pytest

from tenon.errors import TenonError
from tenon.graph.build import trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.passes.drop_dead import drop_dead
from tenon.passes.rewriting.rewrite_rules import RewriteRule
from tenon.passes.simplify import RULES, simplify
from tenon.types import BY_SHORT, TensorType

TYPES = ("f32[2, 3]", "i32[2, 3]", "bool[2, 3]", "f64[2, 3]", "u8[2, 3]")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]


def parse_type(text: str) -> TensorType:
    return parse_graph(f"def f(x: {text}):\n    return x").params[0].type


def sides(rule: RewriteRule, example: dict[str, Any], type: str) -> tuple[Graph, Graph] | None:
    """The graph of the left side, and what simplify makes of it; None where the operators do not take this type."""
    parameters = inspect.signature(rule.before).parameters.values()
    given = [example.get(p.name, type) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    attrs = {p.name: BY_SHORT.get(x, x) if isinstance(x := example[p.name], str) else x
             for p in parameters if p.kind is p.KEYWORD_ONLY}
    types = [parse_type(x) for x in given if isinstance(x, str)]

    def left(*values: Any) -> Any:
        rest = iter(values)
        return rule.before(*(next(rest) if isinstance(x, str) else x for x in given), **attrs)
    try:
        before = trace(left, *types)
    except TenonError:
        return None
    return verify(before), verify(drop_dead(simplify(before)))


def random_array(type: TensorType, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape: Any = type.shape
    if type.dtype.kind == "f":
        array = rng.normal(size=shape).astype(type.dtype.numpy)
        array.flat[: len(SPECIAL)] = SPECIAL[: array.size]
        return array
    if type.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    info = np.iinfo(type.dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype=type.dtype.numpy, endpoint=True)


def shows(rule: RewriteRule) -> str:
    return f"{RULES.index(rule)}-{rule.op.name}"


@pytest.mark.parametrize("rule", RULES, ids=shows)
def test_rule_fires_and_both_sides_are_equal_to_the_last_bit(rule: RewriteRule) -> None:
    fired = 0
    for example in rule.examples:
        for type in TYPES:
            made = sides(rule, dict(example), type)
            if made is None or print_graph(made[0], locations=False) == print_graph(made[1], locations=False):
                continue
            fired += 1
            arrays = [random_array(p.type, k) for k, p in enumerate(made[0].params)]
            with np.errstate(all="ignore"):
                (expected,), (got,) = interpret(made[0], arrays), interpret(made[1], arrays)
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)
            if got.dtype.kind == "f":
                numbers = ~np.isnan(expected)
                np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])
    assert fired, "the rule never fires"


def test_what_a_rule_makes_is_simplified_again() -> None:
    graph = simplify(parse_graph("def f(x: f32[2, 3]):\n    v0: f32[3, 2] = permute(x, axes=(1, 0))\n"
                                 "    v1: f32[2, 3] = permute(v0, axes=(1, 0))\n"
                                 "    v2: f32[2, 3] = multiply(v1, 1.0)\n    return v2"))
    assert drop_dead(graph).nodes == ()


def test_plus_zero_stays_for_floats() -> None:
    text = "def f(x: f32[2]):\n    v0: f32[2] = add(x, 0.0)\n    return v0"
    assert print_graph(simplify(parse_graph(text))) == text


def test_a_rule_never_changes_a_type() -> None:
    graph = parse_graph("def f(x: f32):\n    v0: f32[3] = full_op(x, shape=(3,))\n"
                        "    v1: f32[3] = multiply(v0, 1.0)\n    return v1")
    assert verify(simplify(graph)).results[0].type == graph.results[0].type
