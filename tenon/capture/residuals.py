"""A captured graph on the tape: one program computes its results and what the gradient needs, another the gradient.

Without this, the gradient's program would compute the results once more.  What is kept is what crosses from one part of
the derivative graph to the other (`tenon.graph.partition.split`); parameters are not copied, and what is as cheap to
compute as to keep is computed again.  A gradient that is itself recorded is the pullback of the whole graph, a `call`,
which has derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tenon.autodiff import call
from tenon.capture.conditional_gradients import use
from tenon.capture.independent_results import independent_results
from tenon.dims.size_assumptions import told_by
from tenon.eager.dispatch import program_of
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.tape import TapeNode, linked, saved
from tenon.errors import GradientError
from tenon.graph.build import Builder, call_graph
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import Graph, Literal, Value
from tenon.graph.op import using
from tenon.graph.partition import copy_nodes, derivative_of, has_effect, needed, part, split, with_results
from tenon.locks import cached_property, unforked
from tenon.ops.shape import full_op
from tenon.program.backend_interface import Executable
from tenon.records import dataclass, field, replace
from tenon.tensor import Tensor, fresh


@dataclass(frozen=True, eq=False)
class Half:
    """The gradient of some results: `backward` takes what is kept and gradients of these results."""

    results: tuple[int, ...]    # their places
    body: Graph                 # what computes them
    forward: Graph              # what computes them and the values to keep
    backward: Graph
    kept: tuple[int, ...]       # a parameter by its place, and further results of `forward` by theirs: -1, -2 ...
    wanted: tuple[int, ...]     # the parameters whose gradients `backward` gives
    reached: tuple[frozenset[int], ...]     # the results (of `body`) that each of them reaches
    taped: frozenset[int]       # the parameters that a gradient can go to
    cut: frozenset[int]         # those of which rules say that none comes, as through `floor`: it stays None
    pullbacks: dict[tuple[int, ...], Pullback] = field(default_factory=dict)

    @cached_property
    def flows(self) -> list[bool]:
        """Whether a gradient can go to a parameter, for each."""
        return [k in self.taped for k in range(len(self.body.params))]

    @cached_property
    def given_back(self) -> frozenset[int]:
        """The parameters whose gradients there are."""
        return frozenset(self.wanted)

    def pullback(self, seeds: Sequence[Any]) -> Pullback:
        """What makes the gradients of parameters of those of the results that have one."""
        places = tuple([r for r, seed in enumerate(seeds) if seed is not None])
        found = self.pullbacks.get(places)
        if found is None:
            seeded = tuple(r for r in places if self.body.results[r].dtype.is_differentiable)
            whole = not any(r.dtype.is_differentiable for k, r in enumerate(self.body.results) if k not in seeded)
            graph = self.backward if whole else _backward_of(self.forward, self.body, seeded, self.wanted)
            given_back = tuple((n, k) for n, (k, reached) in enumerate(zip(self.wanted, self.reached, strict=True))
                               if k in self.taped - self.cut and not reached.isdisjoint(seeded))
            found = self.pullbacks[places] = Pullback(graph, whole, seeded, given_back)
        return found


@dataclass(frozen=True, eq=False)
class Pullback:
    """The gradients of parameters, from those of the results in `seeded`."""

    graph: Graph
    whole: bool                 # it takes what is kept; else the parameters, and the values that are kept
    seeded: tuple[int, ...]
    given_back: tuple[tuple[int, int], ...]     # (a result of the graph, the parameter whose gradient it is)

    @cached_property
    def program(self) -> Executable:
        """The compiled form."""
        return program_of(self.graph)

    def arguments(self, half: Half, kept: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any]) -> list[Any]:
        """What the graph is given."""
        known = kept if self.whole else [*inputs, *(x for k, x in zip(half.kept, kept, strict=True) if k < 0)]
        return [*known, *[seeds[r] for r in self.seeded]]


@dataclass(frozen=True, eq=False)
class Halves:
    """`forward` gives the results and values to keep; `parts` say what gradients results have, group by group."""

    forward: Graph
    parts: tuple[Half, ...]


@once_a_graph
def halves(graph: Graph, wanted: tuple[int, ...]) -> Halves | None:
    """The programs of a differentiable graph; None where it has effects, which belong to both or neither, or no
    gradient, which the backward ones say if they are ever called."""
    if any(map(has_effect, graph.nodes)):
        return None
    groups, without = independent_results(graph, wanted)
    if len(groups) == 1:
        found = _half(graph, groups[0], wanted, without, 0)
        return found and Halves(replace(found[1], name=graph.name, notes=graph.notes), (found[0],))
    parts: list[Half] = []
    forwards: list[Graph] = []
    for results in groups:
        body = part(graph, graph.name, graph.params, [graph.results[k] for k in results])
        before = sum(len(x.results) for x in forwards) - sum(len(x.results) for x in parts)
        reaching = tuple(k for k in wanted if any(use(graph, k, r) is not False for r in results))
        found = _half(replace(body, notes=graph.notes), results, reaching, without, before)
        if found is None:
            return None
        parts.append(found[0])
        forwards.append(found[1])
    return Halves(_side_by_side(graph, forwards, groups), tuple(parts))


def _half(graph: Graph, places: tuple[int, ...], wanted: tuple[int, ...], without: Collection[int],
          before: int) -> tuple[Half, Graph] | None:
    """The gradient of a graph, and what computes its results and the values to keep, of which `before` others have."""
    with unforked:
        from tenon.passes.find_attention import find_attention  # local: passes are loaded when something is compiled
    try:
        both = derivative_of(find_attention(graph))
    except GradientError:
        return None
    count = len(graph.params)
    results, gradients = both.results[:len(graph.results)], both.results[len(graph.results):]
    place = _gradient_places(graph)
    uses = [frozenset(r for r in range(len(graph.results)) if use(graph, k, r) is not False) for k in range(count)]
    parts = split(both, count, [gradients[place[k]] for k in wanted], results)
    forward, backward = parts.early, parts.late
    params = {p: k for k, p in enumerate(forward.params)}
    crossing = forward.results[len(results):]
    values = [x for x in crossing if x not in params]
    kept = tuple(params[x] if x in params else -1 - before - values.index(x) for x in crossing)
    missing = _sizes_from(backward, graph.params)
    extra = [Value(graph.params[k].type) for k in missing]
    backward = replace(backward, name=f"{graph.name}_gradient", params=(*extra, *backward.params), notes=graph.notes)
    forward = replace(forward, results=(*forward.results[:len(results)], *values))
    taped = frozenset(k for k, found in enumerate(uses) if any(places[r] not in without for r in found))
    cut = frozenset(k for k in wanted if _is_nothing(gradients[place[k]]))
    reached = tuple(uses[k] for k in wanted)
    return Half(places, graph, forward, backward, (*missing, *kept), wanted, reached, taped, cut), forward


def _is_nothing(gradient: Value) -> bool:
    """Whether a derivative has zeros in the place of a gradient that there is not."""
    if gradient.node is None or gradient.node.op is not full_op:
        return False
    filling = gradient.node.inputs[0]
    return isinstance(filling, Literal) and not filling.value


def _gradient_places(graph: Graph) -> dict[int, int]:
    """Which of the gradients of a derivative is that of a parameter."""
    return {k: n for n, k in enumerate(k for k, p in enumerate(graph.params) if p.dtype.is_differentiable)}


@once_a_graph
def _backward_of(forward: Graph, body: Graph, chosen: tuple[int, ...], wanted: tuple[int, ...]) -> Graph:
    """From the parameters, what `forward` keeps, and the gradients of some results of `body`, to those of parameters.

    Zeros as gradients of the other results would be NaN where these are infinitely steep.
    """
    with unforked:
        from tenon.passes.find_attention import find_attention
        from tenon.passes.merge_duplicates import merge_duplicates
    gradients = derivative_of(with_results(find_attention(body), chosen))
    builder = Builder(f"{body.name}_gradient", [Value(p.type, name=p.name) for p in gradients.params])
    count = len(forward.params)
    with using(builder):
        values = call_graph(forward, builder.params[:count])[len(body.results):]
        found = call_graph(gradients, builder.params)[len(chosen):]
    place = _gradient_places(body)
    both = merge_duplicates(builder.finish([*values, *(found[place[k]] for k in wanted)]))
    kept, results = both.results[:len(values)], both.results[len(values):]
    known = [*both.params[:count], *kept, *both.params[count:]]
    backward = part(both, both.name, known, results, needed(both, results, known=set(known)))
    return replace(backward, notes=body.notes)


def _side_by_side(graph: Graph, forwards: Sequence[Graph], groups: Sequence[tuple[int, ...]]) -> Graph:
    """One graph of several of the same parameters: the results in their places, then the values to keep."""
    builder = Builder(graph.name, rewriting=True)
    params = [builder.parameter(p.type, p.name) for p in graph.params]
    results: dict[int, Value] = {}
    kept: list[Value] = []
    for forward, places in zip(forwards, groups, strict=True):
        values: dict[Value, Any] = dict(zip(forward.params, params, strict=True))
        copy_nodes(forward.nodes, builder, values)
        results.update((k, values[x]) for k, x in zip(places, forward.results, strict=False))
        kept += [values[x] for x in forward.results[len(places):]]
    return replace(builder.finish([*(results[k] for k in range(len(graph.results))), *kept]), notes=graph.notes)


def _sizes_from(graph: Graph, params: Sequence[Value]) -> list[int]:
    """Which of `params` tell the symbolic sizes that those of the graph itself do not."""
    found: list[int] = []
    known = {told_by(dim) for p in graph.params for dim in p.shape}
    for name in graph.symbols():
        if name not in known:
            k = next(k for k, p in enumerate(params) if any(told_by(dim) == name for dim in p.shape))
            found.append(k)
            known.update(told_by(dim) for dim in params[k].shape)
    return found


def recorded_call(graph: Graph, parts: Halves, inputs: Sequence[Tensor],
                  by_data: Sequence[tuple[int, int]] = ()) -> Sequence[Tensor]:
    """The results of the graph, recorded as one call; `by_data`: inputs that get a gradient where a result says so."""
    arrays = [x.own.payload for x in inputs]
    return recorded(graph, parts, inputs, program_of(parts.forward).run(arrays), by_data)   # type: ignore[arg-type]


def recorded(graph: Graph, parts: Halves, inputs: Sequence[Tensor], out: Sequence[Any],
             by_data: Sequence[tuple[int, int]] = ()) -> Sequence[Tensor]:
    """The same, of what the forward program gave."""
    count = len(graph.results)
    if len(parts.parts) == 1 and not by_data:
        half = parts.parts[0]
        return _recorded(half, inputs, out[:count], out[count:], half.given_back)
    results, values = out[:count], out[count:]
    found: list[Any] = [None] * count
    for half in parts.parts:
        own = [results[k] for k in half.results]
        wanted = half.given_back
        if by_data:
            wanted = wanted.difference(k for k, result in by_data if not results[result])
        for k, tensor in zip(half.results, _recorded(half, inputs, own, values, wanted), strict=True):
            found[k] = tensor
    return found


def _recorded(half: Half, inputs: Sequence[Tensor], results: Sequence[Any], values: Sequence[Any],
              wanted: frozenset[int]) -> list[Tensor]:
    """Some results of a graph, recorded as a call that has these."""
    if not wanted:
        return list(map(fresh, results))
    kept = [inputs[k].own.payload if k >= 0 else values[-1 - k] for k in half.kept]
    attrs = {"body": half.body, "half": half, "kept": kept, "wanted": wanted}
    taped = [saved(x) if flows else x.detach() for x, flows in zip(inputs, half.flows, strict=True)]
    node = GraphNode(KEPT_CALL, tuple(taped), attrs, tuple(results))
    return [linked(array, node, k) for k, array in enumerate(results)]


class GraphNode(TapeNode):
    """A graph on the tape."""

    __slots__ = ()

    def pulled(self, seeds: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """(an input, its gradient) for all that want one, on arrays."""
        for g, y in zip(seeds, self.payloads, strict=True):
            if g is not None and g.dtype is not y.dtype:
                return None
        attrs, inputs = self.attrs, self.inputs
        half, wanted = attrs["half"], attrs["wanted"]
        pullback = half.pullback(seeds)
        arrays = [] if pullback.whole else [x.own.payload for x in inputs]
        out = pullback.program.run(pullback.arguments(half, attrs["kept"], arrays, seeds))
        return [(inputs[k], out[n]) for n, k in pullback.given_back if k in wanted]


def _gradients(g: Any, y: Any, *xs: Any, body: Graph, half: Half, kept: Sequence[np.ndarray],
               wanted: frozenset[int]) -> list[Any]:
    seeds = g if isinstance(g, tuple) else (g,)
    pullback = half.pullback(seeds)
    if is_grad_enabled():           # a gradient of the gradient may be wanted
        found: list[Any] = call.vjp(g, y, *xs, body=body)  # type: ignore[misc]
        rows = {k: found[k] for _, k in pullback.given_back}
    else:
        out = call(*pullback.arguments(half, [*map(fresh, kept)], xs, seeds), body=pullback.graph)
        listed = out if isinstance(out, tuple) else (out,)
        rows = {k: listed[n] for n, k in pullback.given_back}
    return [rows.get(k) if k in wanted else None for k in range(len(xs))]


@dataclass(frozen=True)
class _Rule:
    name: str
    vjp: Callable[..., Any]
    takes_none: bool = True     # for results that no gradient comes from


KEPT_CALL = _Rule("call", _gradients)
