"""Reverse-mode differentiation: one loop for the eager tape and for graphs.

Both record nodes of operator, inputs, attributes and outputs; rules are ordinary operator calls, so a gradient is
computed at once, recorded, or differentiated again, as the innermost interpreter decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from tenon.errors import GradientError, Location
from tenon.graph.build import Builder, call_graph, copy, expansion, inline, rebuild, types_of
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.op import current, using
from tenon.graph.partition import set_derivative
from tenon.ops.arithmetic import add
from tenon.ops.branches import pullbacks
from tenon.ops.creation import ones_like, zeros_like
from tenon.ops.custom import body_batch
from tenon.ops.define import define
from tenon.ops.graph_calls import run_body, type_of_body
from tenon.ops.shape import cast, sum_to
from tenon.records import replace
from tenon.types import TOKEN


class Rule(Protocol):
    """What the loop needs of an operator."""

    @property
    def name(self) -> str: ...
    @property
    def vjp(self) -> Callable[..., Any] | None: ...


class Recorded(Protocol):
    """What the loop needs of a node, on a tape or in a graph."""

    @property
    def op(self) -> Rule: ...
    @property
    def inputs(self) -> tuple[Any, ...]: ...
    @property
    def attrs(self) -> Any: ...
    @property
    def outputs(self) -> tuple[Any, ...]: ...
    @property
    def slots(self) -> tuple[Any, ...]: ...
    @property
    def loc(self) -> Location | None: ...


def backward(nodes: Iterable[Recorded], gradients: dict[Any, Any], wanted: Callable[[Any], bool],
             at: Callable[[Recorded], None] | None = None) -> dict[Any, Any]:
    """Accumulate gradients from the last node to the first.

    `nodes` in the order they ran; `gradients` maps slots (what `Value.slot` and `Tensor.slot` give) to the gradients
    known so far and is extended; `wanted` says which inputs need one; `at` is told before each node's rule runs.  A
    capture is told of each node, and of the gradients of its outputs.
    """
    follow = getattr(current(), "follow_gradient", None)
    for node in reversed(list(nodes)):
        seeds = [gradients.get(slot) for slot in node.slots]
        if seeds[0] is None and all(seed is None for seed in seeds):
            continue
        if at is not None:
            at(node)
        if follow is not None:
            follow(node, seeds)
        device = getattr(node, "device", None)
        with nullcontext() if device is None else device:       # where a rule's own constants lie
            for x, gradient in zip(node.inputs, pullback(node, seeds), strict=True):
                if gradient is not None and x is not None and wanted(x):
                    _accumulate(gradients, x, gradient() if callable(gradient) else gradient)
    if follow is not None:
        follow(None, ())
    return gradients


def pullback(node: Recorded, seeds: Sequence[Any]) -> Sequence[Any]:
    """The gradient of each input (None: there is none; a function: computed when called) from those of the outputs."""
    op, inputs, outputs = node.op, node.inputs, node.outputs
    if op.vjp is None:
        raise GradientError(f"{op.name} has no gradient", where=node.loc,
                            hint="x.detach() stops the gradient before it, or give the operator a vjp")
    if len(outputs) == 1:
        found: Sequence[Any] = op.vjp(seeds[0], outputs[0], *inputs, **node.attrs)
    else:
        filled = tuple(seeds) if getattr(op, "takes_none", False) else \
            tuple(zeros_like(y) if seed is None and y.type != TOKEN else seed
                  for seed, y in zip(seeds, outputs, strict=True))
        found = op.vjp(filled, tuple(outputs), *inputs, **node.attrs)
    if not isinstance(found, (tuple, list)) or len(found) != len(inputs):
        raise GradientError(f"{op.name}: its vjp must return a tuple of {len(inputs)}, one gradient an input",
                            where=node.loc)
    return found


def _accumulate(gradients: dict[Any, Any], x: Any, gradient: Any) -> None:
    gradient = sum_to(gradient, x.shape)        # which asks nothing about sizes that are spelled alike
    if gradient.dtype is not x.dtype:
        gradient = cast(gradient, dtype=x.dtype)
    slot = x.slot
    known = gradients.get(slot)
    gradients[slot] = gradient if known is None else add(known, gradient)


# ---------------------------------------------------------------- graph -> graph

def gradient_graph(graph: Graph, wrt: Sequence[int] | None = None) -> Graph:
    """The graph that returns the first result and its gradients with respect to parameters (all by default).

    The forward nodes stay as they are; the dual nodes are appended and carry the location of the node they belong to.
    The first result must be a scalar; a parameter that does not reach it has a gradient of zero.
    """
    loss = graph.results[0]
    if loss.shape != () or not loss.dtype.is_differentiable:
        raise GradientError(f"{graph.name}: the gradient of {loss.type} was asked for, it needs a floating scalar")
    chosen = range(len(graph.params)) if wrt is None else wrt
    return _with_gradients(replace(graph, results=graph.results[:1]), graph.results[:1], chosen, seeded=False)


def derivative_graph(graph: Graph) -> Graph:
    """The graph from the parameters, and a gradient for each differentiable result, to the results and the gradients
    of the differentiable parameters."""
    roots = [r for r in graph.results if r.dtype.is_differentiable]
    chosen = [k for k, p in enumerate(graph.params) if p.dtype.is_differentiable]
    return _with_gradients(graph, roots, chosen, seeded=True)


set_derivative(derivative_graph)


def inner_gradients(graph: Graph, values: Sequence[Value]) -> Graph:
    """The graph from the parameters, and a gradient for each differentiable result, to the gradients of values in it;
    zeros for those that reach no result."""
    ends = [k for k, r in enumerate(graph.results) if r.dtype.is_differentiable]
    count = len(graph.results)
    graph = open_composites(replace(graph, results=(*graph.results, *values)))
    builder = Builder(f"{graph.name}_inner", [Value(p.type, name=p.name) for p in graph.params])
    replaced = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        inline(graph, builder, replaced, copy)
        chosen = [replaced[x] for x in graph.results[count:]]
        forward = list(builder.nodes)
        needed, seeds = reached(forward, chosen), dict[Any, Any]()
        for k in ends:
            end = replaced[graph.results[k]]
            seed = builder.parameter(end.type, f"g{k}")
            seeds[end] = add(seeds[end], seed) if end in seeds else seed
        gradients = backward(forward, seeds, lambda x: isinstance(x, Value) and x in needed)
        found = [gradients[x] if x in gradients else zeros_like(x) for x in chosen]
    return builder.finish(found)


def _with_gradients(graph: Graph, roots: Sequence[Value], wrt: Sequence[int], seeded: bool) -> Graph:
    """`graph` with its dual appended.  The roots' gradients are new parameters if `seeded`, else one."""
    positions = [graph.results.index(root) for root in roots]
    graph = open_composites(graph)
    builder = Builder(graph.name + "_grad", [Value(p.type, name=p.name) for p in graph.params])
    replaced = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        inline(graph, builder, replaced, copy)
        ends = [replaced[graph.results[k]] for k in positions]
        chosen = [builder.params[k] for k in wrt]
        forward = list(builder.nodes)
        needed = reached(forward, chosen)
        seeds: dict[Any, Any] = {}
        for k, end in enumerate(ends):
            seed = builder.parameter(end.type, f"g{k}") if seeded else ones_like(end)
            seeds[end] = add(seeds[end], seed) if end in seeds else seed

        def follow(node: Recorded) -> None:
            builder.loc = None if node.loc is None else replace(node.loc, derives=node.loc)
        gradients = backward(forward, seeds, lambda x: isinstance(x, Value) and x in needed, follow)
        builder.loc = None
        found = [gradients[p] if p in gradients else zeros_like(p) for p in chosen]
    return builder.finish([*(replaced[r] for r in graph.results), *found])


