"""Branches and loops on a batch.

A choice that all examples share stays a choice, a loop that all leave together stays a loop, on graphs that work on the
whole batch.  Where examples choose differently, every branch that some example takes runs on the whole batch, and each
example keeps its own; a loop runs until the last example is done.  Examples that do not take part in a branch, or in an
iteration, go through it on the values of one that does: so there is no nan where nobody computes one, no index out of
range where nobody has one, and a gradient of zero stays zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.nested_capture import Branch
from tenon.capture.trace import capturing
from tenon.dims.symbolic_dim import Dim
from tenon.eager.grad_mode import no_grad
from tenon.graph.build import Builder, call_graph
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Op, using
from tenon.ops.barrier import stop_gradient
from tenon.ops.batching import Arguments, as_tensor
from tenon.ops.branches import as_tuple, cond, recomputed, switch
from tenon.ops.comparison import equal, where
from tenon.ops.creation import zeros_like
from tenon.ops.custom import apply_graph, apply_graph_by, custom_call
from tenon.ops.graph_calls import one_or_all
from tenon.ops.indexing import take
from tenon.ops.loops import scan, while_gradient, while_loop
from tenon.ops.shape import broadcast_to, cast, permute, reshape_op
from tenon.types import TensorType, bool_, int64

Flags = tuple[bool, ...]


def batched_graph(graph: Graph, a: Arguments, flags: Sequence[bool],
                  wanted: Sequence[bool] | None = None) -> tuple[Graph, Flags]:
    """The graph on whole batches of the parameters with a flag, and which results are batches.

    The results are batches where `wanted`; by default where they differ between examples.
    """
    branch = Branch(graph.name)
    level = type(a.level)(branch, a.size, a.level.mesh_axis)
    with no_grad(), capturing(branch):
        given = [branch.parameter(whole(p.type, a.size) if flag else p.type, p.name)
                 for p, flag in zip(graph.params, flags, strict=True)]
        entered = [level.enter(x, 0) if flag else x for x, flag in zip(given, flags, strict=True)]
        results = apply_graph_by(graph, entered, level)
        differ = tuple(map(level.holds, results))
        wanted = differ if wanted is None else wanted
        values = [branch.value(level.leave(x, 0) if flag else x) for x, flag in zip(results, wanted, strict=True)]
    return branch.graph(branch.given, values), differ


def whole(type: TensorType, size: Dim) -> TensorType:
    """The type of a batch."""
    return type.with_shape((size, *type.shape))


def tensors(a: Arguments) -> list[Any]:
    """The inputs, numbers among them as tensors."""
    return [as_tensor(x) for x in a.inputs]


# ---------------------------------------------------------------- branches

def chosen(op: Op, a: Arguments, **attrs: Any) -> Any:
    """cond and switch."""
    branches = attrs["branches"] if "branches" in attrs else (attrs["false"], attrs["true"])
    everything = (True,) * len(branches[0].results)
    graphs = tuple(batched_graph(graph, a, a.batched[1:], everything)[0] for graph in branches)
    choice, *operands = tensors(a)
    if not a.batched[0]:
        named = {"branches": graphs} if "branches" in attrs else {"true": graphs[1], "false": graphs[0]}
        return op(choice, *operands, **named)
    index = cast(choice, dtype=int64)
    index = index.clip(0, len(branches) - 1)
    results: list[Any] = []
    for k, graph in enumerate(graphs):
        mask = equal(index, k)
        safe = [taking_part(x, mask) if flag else x for x, flag in zip(operands, a.batched[1:], strict=True)]
        found = as_tuple(cond(mask.any(), *safe, true=graph, false=nothing(graph)))
        results = [select(mask, new, old) for new, old in zip(found, results, strict=True)] if results else list(found)
    return one_or_all(results)


def taking_part(x: Any, mask: Any) -> Any:
    """A batch in which examples outside of the mask have the values of the first one within.

    No gradient goes back along such a copy: a weight of zero times an infinite slope would be nan.
    """
    if x.shape[0] == 0:
        return x
    first = mask.astype("int64").argmax(axis=0)
    return select(mask, x, stop_gradient(broadcast_to(take(x, first, axis=0), shape=x.shape)))


def select(mask: Any, x: Any, y: Any) -> Any:
    """x for the examples in the mask, else y."""
    return where(reshape_op(mask, shape=(*mask.shape, *(1,) * (x.ndim - 1))), x, y)


def nothing(graph: Graph) -> Graph:
    """The graph of the same type that returns zeros."""
    b = Builder("nothing", [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    with using(b):
        return b.finish([zeros_like(r) for r in graph.results])


def recomputed_batch(op: Op, a: Arguments, body: Graph) -> Any:
    """recomputed."""
    return op(*tensors(a), body=batched_graph(body, a, a.batched, (True,) * len(body.results))[0])


def custom_batch(op: Op, a: Arguments, body: Graph, forward: Graph, backward: Graph, given: Flags) -> Any:
    """custom_call: the batch of the function, with the batch of its rule."""
    def batch(graph: Graph) -> Graph:
        return batched_graph(graph, a, (True,) * len(graph.params), (True,) * len(graph.results))[0]
    return op(*a.all_whole(), body=batch(body), forward=batch(forward), backward=batch(backward), given=given)


# ---------------------------------------------------------------- loops

def settled(flags: Flags, results: Callable[[Flags], Flags]) -> Flags:
    """Which carried values differ between examples in some iteration, given which do before the loop."""
    while True:
        after = tuple(x or y for x, y in zip(flags, results(flags), strict=True))
        if after == flags:
            return flags
        flags = after


def spread_out(x: Any, size: Dim) -> Any:
    """A value that all examples share, once for each."""
    return broadcast_to(x, shape=(size, *x.shape))


def scanned(op: Op, a: Arguments, constants: int, carried: int, length: Dim, body: Graph, reverse: bool) -> Any:
    """A scan over slices that are batches."""
    count = constants + carried
    fixed, slices = a.batched[:constants], a.batched[count:]
    flags = settled(a.batched[constants:count],
                    lambda flags: batched_graph(body, a, (*fixed, *flags, *slices))[1][:carried])
    everything = (*flags, *(True,) * (len(body.results) - carried))
    graph, _ = batched_graph(body, a, (*fixed, *flags, *slices), everything)
    inputs = tensors(a)
    state = [spread_out(x, a.size) if flag and not had else x
             for x, flag, had in zip(inputs[constants:count], flags, a.batched[constants:count], strict=True)]
    sequences = [permute(x, axes=(1, 0, *range(2, x.ndim))) if flag else x
                 for x, flag in zip(inputs[count:], slices, strict=True)]
    out = as_tuple(op(*inputs[:constants], *state, *sequences, constants=constants, carried=carried, length=length,
                    body=graph, reverse=reverse))
    last = [x if flag else spread_out(x, a.size) for x, flag in zip(out[:carried], flags, strict=True)]
    return one_or_all([*last, *(permute(x, axes=(1, 0, *range(2, x.ndim))) for x in out[carried:])])


def looped(op: Op, a: Arguments, constants: int, condition: Graph, body: Graph) -> Any:
    """A while_loop: of batches where all examples leave it together, else until the last one leaves."""
    fixed = a.batched[:constants]
    flags = settled(a.batched[constants:], lambda flags: batched_graph(body, a, (*fixed, *flags))[1])
    graph, (differs,) = batched_graph(condition, a, (*fixed, *flags))
    if differs:
        return until_all_are_done(op, a, constants, condition, body)
    turn, _ = batched_graph(body, a, (*fixed, *flags), flags)
    inputs = tensors(a)
    state = [spread_out(x, a.size) if flag and not had else x
             for x, flag, had in zip(inputs[constants:], flags, a.batched[constants:], strict=True)]
    out = as_tuple(op(*inputs[:constants], *state, constants=constants, condition=graph, body=turn))
    return one_or_all([x if flag else spread_out(x, a.size) for x, flag in zip(out, flags, strict=True)])


def gradient_of_loop(op: Op, a: Arguments, constants: int, condition: Graph, body: Graph) -> Any:
    """Every example gets a gradient of its own, of what it shares with others too."""
    return until_all_are_done(op, a, constants, condition, body)


def until_all_are_done(op: Op, a: Arguments, constants: int, condition: Graph, body: Graph) -> Any:
    """The loop, or its gradient, that carries first which examples are still at it."""
    everything = (True,) * len(body.params)
    test, _ = batched_graph(condition, a, everything, (True,))
    turn, _ = batched_graph(body, a, everything, (True,) * len(body.results))
    inputs = a.all_whole()
    active = apply_graph(test, inputs[:len(body.params)])[0]
    out = as_tuple(op(*inputs[:constants], active, *inputs[constants:], constants=constants,
                    condition=with_active(turn, constants, a.size, lambda active, params: [active.any()]),
                    body=masked(test, turn, constants, a.size)))
    return one_or_all(out[1:] if op is while_loop else out)


def masked(test: Graph, turn: Graph, constants: int, size: Dim) -> Graph:
    """The body for the examples that are still in the loop; the others stay as they are."""
    def body(active: Any, params: list[Any]) -> list[Any]:
        safe = [taking_part(x, active) for x in params]
        new = [select(active, y, x) for y, x in zip(call_graph(turn, safe), params[constants:], strict=True)]
        return [active & call_graph(test, [*params[:constants], *new])[0], *new]
    return with_active(turn, constants, size, body)


def with_active(turn: Graph, constants: int, size: Dim, results: Callable[[Any, list[Any]], list[Any]]) -> Graph:
    """A graph on the parameters of `turn`, and on which examples are in the loop, carried first."""
    b = Builder(turn.name, rewriting=True)
    params = [b.parameter(p.type, p.name) for p in turn.params[:constants]]
    active = b.parameter(TensorType(bool_, (size,)), "active")
    params += [b.parameter(p.type, p.name) for p in turn.params[constants:]]
    with using(b):
        return b.finish(results(active, params))


CONTROL: dict[Op, Callable[..., Any]] = {
    cond: chosen, switch: chosen, recomputed: recomputed_batch, custom_call: custom_batch, scan: scanned,
    while_loop: looped, while_gradient: gradient_of_loop}
