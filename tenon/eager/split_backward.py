"""A graph of operators -> two recipes: one computes its results and keeps what gradients need, one makes those.

    derived = derive(graph, wanted=[True, False], ends=[True])
    result, *kept = derived.forward.run(arrays)

What an eager call of a composite or of a public function is on the tape where it is one node, and not one an operator:
the rules of its operators are those of the tape, called once, when it is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.autodiff import backward, open_composites, reached
from tenon.eager.recipes import Recipe, recipe_of
from tenon.errors import OF_NUMPY, TenonError
from tenon.graph.build import Builder, copy, inline
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import part
from tenon.ops.shape import broadcast_to
from tenon.records import dataclass


@dataclass(frozen=True, eq=False)
class Derived:
    """Both recipes, and which inputs get a gradient."""

    forward: Recipe             # inputs -> results and what is kept
    late: Recipe                # gradients of the ends, results, inputs and what was kept -> gradients of `inputs`
    inputs: tuple[int, ...]

    def pulled(self, seeds: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any],
               kept: Sequence[Any]) -> Sequence[Any] | None:
        """The gradients of `inputs`, given those of the ends of a call; None where the rules have to say what is wrong.
        NumPy must not warn meanwhile."""
        try:
            out = self.late.function(*seeds, *outputs, *inputs, *kept)
        except (TenonError, *OF_NUMPY):
            return None
        return out if self.late.several else (out,)


def derive(graph: Graph, wanted: Sequence[bool], ends: Sequence[bool]) -> Derived | None:
    """The recipes for gradients of the parameters that are `wanted`, from those of `ends`.

    `ends` has a flag for each result that is no parameter.

    None where some operator has no recipe.  Raises GradientError where one has no gradient.
    """
    graph = open_composites(graph)
    if any(node.op.vjp is not None and not node.op.differentiates_itself for node in graph.nodes):
        return None                     # users' rules are called as often as gradients are asked for
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    values: dict[Any, Any] = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        inline(graph, builder, values, copy)
        params, early, results = tuple(builder.params), tuple(builder.nodes), [values[r] for r in graph.results]
        inner = reached(early, [p for p, flag in zip(params, wanted, strict=True) if flag])
        new = [r for r in results if r not in params]
        seeds = {r: Value(r.type) for r, flag in zip(new, ends, strict=True) if flag}
        gradients = backward(early, dict(seeds), lambda x: isinstance(x, Value) and x in inner)
    inputs = tuple(k for k, p in enumerate(params) if wanted[k] and p in gradients)
    found = [gradients[params[k]] for k in inputs]
    if not all(isinstance(g, Value) for g in found):
        return None
    late = _late(builder.nodes, set(early), found)
    made = {x for node in early if node not in late for x in node.outputs}
    kept = _read(late, found) & made - set(results)
    ordered = [x for node in early for x in node.outputs if x in kept]
    whole = Graph(graph.name, (*params, *seeds.values()), tuple(builder.nodes), (*results, *found))
    first = recipe_of(part(whole, graph.name, params, [*results, *ordered]))
    second = recipe_of(part(whole, graph.name, [*seeds.values(), *new, *params, *ordered], found, late))
    return None if first is None or second is None else Derived(first, second, inputs)


def _late(nodes: Sequence[Node], early: set[Node], results: Sequence[Value]) -> set[Node]:
    """The nodes that are run for the gradients: the rules', and what is cheaper to compute again than to keep."""
    found: set[Node] = set()
    read = set(results)
    for node in reversed(nodes):
        again = node not in early or node.op is broadcast_to or not node.inputs
        if again and not read.isdisjoint(node.outputs):
            found.add(node)
            read.update(node.uses())
    return found


def _read(nodes: set[Node], results: Sequence[Value]) -> set[Value]:
    """What these nodes and results read."""
    return {x for node in nodes for x in node.uses()} | set(results)