def open_composites(graph: Graph) -> Graph:
    """Replace every composite without a gradient rule of its own by its definition, so that rules exist for all."""
    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        if node.op.expand is None or node.op.vjp is not None:
            return copy(node, inputs)
        body = open_composites(expansion(node.op, types_of(inputs), node.attrs))
        results = call_graph(body, [x for x in inputs if x is not None])
        return results if len(node.outputs) > 1 else results[0]
    return rebuild(graph, visit)


def reached(nodes: Iterable[Node], start: Sequence[Value]) -> set[Value]:
    """The values that depend on `start` through differentiable types."""
    found = {value for value in start if value.dtype.is_differentiable}
    for node in nodes:
        if any(x in found for x in node.inputs if isinstance(x, Value)):
            found.update(x for x in node.outputs if x.dtype.is_differentiable)
    return found


# ---------------------------------------------------------------- a graph as one operator

def _call_vjp(g: Any, y: Any, *xs: Any, body: Graph) -> list[Any]:
    """One call of the pullback, itself an operator with a gradient."""
    seeds, (pullback,) = pullbacks(g, body)
    out = call(*xs, *seeds, body=pullback)
    listed = iter(out if isinstance(out, tuple) else (out,))
    return [next(listed) if p.dtype.is_differentiable else None for p in body.params]


call = define("call", public=False, type=type_of_body, ref=run_body, vjp=_call_vjp, takes_none=True,
              batch=body_batch,
              doc="A graph applied to inputs, as one operator: what a jitted function is on the tape.")
