"""PyTorch's operators that hold graphs, `cond`, `while_loop` and `scan` -> Tenon's control flow.

The graphs of both close over nothing.  What they read beside what they carry comes last in PyTorch's parameters, and
first in Tenon's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tenon as tn
from tenon.graph.ir import Graph
from tenon.ops import branches, loops
from tenon.records import replace
from tenon.torch.aten_call import UnmappedOperator, is_value

GraphOf = Callable[[Any, Sequence[Any]], Graph]     # of a module, and which of its parameters are numbers, not tensors


def _cond(graph_of: GraphOf, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()) -> Any:
    if not is_value(pred):
        raise UnmappedOperator("a condition that is a number")
    return branches.cond(tn.reshape(pred, ()), *filter(is_value, operands), true=graph_of(true, operands),
                         false=graph_of(false, operands))


def _while_loop(graph_of: GraphOf, condition: Any, body: Any, carried: Sequence[Any],
                further: Sequence[Any] = ()) -> Any:
    _only_tensors(carried)
    fixed = list(filter(is_value, further))
    graphs = [_fixed_first(graph_of(x, [*carried, *further]), len(fixed)) for x in (condition, body)]
    return loops.while_loop(*fixed, *carried, constants=len(fixed), condition=graphs[0], body=graphs[1])


def _scan(graph_of: GraphOf, combine: Any, carried: Sequence[Any], sequences: Sequence[Any],
          further: Sequence[Any] = ()) -> Any:
    _only_tensors([*carried, *sequences])
    if not sequences:
        raise UnmappedOperator("a scan of nothing")
    fixed, length = list(filter(is_value, further)), sequences[0].shape[0]
    body = _fixed_first(graph_of(combine, [*carried, *sequences, *further]), len(fixed))
    return loops.scan(*fixed, *carried, *sequences, constants=len(fixed), carried=len(carried), length=length,
                      body=body)


def _only_tensors(carried: Sequence[Any]) -> None:
    if not all(map(is_value, carried)):
        raise UnmappedOperator("it carries a number")


def _fixed_first(graph: Graph, fixed: int) -> Graph:
    """The same graph with its last parameters in front."""
    first = len(graph.params) - fixed
    return replace(graph, params=(*graph.params[first:], *graph.params[:first]))


HIGHER_ORDER: dict[str, Callable[..., Any]] = {"cond": _cond, "while_loop": _while_loop, "scan": _scan}
