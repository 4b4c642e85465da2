"""A function with a gradient of its own, on flat lists of tensors: what `tn.custom_vjp` is made of.

On the tape it is one node.  In a captured program it is one operator that holds three graphs, so that the program can
be differentiated from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.python_state import undone
from tenon.capture.subgraph import InnerBuilder, subgraph
from tenon.capture.trace import Capture
from tenon.eager.grad_mode import is_grad_enabled, no_grad
from tenon.eager.tape import TapeNode, linked, saved
from tenon.graph.ir import Graph, Value
from tenon.ops.custom import custom_call
from tenon.records import dataclass
from tenon.tensor import Tensor

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
    takes_none: bool = False        # whether the gradient is told None, not zeros, for results that nothing depends on
    reads: tuple[Any, ...] = ()     # the user's functions, and what they are given beside tensors


@dataclass(frozen=True)
class Result:
    """One of the results, among what is kept: its gradient is that of the call, not of what it is made of."""

    place: int


def call_rule(rule: CustomRule, inputs: Tensors, capture: Capture | None, outputs: Tensors | None = None) -> Tensors:
    """The results, recorded as one call with this rule where a gradient may be wanted."""
    records = is_grad_enabled() and any(x.requires_grad for x in inputs)
    inside = capture is not None and isinstance(capture.builder, InnerBuilder)      # of which others may be taken
    if capture is not None and ((inside and rule.depth < MAX_DEPTH) or (records and not inside)):
        outputs = in_capture(rule, capture.without_gradient(tuple(inputs)) if records else inputs, capture,
                             again=records)
    if not records or (inside and rule.depth >= MAX_DEPTH):
        return rule.primal(inputs) if outputs is None else outputs
    return on_tape(rule, inputs, outputs)


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
        self.name, self.rule, self.known, self.takes_none = rule.name, rule, known, rule.takes_none

    def vjp(self, g: Any, y: Any, *inputs: Tensor) -> list[Tensor | None]:
        """The gradients of the inputs."""
        outputs, seeds = (y, g) if isinstance(y, tuple) else ((y,), (g,))
        kept = self.rule.forward(list(inputs))[1] if self.known is None else self.known.with_results(outputs)
        return self.rule.backward(kept, [s if x.dtype.is_differentiable else None
                                         for s, x in zip(seeds, outputs, strict=True)])


# ---------------------------------------------------------------- in a captured program

def in_capture(rule: CustomRule, inputs: Sequence[Tensor], capture: Capture, again: bool) -> Tensors:
    """One operator that holds the function and its rule as graphs.

    What the rule changes in Python is put back; what the function changes too, where it runs `again` for the tape.
    """
    types = [x.type for x in inputs]
    static: list[Any] = []
    given: list[bool] = []

    def forward(tensors: Tensors) -> Tensors:
        made, kept = rule.forward(tensors)
        places = {id(x): Result(k) for k, x in enumerate(made)}
        static[:] = [places.get(id(x), TENSOR if isinstance(x, Tensor) else x) for x in kept]
        return [x for x, place in zip(kept, static, strict=True) if place is TENSOR]

    def backward(tensors: Tensors) -> Tensors:
        passed = iter(tensors)
        kept = [next(passed) if x is TENSOR else x for x in static]
        outputs = [next(passed) for _ in results]
        seeds = [next(passed) if t.dtype.is_differentiable else None for t in results]
        found = rule.backward([outputs[x.place] if type(x) is Result else x for x in kept], seeds)
        given[:] = [x is not None for x in found]
        return [x for x in found if x is not None]

    with undone(capture, rule.reads if again else ()):
        body, free = subgraph(capture, rule.primal, types, rule.name)
    results = [r.type for r in body.results]
    with undone(capture, rule.reads):
        kept_graph, kept_free = subgraph(capture, forward, types, rule.name + "_forward")
        kept_types = [r.type for r in kept_graph.results]
        seed_types = [t for t in results if t.dtype.is_differentiable]
        taken = [*kept_types, *results, *seed_types]
        with undone(capture, rule.reads, f"the gradient of {rule.name}"):
            gradient, gradient_free = subgraph(capture, backward, taken, rule.name + "_backward")
    shared = list(dict.fromkeys([*free, *kept_free, *gradient_free]))
    attrs = {"body": widened(body, len(types), free, shared),
             "forward": widened(kept_graph, len(types), kept_free, shared),
             "backward": widened(gradient, len(taken), gradient_free, shared),
             "given": tuple(given)}
    return [Tensor(x) for x in capture.evaluate(custom_call, (*inputs, *map(Tensor, shared)), attrs)]


def widened(graph: Graph, count: int, own: Sequence[Value], shared: Sequence[Value]) -> Graph:
    """The graph with a parameter for every shared value after its first `count`, in the place of its own few."""
    of_own = dict(zip(own, graph.params[count:], strict=True))
    further = [of_own[x] if x in of_own else Value(x.type, name=x.name) for x in shared]
    return Graph(graph.name, (*graph.params[:count], *further), graph.nodes, graph.results)
