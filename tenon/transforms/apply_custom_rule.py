"""Calls of functions with a gradient of their own, under whatever interpreter: in a batch it is the batch of the
function, with the batch of the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.capture.custom_rules import CustomRule, Tensors, call_rule
from tenon.capture.trace import Capture
from tenon.eager.tape import carries
from tenon.graph.op import interpreter, using
from tenon.records import replace
from tenon.tensor import Tensor
from tenon.transforms.vmap_interpreter import Batched, Batching


def apply_rule(rule: CustomRule, inputs: Tensors) -> Tensors:
    """The results, recorded as one call with this rule where a gradient may be wanted."""
    level = interpreter()
    while isinstance(level, Batching) and not any(map(level.holds, inputs)):
        level = level.outer             # the same for all examples: a call like any other
    outputs = None
    with using(level):
        if isinstance(level, Batching) and any(map(carries_outside, inputs)):
            outputs = in_batch(rule, inputs, level)
        return call_rule(rule, inputs, level if isinstance(level, Capture) else None, outputs)


def carries_outside(x: Tensor) -> bool:
    """Whether a gradient may be wanted outside the batch."""
    return carries(x.payload.inner if isinstance(x.payload, Batched) else x)


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
        results = apply_rule(replace(rule, primal=primal, forward=forward, backward=backward), whole)
    return [Tensor(Batched(x, level)) for x in results]
