"""Every operator with compute rules, alone or as a body of the operators it expands to: compiled == reference."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from graphs import arrays_for, graphs
from loops.compiled import check
from operator_examples import arguments, data, graph_of, intervals
from tenon.errors import TenonError
from tenon.graph.op import OPS
from tenon.graph.text import parse_example
from tenon.loops.lower import lower
from tenon.passes.expand import expand
from tenon.types import BY_SHORT, TensorType

SWEEP = ("bool", "i8", "u8", "i64")
TOLERANCE = {"f16": 2e-2, "bf16": 1e-1, "f32": 1e-4, "f64": 1e-9}


def is_body(graph):
    """Whether loops can express it: rules for every node, no complex numbers."""
    values = [*graph.params, *(v for node in graph.nodes for v in node.outputs)]
    return all(node.op.compute for node in graph.nodes) and not any(v.dtype.kind in "ct" for v in values)


def tolerance(graph):
    dtypes = [v.dtype.short for node in graph.nodes for v in node.outputs] + [p.dtype.short for p in graph.params]
    return max((TOLERANCE.get(d, 0.0) for d in dtypes), default=0.0) or 1e-4


def succeeding():
    return [text for op in OPS.values() if not (op.effect or op.data_dependent)
            for text in op.examples if not text.endswith("-> error")]


@pytest.mark.parametrize("text", succeeding())
def test_examples(text):
    example = parse_example(text)
    graph = expand(graph_of(example))
    if not is_body(graph):
        pytest.skip("not a body of compute rules")
    with np.errstate(all="ignore"):
        check(graph, *arguments(example), interpreted=False, tolerance=tolerance(graph))


@pytest.mark.parametrize("dtype", SWEEP)
def test_elementwise_operators_of_every_type(dtype):
    checked = 0
    for op in OPS.values():
        if not op.elementwise or not op.compute or op.effect or not op.examples:    # other tests' own have none
            continue
        example = parse_example(next(text for text in op.examples if not text.endswith("error")))
        inputs = tuple(TensorType(BY_SHORT[dtype], t.shape) if isinstance(t, TensorType) and t.dtype.short == "f32"
                       else t for t in example.inputs)
        try:
            graph = expand(graph_of(example, inputs))
        except TenonError:
            continue
        if not is_body(graph) or any(node.op.name == "cast" for node in graph.nodes):
            continue
        arrays = [data(t, interval, k) for k, (t, interval) in enumerate(zip(inputs, intervals(example), strict=True))
                  if isinstance(t, TensorType)]
        try:
            lower(graph, "k")
        except NotImplementedError:         # what the operator says of whole powers
            continue
        with np.errstate(all="ignore"):
            check(graph, *arrays, interpreted=False, tolerance=tolerance(graph))
        checked += 1
    assert checked > 5


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_bodies(graph):
    graph = expand(graph)
    if is_body(graph):
        with np.errstate(all="ignore"):
            check(graph, *arrays_for(graph), interpreted=False, tolerance=2e-3)
