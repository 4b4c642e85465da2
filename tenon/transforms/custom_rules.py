"""A function with a gradient of its own, on flat lists of tensors: what `tn.custom_vjp` is made of.

On the tape it is one node.  In a captured program it is one operator that holds three graphs, so that the program can
be differentiated from outside; in a batch it is the batch of the function, with the batch of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.subgraph import InnerBuilder, subgraph
from tenon.capture.trace import Capture
from tenon.eager.grad_mode import is_grad_enabled, no_grad
from tenon.eager.tape import TapeNode, carries, linked, saved
from tenon.graph.ir import Graph, Value
from tenon.graph.op import interpreter, using
from tenon.ops.custom import custom_call
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.transforms.vmap_interpreter import Batched, Batching

Tensors = list[Tensor]


TENSOR = object()       # marks the place of a tensor among other things
MAX_DEPTH = 3           # of a rule within its own graphs, which end: derivatives beyond are those of the function


@dataclass(frozen=True)
class CustomRule:
    """A function, the same with what its gradient needs beside the results, and the gradient."""

    primal: Callable[[Tensors], Tensors]
    forward: Callable[[Tensors], tuple[Tensors, list[Any]]]
    backward: Callable[[list[Any], list[Tensor | None]], list[Tensor | None]]
    name: str
    depth: int = 0      # in how many runs of its own forward: there, forward waits until a gradient is asked for


def apply_rule(rule: CustomRule, inputs: Tensors) -> Tensors:
    """The results, recorded as one call with this rule where a gradient may be wanted."""
    level = interpreter()
    while isinstance(level, Batching) and not any(map(level.holds, inputs)):
        level = level.outer             # the same for all examples: a call like any other
    outputs = None
    with using(level):
        if isinstance(level, Batching) and any(map(carries_outside, inputs)):
            outputs = in_batch(rule, inputs, level)
        if isinstance(level, Capture) and isinstance(level.builder, InnerBuilder):
            return in_capture(rule, inputs, level) if rule.depth < MAX_DEPTH else rule.primal(inputs)
        if not is_grad_enabled() or not any(x.requires_grad for x in inputs):
            return rule.primal(inputs) if outputs is None else outputs
        if isinstance(level, Capture):
            outputs = in_capture(rule, inputs, level)
        return on_tape(rule, inputs, outputs)


def carries_outside(x: Tensor) -> bool:
    """Whether a gradient may be wanted outside the batch."""
    return carries(x.payload.inner if isinstance(x.payload, Batched) else x)


# ---------------------------------------------------------------- on the tape

def on_tape(rule: CustomRule, inputs: Tensors, outputs: Tensors | None) -> Tensors:
    """One node for the call.  What is kept for the gradient stays linked to the inputs, for higher derivatives."""
    if rule.depth:
        with no_grad():
            results = rule.primal(inputs)
        known = None
    else:
        results, kept = rule.forward(inputs)
        known = KeptForward(results, kept)
    node = TapeNode(RuleOnTape(rule, known), tuple(map(saved, inputs)), {},
                    tuple(x.payload for x in (results if outputs is None else outputs)))
    return [linked(payload, node, k) for k, payload in enumerate(node.payloads)]


class KeptForward:
    """What forward kept.  A result among it is linked to the call's node, not to what it is made of."""

    def __init__(self, results: Tensors, kept: Sequence[Any]):
        position = {id(x): k for k, x in enumerate(results)}
        self.kept = [(position[id(x)], None) if id(x) in position else (None, saved(x)) for x in kept]

    def with_results(self, outputs: Sequence[Any]) -> list[Any]:
        """What was kept, where these are the results."""
        return [other if k is None else outputs[k] for k, other in self.kept]


class RuleOnTape:
    """What the tape asks for the gradient."""

    def __init__(self, rule: CustomRule, known: KeptForward | None):
        self.name, self.rule, self.known = rule.name, rule, known

    def vjp(self, g: Any, y: Any, *inputs: Tensor) -> list[Tensor | None]:
        """The gradients of the inputs."""
        outputs, seeds = (y, g) if isinstance(y, tuple) else ((y,), (g,))
        kept = self.rule.forward(list(inputs))[1] if self.known is None else self.known.with_results(outputs)
        return self.rule.backward(kept, [s if x.dtype.is_differentiable else None
                                         for s, x in zip(seeds, outputs, strict=True)])


