"""Every operator on parts of its inputs, against its reference on the whole: rules that are read off are right."""

import zlib
from typing import Any

import numpy as np
import pytest

from operator_examples import arguments, graph_of, succeeding, with_floats
from sharding_runs import MESHES, check, random_spec
from tenon.graph.axis_rule import AxisRule
from tenon.graph.text import parse_example
from tenon.sharding.rules import rule_of
from tenon.sharding.sharding import Sharding
from tenon.types import TensorType, float64


def rule(text: str) -> AxisRule:
    graph = graph_of(parse_example(text))
    return rule_of(next(node for node in graph.nodes if node.op is parse_example(text).op))


def written(found: AxisRule) -> str:
    """The rule as einsum writes it; a dot is an axis that is whole."""
    names: dict[Any, str] = {}

    def word(labels: Any) -> str:
        return "".join("." if x is None else names.setdefault(x, chr(97 + len(names))) for x in labels) or "-"
    left = ", ".join(map(word, found.inputs))
    return f"{left} -> {', '.join(map(word, found.outputs))}" + "".join(
        f" {kind} {names[x]}" for x, kind in found.combined.items())


@pytest.mark.parametrize(("text", "expected"), [
    ("add(f32[2, 3], f32[2, 3]) -> f32[2, 3]", "ab, ab -> ab"),
    ("matmul(f32[5, 2, 3], f32[5, 3, 4]) -> f32[5, 2, 4]", "abc, acd -> abd add c"),
    ("sum(f32[2, 3], axis=(1,), keepdims=False, dtype=f64) -> f64[2]", "ab -> a add b"),
    ("max(f32[2, 3], axis=(0,), keepdims=True) -> f32[1, 3]", "ab -> cb max a"),
    ("permute(f32[2, 3, 4], axes=(2, 0, 1)) -> f32[4, 2, 3]", "abc -> cab"),
    ("conv(f32[2, 3, 8], f32[4, 3, 3]) -> f32[2, 4, 6]", "ab., cb. -> ac. add b"),
    ("conv_weight_grad(f32[2, 3, 8], f32[2, 4, 6], kernel=(3,), stride=(1,), padding=((0, 0),), dilation=(1,), groups=1) -> f32[4, 3, 3]",
     "ab., ac. -> cb. add a"),
    ("take(f32[5, 3], i64[4], axis=0) -> f32[4, 3]", ".a, b -> ba"),
    ("put(f32[5, 3], i64[4], f32[4, 3], axis=0, reduce='add') -> f32[5, 3]", ".a, b, ba -> .a add b"),
    ("put(f32[5, 3], i64[4], f32[4, 3], axis=0, reduce='set') -> f32[5, 3]", ".a, ., .a -> .a"),
    ("softmax(f32[2, 3, 4], axis=-2) -> f32[2, 3, 4]", "a.b -> a.b"),
    ("layer_norm(f32[2, 5], f32[5], f32[5], count=1, eps=1e-05) -> f32[2, 5]", "a., ., . -> a."),
    ("attention(f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3, 4], is_causal=True, scale=0.5) -> "
     "(f32[2, 2, 3, 4], f32[2, 2, 3], f32[2, 2, 3])", "ab.., ab.., ab.c, - -> ab.c, ab., ab."),
    ("slice(f32[5, 6], start=(1, 0), stop=(4, 6), step=(1, 1)) -> f32[3, 6]", ".a -> .a"),
    ("concat(f32[2, 3], f32[4, 3], axis=0) -> f32[6, 3]", ".a, .a -> .a"),
    ("cumsum(f32[2, 3], axis=1) -> f32[2, 3]", "a. -> a."),
    ("arange(start=0, step=1, size=5, dtype=i64) -> i64[5]", " -> ."),
])
def test_rules_follow_from_what_operators_mean(text: str, expected: str) -> None:
    assert written(rule(text)) == expected


def test_linearity_is_read_off_too() -> None:
    add, product, chosen = (rule(t) for t in (
        "add(f32[2, 3], f32[2, 3]) -> f32[2, 3]", "multiply(f32[2, 3], f32[2, 3]) -> f32[2, 3]",
        "where(bool[2, 3], f32[2, 3], f32[2, 3]) -> f32[2, 3]"))
    assert add.is_linear_in({0, 1}) and not add.is_linear_in({0})
    assert product.is_linear_in({0}) and product.is_linear_in({1}) and not product.is_linear_in({0, 1})
    assert chosen.is_linear_in({1, 2}) and not chosen.is_linear_in({0}) and not chosen.is_linear_in({1})
    assert not rule("exp(f32[2, 3]) -> f32[2, 3]").is_linear_in({0})


@pytest.mark.parametrize("text", [p for p in succeeding() if "to_device" not in p.id])     # which a mesh refuses
def test_parts_of_every_operator_are_those_of_its_reference(text: str) -> None:
    example = parse_example(text)
    inputs = with_floats(example, float64) if not any(
        t.dtype.kind == "c" or t.dtype.bits == 16 for t in example.inputs if t is not None) else example.inputs
    try:
        graph = graph_of(example, inputs)
    except Exception:                   # of another type there is none
        inputs = example.inputs
        graph = graph_of(example, inputs)
    arrays = arguments(example, inputs)
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    tolerance = 1e-11 if all(t.dtype is float64 for t in inputs if isinstance(t, TensorType) and t.dtype.kind in "fc") else 2e-2
    for mesh in MESHES:
        shardings = [Sharding(mesh, random_spec(p.ndim, mesh, rng)) for p in graph.params]
        check(graph, shardings, mesh, arrays, tolerance=tolerance)
