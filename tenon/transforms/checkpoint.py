"""`tn.checkpoint`: memory for time.  What a function computed on the way is not kept, but computed again when the
gradient is.

The second run sees the tensors, and so the random numbers, that the first one saw, and leaves no trace.  In a captured
program the function is one operator, `recomputed`, so that gradients of the program keep to it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon.autocast import autocast_is, autocasting
from tenon.capture.cond_switch import recomputed
from tenon.capture.pytree import flatten
from tenon.capture.trace import is_capturing
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.tape import TapeNode, linked, saved
from tenon.records import dataclass, field
from tenon.tensor import Tensor
from tenon.tensor_state import Changes
from tenon.transforms.differentiate import Followed, LeafNest, is_differentiable, settled
from tenon.types import DType


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function `f`, which keeps only its arguments for the gradient and runs again when that is computed.

    The gradient reaches the arguments and every tensor that `f` reads elsewhere.  As the body of a loop it leaves the
    gradient what the loop carries; around a loop of some iterations, in a loop of such, what is carried every so often.

    >>> layer = tn.checkpoint(lambda x: tn.exp(tn.sin(x)))
    >>> tn.grad(layer)(0.0)
    tensor(1.)
    """
    @functools.wraps(f, updated=())
    def checkpointed(*args: Any, **keywords: Any) -> Any:
        if not is_grad_enabled():
            return f(*args, **keywords)
        if is_capturing():
            return recomputed(functools.partial(f, **keywords), *args)
        leaves, structure = flatten((args, keywords))
        inputs = LeafNest(tuple(leaves), structure)

        def function(tensors: list[Tensor]) -> Any:
            given, named = inputs.replace(tensors)
            return f(*given, **named)
        changes = Changes()
        with changes.noted():
            run = Followed(function, inputs.tensors)
        return replaced(run, Recomputed(function, len(inputs.tensors), changes))
    return checkpointed


def replaced(run: Followed, rule: Recomputed) -> Any:
    """The result of the run, with one node on the tape in the place of all that it recorded."""
    leaves, structure = flatten(run.result)
    outputs = [x for x in leaves if is_differentiable(x)]
    others = outside(run, outputs)
    plain = {id(x): Tensor(x.payload) for x in outputs}
    if any(x.requires_grad for x in (*run.tensors, *others)):
        inputs = tuple(map(saved, (*run.tensors, *others)))
        node = TapeNode(rule, inputs, {}, tuple(x.payload for x in outputs))
        plain = {id(x): linked(x.payload, node, k) for k, x in enumerate(outputs)}
    result = structure.build([plain[id(x)] if is_differentiable(x) else settled(x) for x in leaves])
    del run, leaves, outputs        # with them go the tensors that only the first run used
    rule.changes.settle()
    return result


def outside(run: Followed, outputs: list[Tensor]) -> list[Tensor]:
    """The tensors that the function read beside its arguments and that require gradients."""
    found: dict[Any, Tensor] = {}
    forks = {node for node, _ in run.slots}
    for node in run.tape(outputs):
        if node not in forks:
            for x in node.inputs:
                if isinstance(x, Tensor) and x.requires_grad and (x.node is None or x.node.number < run.first):
                    found.setdefault(x.slot, x)
    return list(found.values())


@dataclass(eq=False)
class Recomputed:
    """What the tape asks for the gradient: it runs the function again, on a tape of its own."""

    function: Callable[[list[Tensor]], Any]
    count: int                      # of the inputs, those that are arguments; the rest the function reads elsewhere
    changes: Changes
    narrow: DType | None = field(default_factory=autocasting)      # as it was around the first run
    name: str = "checkpoint"
    takes_none: bool = True         # for results that nobody used

    def vjp(self, g: Any, y: Any, *inputs: Tensor) -> list[Tensor]:
        """The gradients of the inputs."""
        seeds = list(g) if isinstance(g, tuple) else [g]
        arguments, others = list(inputs[:self.count]), inputs[self.count:]
        with self.changes.undone(), autocast_is(self.narrow):
            run = Followed(self.function, arguments)
        outputs = [x for x in flatten(run.result)[0] if is_differentiable(x)]
        ends = [k for k, seed in enumerate(seeds) if seed is not None]
        return run.pull([outputs[k] for k in ends], [seeds[k] for k in ends], others)
