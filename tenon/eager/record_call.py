"""An operator or a public function, called with these arguments -> what is remembered of such calls: a recipe of NumPy
calls, and, where the call is differentiable, the rule of its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any

from tenon.eager.cached_call_node import CachedRule
from tenon.eager.recipes import Recipe, recipe_of
from tenon.eager.split_backward import derive
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Full, Op, using
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.types import TensorType, as_dtype


@dataclass(frozen=True, eq=False)
class Remembered:
    """A call: the recipe, and what is made of its results."""

    recipe: Recipe
    function: Callable[..., Any] | None         # the recipe's, where it may run quietly
    several: bool                       # results of the recipe
    given: tuple[int | None, ...]       # the tensor that a result is, where it is one of those given
    kind: type | None                   # of the sequence of results; None for one tensor
    simple: bool                        # one tensor, a new one; with a gradient, where there is a rule
    rule: CachedRule | None                   # what the tape holds


def remember(target: Any, full: Full, args: tuple[Any, ...], keywords: Mapping[str, Any], tensors: list[Tensor],
             result: Any) -> Remembered | None:
    """The call as a recipe; None where recording it shows anything but operators on these tensors."""
    kind = type(result) if type(result) in (tuple, list) else None
    expected = list(result) if kind else [result]
    if not all(type(x) is Tensor or any(x is y for y in tensors) for x in expected):
        return None
    named = tuple(keywords.items())
    graph = _graph(target, full, args, named, tensors, expected)
    if graph is None:
        return None
    places = {p: k for k, p in enumerate(graph.params)}
    given = tuple(places.get(r) for r in graph.results)
    ends = tuple(x.requires_grad for x, k in zip(expected, given, strict=True) if k is None)
    if not any(ends):
        recipe = recipe_of(graph)
        return None if recipe is None else _made(recipe, given, kind)
    try:
        derived = derive(graph, [x.requires_grad for x in tensors], ends)
    except Exception:           # a rule needs elements, or there is none
        return None
    if derived is None:
        return None
    blank = with_tensors(args, repeat(PLACE)), with_tensors(named, repeat(PLACE))

    def again(others: list[Tensor]) -> Any:
        rest = iter(others)
        return full(with_tensors(blank[0], rest), dict(with_tensors(blank[1], rest)))
    op, inputs, attrs = _one_operator(graph)
    wanted = tuple(k if op is None else inputs.index(k) for k in derived.inputs)
    rule = CachedRule(graph.name, derived, derived.late.function, op, inputs, attrs, wanted, ends, again)
    return _made(derived.forward, given, kind, rule)


def _made(recipe: Recipe, given: tuple[int | None, ...], kind: type | None,
          rule: CachedRule | None = None) -> Remembered:
    simple = kind is None and given == (None,)
    return Remembered(recipe, None if recipe.programs else recipe.function, recipe.several, given, kind, simple, rule)


def _graph(target: Any, full: Full, args: tuple[Any, ...], named: tuple[Any, ...], tensors: list[Tensor],
           expected: list[Tensor]) -> Graph | None:
    """The operators of a call whose results were these."""
    builder = Builder(target.__name__, rewriting=True)
    params = [builder.parameter(TensorType(as_dtype(x.dtype), x.shape)) for x in tensors]
    rest = iter(params)
    try:
        with using(builder):
            out = full(with_tensors(args, rest), dict(with_tensors(named, rest)))
    except Exception:           # it needs elements, or a state
        return None
    values = list(out) if type(out) in (tuple, list) else [out]
    if len(values) != len(expected):
        return None
    for value, tensor in zip(values, expected, strict=True):
        if not isinstance(value, Value) or value.type != tensor.type:
            return None
    return builder.finish(values)


def _one_operator(graph: Graph) -> tuple[Op | None, tuple[Any, ...], Mapping[str, Any]]:
    """The operator of which the graph is one call, where its inputs stand, and its attributes."""
    if len(graph.nodes) == 1 and graph.results == graph.nodes[0].outputs and graph.nodes[0].op.vjp is not None:
        node = graph.nodes[0]
        return node.op, tuple(graph.params.index(x) if isinstance(x, Value) else x for x in node.inputs), node.attrs
    return None, (), {}


PLACE = object()        # where a tensor stands in the arguments of a call


def with_tensors(x: Any, values: Iterator[Any]) -> Any:
    """The argument with one value after the other in the place of its tensors."""
    if isinstance(x, Tensor) or x is PLACE:
        return next(values)
    if type(x) in (tuple, list):
        return type(x)(with_tensors(part, values) for part in x)
    return slice(*(with_tensors(end, values) for end in (x.start, x.stop, x.step))) if type(x) is slice else x
