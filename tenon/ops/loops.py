"""Loops as operators that hold graphs: scan and while_loop.

    scan(*constants, *carried, *sequences, constants=k, carried=n, length=, body=Graph, reverse=False)
                                                                                        -> *carried, *stacked
    while_loop(*constants, *carried, constants=k, condition=Graph, body=Graph)          -> *carried

The body of a scan takes the constants, what is carried, and a slice of each sequence along its first axis; it returns
what is carried and a slice of each stacked result.  Condition and body of a while_loop take the constants and what is
carried.  Types of carried values never change.

Both gradients are loops over what the pullback of the body needs of the forward run.  That of a scan is a scan in the
other direction, over stacked values.  That of a while_loop is the operator `while_gradient`: its definition runs the
loop again with a stack among what is carried (tenon.ops.gradient_stacks), and a second loop that takes from the stack
until it is empty; a later pass makes one loop of the first and the loop that is differentiated.  What depends on
constants only is neither stacked nor pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim
from tenon.errors import GraphError
from tenon.graph.build import expansion
from tenon.graph.interpret import concrete_type, current_sizes, interpret_within
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Op
from tenon.graph.partition import with_results
from tenon.ops.branches import as_tuple, seeds_of, spread
from tenon.ops.creation import zeros_like
from tenon.ops.custom import apply_graph
from tenon.ops.define import define
from tenon.ops.gradient_stacks import empty_stack
from tenon.ops.graph_calls import check_returns, check_takes, one_or_all, result_types, shown
from tenon.ops.loop_gradients import beside_stack, loop_parts, pushing, reversed_body, until_empty, with_tangents
from tenon.types import TensorType, bool_

Types = Any    # one type, or a tuple of them


# ---------------------------------------------------------------- along the first axis

def _scan_type(*inputs: TensorType, constants: int, carried: int, length: Dim, body: Graph,
               reverse: bool = False) -> Types:
    if not (constants >= 0 and carried >= 0 and constants + carried <= len(inputs) and carried <= len(body.results)):
        raise GraphError(f"scan: {constants} constants and {carried} carried values of {len(inputs)} inputs")
    if isinstance(length, int) and length < 0:
        raise GraphError(f"scan: the length is {length}")
    fixed, sequences = inputs[:constants + carried], inputs[constants + carried:]
    for k, sequence in enumerate(sequences):
        if not sequence.shape or sequence.shape[0] != length:
            raise GraphError(f"scan: sequence {k} is {sequence}, and the scan has length {length}")
    check_takes("scan", "the body", body, (*fixed, *(x.with_shape(x.shape[1:]) for x in sequences)))
    kept = result_types(body)[:carried]
    if kept != fixed[constants:]:
        raise GraphError(f"scan: the body returns ({shown(kept)}) for the carried ({shown(fixed[constants:])})")
    return one_or_all((*kept, *(x.with_shape((length, *x.shape)) for x in result_types(body)[carried:])))


def _scan_ref(*inputs: Any, constants: int, carried: int, length: int, body: Graph, reverse: bool = False) -> Any:
    fixed, state, sequences = inputs[:constants], inputs[constants:constants + carried], inputs[constants + carried:]
    rows: list[Sequence[Any]] = []
    for k in reversed(range(length)) if reverse else range(length):
        results = interpret_within(body, [*fixed, *state, *(np.asarray(x[k]) for x in sequences)])
        state = tuple(results[:carried])
        rows.append(results[carried:])
    rows = rows[::-1] if reverse else rows
    return one_or_all((*state, *(_stacked(r, [row[k] for row in rows]) for k, r in enumerate(body.results[carried:]))))


def _stacked(result: Value, rows: list[Any]) -> Any:
    if rows:
        return np.stack(rows)
    return np.zeros((0, *concrete_type(result.type, current_sizes()).shape), result.dtype.numpy)


def _scan_vjp(g: Any, y: Any, *inputs: Any, constants: int, carried: int, length: Dim, body: Graph,
              reverse: bool = False) -> list[Any]:
    """A scan in the other direction.  It carries the gradients of what was carried and the sums of those of the
    constants, and stacks those of the sequences."""
    ends = [(k, seed, x) for k, (seed, x) in enumerate(zip(as_tuple(g), as_tuple(y), strict=True))
            if k < carried or seed is not None]
    seeds = [zeros_like(x) if seed is None else seed for _, seed, x in ends if x.dtype.is_differentiable]
    body = with_results(body, tuple(k for k, _, _ in ends))
    parts = loop_parts(body, constants, carried)
    fixed, sequences = inputs[:constants], inputs[constants + carried:]
    stacks: Sequence[Any] = ()
    if parts.stacked:
        run = as_tuple(scan(*inputs, constants=constants, carried=carried, length=length, body=parts.forward,
                          reverse=reverse))
        stacks = run[len(body.results):]
    known = (*(fixed[k] for k in parts.fixed), *apply_graph(parts.invariant, fixed))
    first = sum(r.dtype.is_differentiable for r in body.results[:carried])
    sums = [zeros_like(x) for x in fixed if x.dtype.is_differentiable]
    if not seeds or not any(x.dtype.is_differentiable for x in inputs):
        return [None] * len(inputs)
    out = as_tuple(scan(*known, *seeds[:first], *sums, *stacks, *(sequences[k] for k in parts.sequences),
                        *seeds[first:], constants=len(known), carried=first + len(sums), length=length,
                        body=reversed_body(body, constants, carried), reverse=not reverse))
    states, totals, slices = out[:first], out[first:first + len(sums)], out[first + len(sums):]
    return spread((*totals, *states, *slices), inputs)


scan: Op = define(
    "scan", public=False, type=_scan_type, ref=_scan_ref, vjp=_scan_vjp, takes_none=True,
    doc="`body` run once for each index along the first axis of the sequences (from the last where `reverse`); what it "
        "carries comes first in the results, what it returns beside is stacked.")


# ---------------------------------------------------------------- until a condition fails

def _while_type(*inputs: TensorType, constants: int, condition: Graph, body: Graph) -> Types:
    if not 0 <= constants <= len(inputs):
        raise GraphError(f"while_loop: {constants} constants of {len(inputs)} inputs")
    carried = tuple(inputs[constants:])
    check_takes("while_loop", "the condition", condition, inputs)
    check_takes("while_loop", "the body", body, inputs)
    check_returns("while_loop", "the condition", condition, (TensorType(bool_, ()),))
    check_returns("while_loop", "the body", body, carried)
    return one_or_all(carried)


def _while_ref(*inputs: Any, constants: int, condition: Graph, body: Graph) -> Any:
    fixed, carried = list(inputs[:constants]), list(inputs[constants:])
    while interpret_within(condition, [*fixed, *carried])[0]:
        carried = interpret_within(body, [*fixed, *carried])
    return one_or_all(carried)


def _while_vjp(g: Any, y: Any, *inputs: Any, constants: int, condition: Graph, body: Graph) -> list[Any]:
    seeds = seeds_of(g, body)
    if not seeds:
        return [None] * len(inputs)
    return spread(while_gradient(*inputs, *seeds, constants=constants, condition=condition, body=body), inputs)


while_loop: Op = define(
    "while_loop", public=False, type=_while_type, ref=_while_ref, vjp=_while_vjp,
    doc="The carried values after `body` has run as long as `condition` holds.")


# ---------------------------------------------------------------- the gradient of a while_loop

def _gradient_type(*inputs: TensorType, constants: int, condition: Graph, body: Graph) -> Types:
    of_loop = inputs[:len(body.params)]
    carried = as_tuple(_while_type(*of_loop, constants=constants, condition=condition, body=body))
    seeds = tuple(x for x in carried if x.dtype.is_differentiable)
    if inputs[len(body.params):] != seeds:
        raise GraphError(f"while_gradient: the gradients are ({shown(inputs[len(body.params):])}), they must be "
                         f"({shown(seeds)})")
    return one_or_all([x for x in of_loop if x.dtype.is_differentiable])


def _gradient(*inputs: Any, constants: int, condition: Graph, body: Graph) -> Any:
    """The loop with a stack, and the loop that takes from it."""
    parts = loop_parts(body, constants, len(body.results))
    fixed, seeds = inputs[:constants], inputs[len(body.params):]
    *_, stack = as_tuple(while_loop(*inputs[:len(body.params)], empty_stack(), constants=constants,
                                  condition=beside_stack(condition), body=pushing(body, constants)))
    known = (*(fixed[k] for k in parts.fixed), *apply_graph(parts.invariant, fixed))
    sums = [zeros_like(x) for x in fixed if x.dtype.is_differentiable]
    back = reversed_body(body, constants, len(body.results), from_stack=True)
    _, *found = as_tuple(while_loop(*known, stack, *seeds, *sums, constants=len(known),
                                  condition=until_empty(back, len(known)), body=back))
    return one_or_all((*found[len(seeds):], *found[:len(seeds)]))


def _gradient_vjp(g: Any, y: Any, *inputs: Any, constants: int, condition: Graph, body: Graph) -> list[Any]:
    """With respect to the seeds, in which a gradient is linear, the transpose: the loop with tangents.  With respect to
    the rest, the gradient of that loop, since <seed, tangent of the result> = <gradient, tangent of the input>."""
    count, seeds = len(body.params), inputs[len(body.params):]
    tangents = as_tuple(g)
    fixed = sum(p.dtype.is_differentiable for p in body.params[:constants])
    widened = (*inputs[:constants], *tangents[:fixed], *inputs[constants:count], *tangents[fixed:])
    attrs: dict[str, Any] = {"constants": constants + fixed, "condition": with_tangents(condition, constants, False),
                             "body": with_tangents(body, constants, True)}

    @cache
    def pushed() -> Sequence[Any]:
        return as_tuple(while_loop(*widened, **attrs))[len(body.results):]

    @cache
    def pulled() -> Sequence[Any]:
        found = as_tuple(while_gradient(*widened, *map(zeros_like, seeds), *seeds, **attrs))
        listed = spread(found, widened)
        return [*listed[:constants], *listed[constants + fixed:count + fixed]]
    return [*(partial(_item, pulled, k) if p.dtype.is_differentiable else None for k, p in enumerate(body.params)),
            *(partial(_item, pushed, k) for k in range(len(seeds)))]


def _item(compute: Callable[[], Sequence[Any]], k: int) -> Any:
    return compute()[k]


def _gradient_ref(*inputs: Any, constants: int, condition: Graph, body: Graph) -> Any:
    """What the loops of its definition give; their types are the body's, which may hold symbolic sizes."""
    seeds = (x.type for x in body.results if x.dtype.is_differentiable)
    loops = expansion(while_gradient, (*(p.type for p in body.params), *seeds),
                      {"constants": constants, "condition": condition, "body": body})
    return one_or_all(interpret_within(loops, inputs))


while_gradient: Op = define(
    "while_gradient", public=False, type=_gradient_type, ref=_gradient_ref, expand=_gradient, vjp=_gradient_vjp,
    doc="The gradients of the differentiable constants and carried values of a while_loop, from those of its "
        "differentiable results, which come last among the inputs.")
