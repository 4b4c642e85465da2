"""The body of a loop -> the bodies of the loops that compute its gradient, and its tangents."""

from __future__ import annotations

from typing import Any

from tenon.graph.build import Builder, call_graph
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import Graph, Value
from tenon.graph.op import using
from tenon.graph.partition import depending, derivative_of, part, pullback_of, split
from tenon.ops.arithmetic import add
from tenon.ops.comparison import logical_not
from tenon.ops.creation import zeros_like
from tenon.ops.gradient_stacks import is_empty, pop, push
from tenon.records import dataclass
from tenon.types import STACK


@dataclass(frozen=True)
class GradientParts:
    """What the gradient of a body needs of its forward run, by where that comes from.

    `late` takes the constants at `fixed`, the results of `invariant`, what is `stacked`, the sequences at `sequences`,
    and a gradient for each differentiable result; it returns those of the differentiable parameters.
    """

    forward: Graph                  # the body, which also returns what is to be stacked
    invariant: Graph                # from the constants to what depends on nothing else
    late: Graph
    fixed: tuple[int, ...]
    stacked: tuple[Value, ...]
    sequences: tuple[int, ...]


@once_a_graph
def loop_parts(body: Graph, constants: int, carried: int) -> GradientParts:
    """The parts of the derivative of a loop's body."""
    whole, count = derivative_of(body), len(body.results)
    cut = split(whole, len(body.params), whole.results[count:], first=whole.results[:count])
    early = cut.early
    varying = depending(early, early.params[constants:])
    position = {p: k for k, p in enumerate(early.params)}
    groups: dict[str, list[int]] = {"fixed": [], "invariant": [], "stacked": [], "sequences": []}
    kept = early.results[count:]
    for k, x in enumerate(kept):
        at = position.get(x)
        groups["stacked" if x in varying and (at is None or at < constants + carried) else
               "invariant" if at is None else "fixed" if at < constants else "sequences"].append(k)
    order = [k for group in groups.values() for k in group]
    late = part(cut.late, body.name + "_back", [*(cut.late.params[k] for k in order), *cut.late.params[len(kept):]],
                cut.late.results)
    stacked = tuple(kept[k] for k in groups["stacked"])
    return GradientParts(part(early, body.name, early.params, [*early.results[:count], *stacked]),
                 part(early, body.name + "_fixed", early.params[:constants], [kept[k] for k in groups["invariant"]]),
                 late, tuple(position[kept[k]] for k in groups["fixed"]), stacked,
                 tuple(position[kept[k]] - constants - carried for k in groups["sequences"]))


@once_a_graph
def reversed_body(body: Graph, constants: int, carried: int, from_stack: bool = False) -> Graph:
    """The body of the loop that undoes a loop with this body.

    It carries the gradients of what was carried, then the sums of those of the constants.  What was kept is sliced from
    sequences, or taken `from_stack`, the handle of which is then carried first.
    """
    parts = loop_parts(body, constants, carried)
    first = sum(r.dtype.is_differentiable for r in body.results[:carried])
    fixed = [p for p in body.params[:constants] if p.dtype.is_differentiable]
    count = len(parts.fixed) + len(parts.invariant.results)
    types = [p.type for p in parts.late.params]
    seeds = types[len(types) - sum(r.dtype.is_differentiable for r in body.results):]
    b = Builder(body.name + "_back", rewriting=True)
    known = [b.parameter(t) for t in types[:count]]
    handle = b.parameter(STACK, "kept") if from_stack else None
    states = [b.parameter(t, f"g{k}") for k, t in enumerate(seeds[:first])]
    sums = [b.parameter(p.type, f"sum{k}") for k, p in enumerate(fixed)]
    with using(b):
        if handle is None:
            kept = [b.parameter(t) for t in types[count:len(types) - len(seeds)]]
            below: list[Value] = []
        else:
            shapes = [x.type for x in parts.stacked]
            taken = pop(handle, dtypes=tuple(t.dtype for t in shapes), shapes=tuple(t.shape for t in shapes))
            head, *kept = taken if isinstance(taken, tuple) else (taken,)
            below = [head]
        slices = [b.parameter(t) for t in seeds[first:]]
        found = call_graph(parts.late, [*known, *kept, *states, *slices])
        totals = [add(total, g) for total, g in zip(sums, found[:len(sums)], strict=True)]
    return b.finish([*below, *found[len(sums):len(sums) + first], *totals, *found[len(sums) + first:]])


@once_a_graph
def pushing(body: Graph, constants: int) -> Graph:
    """The body that carries a stack too, last, and pushes what the gradient needs."""
    parts = loop_parts(body, constants, len(body.results))
    b = Builder(body.name, rewriting=True)
    params = [b.parameter(p.type, p.name) for p in body.params]
    handle = b.parameter(STACK, "kept")
    with using(b):
        found = call_graph(parts.forward, params)
        count = len(body.results)
        return b.finish([*found[:count], push(handle, *found[count:])])


@once_a_graph
def beside_stack(condition: Graph) -> Graph:
    """The condition of a loop that carries a stack too, last."""
    b = Builder(condition.name, rewriting=True)
    params = [b.parameter(p.type, p.name) for p in condition.params]
    b.parameter(STACK, "kept")
    with using(b):
        return b.finish(call_graph(condition, params))


@once_a_graph
def until_empty(back: Graph, constants: int) -> Graph:
    """The condition of the loop that takes from a stack, carried first."""
    b = Builder("not_empty", rewriting=True)
    params = [b.parameter(p.type, p.name) for p in back.params]
    with using(b):
        return b.finish([logical_not(is_empty(params[constants]))])


# ---------------------------------------------------------------- tangents

@once_a_graph
def with_tangents(graph: Graph, constants: int, results: bool) -> Graph:
    """The graph that takes a tangent for each differentiable parameter: those of the constants behind the constants,
    the others last.  With `results`, it returns a tangent for each differentiable result, last."""
    b = Builder(graph.name, rewriting=True)

    def group(params: tuple[Value, ...]) -> tuple[list[Value], list[Value]]:
        own = [b.parameter(p.type, p.name) for p in params]
        return own, [b.parameter(p.type, f"{p.name}_tangent") for p in params if p.dtype.is_differentiable]
    fixed, fixed_tangents = group(graph.params[:constants])
    state, tangents = group(graph.params[constants:])
    with using(b):
        quiet = part(graph, graph.name, graph.params, graph.results)
        found = call_graph(quiet, [*fixed, *state])
        if not results:
            return b.finish(found)
        zeros: list[Any] = [zeros_like(r) for r in found if r.dtype.is_differentiable]
        moved = call_graph(pushforward_of(graph), [*fixed, *state, *zeros, *fixed_tangents, *tangents]) if zeros else ()
    whole = b.finish([*found, *moved])
    return part(whole, whole.name, whole.params, whole.results)


@once_a_graph
def pushforward_of(graph: Graph) -> Graph:
    """The transpose of the pullback: from the parameters, any gradients, and tangents, to the tangents of the results
    (J. Townsend, "A new trick for calculating Jacobian vector products", 2017)."""
    twice = pullback_of(pullback_of(graph))
    seeds = sum(r.dtype.is_differentiable for r in graph.results)
    return part(twice, graph.name + "_tangents", twice.params, twice.results[len(twice.results) - seeds:])
