"""A graph with a gradient of its own, as one operator: what `tn.custom_vjp` leaves in a captured program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.errors import GraphError, TenonError, user_location
from tenon.graph.interpret import concrete, interpret_within
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Op, interpreter, using
from tenon.ops.define import define
from tenon.ops.graph_calls import check_takes, one_or_all, result_types
from tenon.types import TensorType


def apply_graph(graph: Graph, inputs: Sequence[Any], sizes: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    """The results of `graph` on these inputs: its operators, called one by one.  `sizes` gives its symbols."""
    values: dict[Value, Any] = dict(zip(graph.params, inputs, strict=True))
    for node in graph.nodes:
        given = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
        attrs = {"size": None} if node.op.data_dependent else concrete(node.attrs, sizes) if sizes else dict(node.attrs)
        try:
            out = interpreter().apply(node.op, given, attrs)
        except TenonError as error:
            if node.loc is not None and error.where == user_location():     # where the graph is run
                error.where = node.loc
            raise
        values.update(zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True))
        if node.op.data_dependent:
            sizes = {**(sizes or {}), **{str(dim): size for x in node.outputs
                                         for dim, size in zip(x.shape, values[x].shape, strict=True)}}
    return tuple(values[r] for r in graph.results)


def apply_graph_by(graph: Graph, inputs: Sequence[Any], level: Any) -> tuple[Any, ...]:
    """The same, by the interpreter `level`; the graph's symbolic sizes are read off the inputs."""
    known = graph.symbols()
    sizes = {str(dim): size for p, x in zip(graph.params, inputs, strict=True)
             for dim, size in zip(p.shape, x.shape, strict=True) if str(dim) in known}
    with using(level):
        return apply_graph(graph, inputs, sizes)


def body_batch(op: Op, a: Any, body: Graph) -> Any:
    """Batching rule: a graph is run node by node on the batch."""
    given = [a.level.enter(x, 0) if b else x for x, b in zip(a.inputs, a.batched, strict=True)]
    return tuple(a.level.leave(x, 0) for x in apply_graph_by(body, given, a.level))


def _types(*xs: TensorType, body: Graph, forward: Graph, backward: Graph, given: tuple[bool, ...]) -> Any:
    check_takes("custom_call", "the body", body, xs)
    check_takes("custom_call", "forward", forward, xs)
    seeds = [t for t in result_types(body) if t.dtype.is_differentiable]
    kept, others = result_types(forward), (*seeds, *xs[len(given):])
    results = _results_taken(backward, result_types(body), len(kept) + len(others))
    check_takes("custom_call", "backward", backward, (*kept, *results, *others))
    if len(backward.results) != sum(given) or len(given) > len(xs):
        raise GraphError(f"custom_call: backward returns {len(backward.results)} gradients for the inputs {given}")
    return one_or_all(result_types(body))


def _results_taken(backward: Graph, results: Sequence[Any], others: int) -> Sequence[Any]:
    """The results that `backward` takes beside so many others: in files written before 2026-12, none."""
    return results if len(backward.params) > others else ()


def _ref(*xs: Any, body: Graph, forward: Graph, backward: Graph, given: Any) -> Any:
    results = interpret_within(body, xs)
    return tuple(results) if len(results) > 1 else results[0]


def _definition(*xs: Any, body: Graph, forward: Graph, backward: Graph, given: Any) -> Any:
    results = apply_graph(body, xs)
    return results if len(results) > 1 else results[0]


def _vjp(g: Any, y: Any, *xs: Any, body: Graph, forward: Graph, backward: Graph, given: Any) -> list[Any]:
    received, results = (g, y) if isinstance(g, tuple) else ((g,), (y,))
    seeds = [s for s, r in zip(received, body.results, strict=True) if r.dtype.is_differentiable]
    shared = xs[len(given):]
    kept = apply_graph(forward, xs)
    results = _results_taken(backward, results, len(kept) + len(seeds) + len(shared))
    found = iter(apply_graph(backward, [*kept, *results, *seeds, *shared]))
    return [next(found) if flag else None for flag in given] + [None] * len(shared)


custom_call = define(
    "custom_call", public=False, type=_types, ref=_ref, vjp=_vjp, expand=_definition,
    doc="The results of `body` on the inputs.  The gradient is `backward` on what `forward` returns, the results, "
        "their gradients, and the inputs beyond the first ones, for which `given` says whether they get one.")
