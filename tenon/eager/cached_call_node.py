"""What a call that is remembered leaves on the tape: one node, whose gradient a recipe makes of what was kept for it.

Where that gradient is recorded too, the call is made again, operator by operator, on a tape of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from tenon.autodiff import backward
from tenon.eager.grad_mode import recording, recording_is
from tenon.eager.split_backward import Derived
from tenon.eager.tape import TapeFork, TapeNode, fork, saved_as
from tenon.graph.op import Op, current
from tenon.records import dataclass
from tenon.tensor import Tensor, fresh
from tenon.tensor_state import recorder


@dataclass(eq=False, slots=True)
class CachedRule:
    """What recorded calls that are equal have in common; on the tape of a call of several operators, the operator."""

    name: str
    derived: Derived
    late: Callable[..., Any]            # the function of the gradients' recipe, as machine code calls it
    op: Op | None                       # where the call is that of one operator
    inputs: tuple[Any, ...]             # of the operator: the place of a tensor among those given, a literal, or None
    attrs: Mapping[str, Any]
    wanted: tuple[int, ...]             # the inputs of the node that get a gradient
    ends: tuple[bool, ...]              # whether a gradient flows to a result that is not given
    again: Callable[[list[Tensor]], Any]        # the call on other tensors, in full
    takes_none: bool = True             # as a tape of several operators: nothing flows from a result that nobody used

    def inputs_of(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """What the node of a call holds in the place of its inputs."""
        kept = [saved_as(x, x.own) for x in tensors]
        return tuple(kept if self.op is None else [kept[k] if type(k) is int else k for k in self.inputs])

    def vjp(self, g: Any, y: Any, *inputs: Tensor, kept: tuple[Any, ...]) -> list[Tensor | None]:
        """The gradients of the inputs: by the recipe, or, where they are recorded, by calling the function again."""
        seeds = [s for s, end in zip(g if isinstance(g, tuple) else (g,), self.ends, strict=True) if end]
        if recording() or current() is not None or recorder.get() is not None or any(s is None for s in seeds):
            return _replayed(self, seeds, inputs)
        outputs = y if isinstance(y, tuple) else (y,)
        with np.errstate(all="ignore"):
            out = self.derived.pulled([s.own.payload for s in seeds], [x.own.payload for x in outputs],
                                      [x.own.payload for x in inputs], kept)
        if out is None:
            return _replayed(self, seeds, inputs)
        found: list[Tensor | None] = [None] * len(inputs)
        for k, array in zip(self.wanted, out, strict=True):
            found[k] = fresh(array)
        return found


class CallNode(TapeNode):
    """A recorded call that was remembered: what it keeps, and who knows its gradient."""

    __slots__ = ("arrays", "kept", "rule")

    def __init__(self, rule: CachedRule, inputs: tuple[Any, ...], payloads: tuple[Any, ...], arrays: tuple[Any, ...],
                 kept: tuple[Any, ...]):
        if rule.op is None:
            TapeNode.__init__(self, rule, inputs, {"kept": kept}, payloads)
        else:
            TapeNode.__init__(self, rule.op, inputs, rule.attrs, payloads)
        self.rule, self.arrays, self.kept = rule, arrays, kept

    def release(self) -> None:
        """Let go of inputs and outputs; the node cannot be differentiated any more."""
        super().release()
        self.arrays, self.kept = (), ()

    def pulled(self, seeds: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """(an input, its gradient) for all that want one, given those of the outputs or None; on arrays."""
        given = []
        for g, y, end in zip(seeds, self.payloads, self.rule.ends, strict=True):
            if end:
                if g is None or g.dtype is not y.dtype:
                    return None         # zeros times what is infinite would be no number
                given.append(g)
        found = self.rule.derived.pulled(given, self.payloads, self.arrays, self.kept)
        if found is None:
            return None
        inputs = self.inputs
        return [(inputs[k], array) for k, array in zip(self.rule.wanted, found, strict=True)]


def _replayed(rule: CachedRule, seeds: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients as the operators of the call make them, one by one, on a tape of its own."""
    forks = [fork(x) if x.requires_grad else x for x in inputs]
    own = {x.node for x in forks if x.node is not None}
    try:
        with recording_is(True):
            out = rule.again(forks)
    finally:
        for node in own:
            if isinstance(node, TapeFork):
                node.active = False
    results = [x for x in (out if isinstance(out, (tuple, list)) else [out]) if not any(x is y for y in forks)]
    gradients: dict[Any, Any] = {}
    for x, seed in zip([x for x, end in zip(results, rule.ends, strict=True) if end], seeds, strict=True):
        if seed is not None:
            gradients[x.slot] = gradients[x.slot] + seed if x.slot in gradients else seed
    backward(_since(own, results), gradients, lambda x: isinstance(x, Tensor) and x.requires_grad)
    return [gradients.get(x.slot) if x.requires_grad else None for x in forks]


def _since(forks: Set[Any], results: Sequence[Tensor]) -> list[TapeNode]:
    """What was recorded on the way from forks to results, in order."""
    found: set[TapeNode] = set()
    pending = [x.node for x in results]
    while pending:
        node = pending.pop()
        if node is not None and node not in found and node not in forks:
            found.add(node)
            pending += [x.node for x in node.inputs if isinstance(x, Tensor)]
    return sorted(found, key=lambda node: node.number)
