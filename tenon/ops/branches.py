"""Branches as operators that hold graphs: cond and switch; and `recomputed`, one graph for memory's sake.

    cond(pred, *operands, true=Graph, false=Graph)          one of two graphs, on the same operands
    switch(index, *operands, branches=(Graph, ...))         one of several; the index is clamped

Graphs close over nothing: what a branch reads from outside is among the operands.  All branches take the types of the
operands and return the same types.  `tenon.ops.loops` has the loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.errors import GraphError
from tenon.graph.interpret import interpret_within
from tenon.graph.ir import Graph
from tenon.graph.op import Op
from tenon.graph.partition import pullback_of, with_results
from tenon.ops.barrier import barrier
from tenon.ops.custom import apply_graph
from tenon.ops.define import define
from tenon.ops.graph_calls import check_returns, check_takes, one_or_all, result_types
from tenon.types import TensorType, bool_

Types = Any    # one type, or a tuple of them


def as_tuple(out: Any) -> tuple[Any, ...]:
    """The outputs of a call, one or several."""
    return out if isinstance(out, tuple) else (out,)


def seeds_of(g: Any, graph: Graph) -> list[Any]:
    """The gradients of a graph's differentiable results, among those of all its results."""
    return [seed for seed, r in zip(as_tuple(g), graph.results, strict=False) if r.dtype.is_differentiable]


def pullbacks(g: Any, *graphs: Graph) -> tuple[list[Any], tuple[Graph, ...]]:
    """(the gradients that there are, the pullbacks that take them), of graphs whose results are alike: zeros for the
    others, times an infinite derivative, would be NaN."""
    found = {k: seed for k, (seed, r) in enumerate(zip(as_tuple(g), graphs[0].results, strict=True))
             if seed is not None and r.dtype.is_differentiable}
    return list(found.values()), tuple(pullback_of(with_results(graph, tuple(found))) for graph in graphs)


def spread(found: Any, inputs: Sequence[Any]) -> list[Any]:
    """One gradient an input, from those of the differentiable ones."""
    given = iter(as_tuple(found))
    return [next(given) if x.dtype.is_differentiable else None for x in inputs]


# ---------------------------------------------------------------- types

def _cond_type(pred: TensorType, *operands: TensorType, true: Graph, false: Graph) -> Types:
    if pred != TensorType(bool_, ()):
        raise GraphError(f"cond: the condition is {pred}, it must be one bool")
    return _branch_types("cond", operands, {"true": true, "false": false})


def _switch_type(index: TensorType, *operands: TensorType, branches: tuple[Graph, ...]) -> Types:
    if index.dtype.kind not in "iu" or index.shape:
        raise GraphError(f"switch: the index is {index}, it must be one integer")
    if not branches:
        raise GraphError("switch: there are no branches")
    return _branch_types("switch", operands, {f"branch {k}": graph for k, graph in enumerate(branches)})


def _branch_types(name: str, operands: Sequence[TensorType], branches: Mapping[str, Graph]) -> Types:
    first = next(iter(branches))
    types = result_types(branches[first])
    for what, graph in branches.items():
        check_takes(name, what, graph, operands)
        check_returns(name, what, graph, types)
    return one_or_all(types)


# ---------------------------------------------------------------- values and gradients

def _cond_ref(pred: Any, *operands: Any, true: Graph, false: Graph) -> Any:
    return one_or_all(interpret_within(true if pred else false, operands))


def _switch_ref(index: Any, *operands: Any, branches: tuple[Graph, ...]) -> Any:
    return one_or_all(interpret_within(branches[int(np.clip(index, 0, len(branches) - 1))], operands))


def _cond_vjp(g: Any, y: Any, pred: Any, *operands: Any, true: Graph, false: Graph) -> list[Any]:
    seeds, (yes, no) = pullbacks(g, true, false)
    return _branch_gradients(cond, pred, operands, seeds, true=yes, false=no)


def _switch_vjp(g: Any, y: Any, index: Any, *operands: Any, branches: tuple[Graph, ...]) -> list[Any]:
    seeds, found = pullbacks(g, *branches)
    return _branch_gradients(switch, index, operands, seeds, branches=found)


def _branch_gradients(op: Op, choice: Any, operands: Sequence[Any], seeds: Sequence[Any], **attrs: Any) -> list[Any]:
    """The same choice among the pullbacks.  A branch that was not taken takes no part, so that it gives no nan."""
    if not any(x.dtype.is_differentiable for x in operands):
        return [None] * (1 + len(operands))
    return [None, *spread(op(choice, *operands, *seeds, **attrs), operands)]


cond: Op = define(
    "cond", public=False, type=_cond_type, ref=_cond_ref, vjp=_cond_vjp, takes_none=True,
    doc="The results of the graph `true` on the operands where the condition holds, else those of `false`; only that "
        "graph runs.  The gradient is the cond of the two pullbacks.")

switch: Op = define(
    "switch", public=False, type=_switch_type, ref=_switch_ref, vjp=_switch_vjp, takes_none=True,
    doc="The results of `branches[index]` on the operands; an index before the first or behind the last is moved "
        "there.  The gradient is the switch of the pullbacks.")


# ---------------------------------------------------------------- computed again for the gradient

def _recomputed_type(*operands: TensorType, body: Graph) -> Types:
    check_takes("recomputed", "the body", body, operands)
    return one_or_all(result_types(body))


def _recomputed_vjp(g: Any, y: Any, *operands: Any, body: Graph) -> list[Any]:
    """The barrier makes the body's values depend on the gradients, so that none of them is kept for it."""
    seeds, (pullback,) = pullbacks(g, body)
    walled = as_tuple(barrier(*operands, *seeds))
    return spread(apply_graph(pullback, walled), operands)


recomputed: Op = define(
    "recomputed", public=False, type=_recomputed_type,
    ref=lambda *operands, body: one_or_all(interpret_within(body, operands)),
    expand=lambda *operands, body: one_or_all(apply_graph(body, operands)), vjp=_recomputed_vjp, takes_none=True,
    doc="The results of a graph.  The gradient computes the graph again instead of keeping values of it: what "
        "`tn.checkpoint` leaves in a program.")