# ---------------------------------------------------------------- in a captured program

def in_capture(rule: CustomRule, inputs: Tensors, capture: Capture) -> Tensors:
    """One operator that holds the function and its rule as graphs."""
    types = [x.type for x in inputs]
    static: list[Any] = []
    given: list[bool] = []

    def forward(tensors: Tensors) -> Tensors:
        kept = rule.forward(tensors)[1]
        static[:] = [TENSOR if isinstance(x, Tensor) else x for x in kept]
        return [x for x in kept if isinstance(x, Tensor)]

    def backward(tensors: Tensors) -> Tensors:
        passed = iter(tensors)
        kept = [next(passed) if x is TENSOR else x for x in static]
        seeds = [next(passed) if t.dtype.is_differentiable else None for t in results]
        found = rule.backward(kept, seeds)
        given[:] = [x is not None for x in found]
        return [x for x in found if x is not None]

    body, free = subgraph(capture, rule.primal, types, rule.name)
    results = [r.type for r in body.results]
    kept_graph, kept_free = subgraph(capture, forward, types, rule.name + "_forward")
    kept_types = [r.type for r in kept_graph.results]
    seed_types = [t for t in results if t.dtype.is_differentiable]
    gradient, gradient_free = subgraph(capture, backward, [*kept_types, *seed_types], rule.name + "_backward")
    shared = list(dict.fromkeys([*free, *kept_free, *gradient_free]))
    attrs = {"body": widened(body, len(types), free, shared),
             "forward": widened(kept_graph, len(types), kept_free, shared),
             "backward": widened(gradient, len(kept_types) + len(seed_types), gradient_free, shared),
             "given": tuple(given)}
    out = capture.builder.emit(custom_call, (*(x.payload for x in inputs), *shared), attrs)  # type: ignore[arg-type]
    return [Tensor(x) for x in (out if isinstance(out, tuple) else (out,))]


def widened(graph: Graph, count: int, own: Sequence[Value], shared: Sequence[Value]) -> Graph:
    """The graph with a parameter for every shared value after its first `count`, in the place of its own few."""
    of_own = dict(zip(own, graph.params[count:], strict=True))
    further = [of_own[x] if x in of_own else Value(x.type, name=x.name) for x in shared]
    return Graph(graph.name, (*graph.params[:count], *further), graph.nodes, graph.results)


# ---------------------------------------------------------------- in a batch

def in_batch(rule: CustomRule, inputs: Tensors, level: Batching) -> Tensors:
    """The batch of the function with the batch of the rule, for the interpreter around the batch."""
    flags = [level.holds(x) for x in inputs]
    kept_flags: list[bool] = []

    def enter(tensors: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
        return [level.enter(x, 0) if flag else x for x, flag in zip(tensors, batched, strict=True)]

    def leave(tensors: Sequence[Any]) -> list[Any]:
        return [x if x is None else level.leave(x, 0) for x in tensors]

    def primal(tensors: Tensors) -> Tensors:
        with using(level):
            results = rule.primal(enter(tensors, flags))
        return leave(results)

    def forward(tensors: Tensors) -> tuple[Tensors, list[Any]]:
        with using(level):
            results, kept = rule.forward(enter(tensors, flags))
        kept_flags[:] = map(level.holds, kept)
        return leave(results), [x.payload.inner if flag else x for x, flag in zip(kept, kept_flags, strict=True)]

    def backward(kept: list[Any], seeds: list[Tensor | None]) -> list[Tensor | None]:
        with using(level):
            found = rule.backward(enter(kept, kept_flags), [None if s is None else level.enter(s, 0) for s in seeds])
        found = leave(found)
        return [g if g is None or flag else g.sum(axis=0) for g, flag in zip(found, flags, strict=True)]

    whole = [x.payload.inner if flag else x for x, flag in zip(inputs, flags, strict=True)]  # type: ignore[union-attr]
    with using(level.outer):
        results = apply_rule(CustomRule(primal, forward, backward, rule.name, rule.depth), whole)
    return [Tensor(Batched(x, level)) for x in results]


