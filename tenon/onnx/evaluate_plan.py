"""A plan and its inputs -> its results, step by step: at once, or as the operators of a graph that is captured.

A step is a function of the model, an operator of the table, or what ONNX itself says it is made of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import tenon as tn
from tenon.context_values import during
from tenon.errors import TenonError
from tenon.onnx.function_bodies import body_of, is_defined
from tenon.onnx.graph_plan import GraphPlan, OperatorStep, Reference, names_read
from tenon.onnx.known_values import (
    MAX_FOLDED,
    Known,
    TooLargeError,
    UnsupportedError,
    as_value,
    at_most,
    check_bytes,
    is_known,
)
from tenon.onnx.model_file import ModelError
from tenon.onnx.operator_table import TABLE, Operator, OperatorCall

DEEPEST_CALLS = 64      # functions in functions
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)
MISTAKES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, MemoryError,
            RecursionError, NotImplementedError)


class Scope(dict[str, Any]):
    """Names of a graph, and of those around it."""

    def __init__(self, around: Scope | None = None, attributes: dict[str, Any] | None = None, depth: int = 0):
        super().__init__()
        self.around, self.depth = around, depth
        self.attributes: dict[str, Any] | None = attributes
        if attributes is None and around is not None:
            self.attributes = around.attributes

    def __missing__(self, name: str) -> Any:
        if self.around is None:
            raise TenonError(f"nothing computes {name!r}")
        return self.around[name]


class TimeLimitError(TenonError, TimeoutError):
    """A model that took longer than it was given."""


def within(seconds: float | None) -> AbstractContextManager[Any]:
    """A block whose steps stop when the time is up."""
    return during(deadline, None if seconds is None else time.monotonic() + seconds)


def check_time(label: str) -> None:
    """Raise TimeLimitError where the time is up."""
    limit = deadline.get()
    if limit is not None and time.monotonic() > limit:
        raise TimeLimitError(f"the model took longer than its time limit (in {label})")


def evaluate(plan: GraphPlan, inputs: Sequence[Any], around: Scope | None = None,
             attributes: dict[str, Any] | None = None, depth: int = 0, partial: bool = False) -> list[Any]:
    """The results of a plan; `around` holds the names that a sub-graph sees.

    A body of the standard leaves out what a call does not ask for: `partial`.
    """
    scope = Scope(around, attributes, depth if around is None else around.depth)
    scope.update(plan.constants)
    scope.update(zip(plan.inputs, inputs))
    for step, dead in zip(plan.steps, plan.dead_after):
        check_time(step.label)
        args = [scope[name] if name else None for name in step.inputs]
        results = run_step(step, args, scope)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) < len([n for n in step.outputs if n]) and len(results) < len(step.outputs):
            raise UnsupportedError(f"{step.label}: {len(step.outputs)} results are not supported, there are "
                                   f"{len(results)}")
        scope.update((name, as_value(x)) for name, x in zip(step.outputs, results) if name)
        del args, results
        for name in dead:
            scope.pop(name, None)
    return [scope.get(name) if partial else scope[name] for name in plan.outputs]


def fold(plan: GraphPlan) -> GraphPlan:
    """The plan without the steps that depend on nothing but constants; their results are constants."""
    scope = Scope()
    scope.update(plan.constants)
    kept = []
    for step in plan.steps:
        entry = TABLE.get((step.domain, step.op_type))
        if entry is None or entry.random or entry.late or any(n and n not in scope for n in step.inputs):
            kept.append(step)
            continue
        check_time(step.label)
        try:
            with at_most(MAX_FOLDED):
                results = run_step(step, [scope[name] if name else None for name in step.inputs], scope)
        except (TooLargeError, UnsupportedError):       # a call says so, if it comes to this node
            kept.append(step)
            continue
        found = dict(zip(step.outputs, map(as_value, results if isinstance(results, tuple) else (results,))))
        if all(map(is_known, found.values())):
            scope.update(found)
        else:
            kept.append(step)
    read = {name for step in kept for name in names_read(step)} | set(plan.outputs)
    plan.constants = {name: x for name, x in scope.items() if name in read}
    plan.set_steps(kept)
    return plan


def is_supported(step: OperatorStep) -> bool:
    """Whether there is something that evaluates the node."""
    return (step.node.domain, step.op_type, step.overload) in step.plan.functions \
        or (step.domain, step.op_type) in TABLE or is_defined(step.op_type, step.domain, step.plan.opsets)


def run_step(step: OperatorStep, args: list[Any], scope: Scope) -> Any:
    """The values of a node's results."""
    attributes = _attributes(step, scope)
    plan = step.plan
    if (key := (step.node.domain, step.op_type, step.overload)) in plan.functions:
        return call_function(plan.functions[key], args, attributes, scope)
    if step.domain not in plan.opsets:
        raise TenonError(f"{step.label}: the model does not say which opset of {step.domain!r} it uses")
    call = OperatorCall(step, attributes, plan.opsets[step.domain], scope)
    entry = TABLE.get((step.domain, step.op_type))
    if entry is not None:
        while args and args[-1] is None:
            args.pop()
        return checked_sizes(step, _evaluated(entry, call, args))
    body = body_of(call, args)
    if body is None:
        domain = f" of the domain {step.domain!r}" if step.domain else ""
        raise UnsupportedError(f"the operator {step.op_type}{domain} (opset {call.opset}, node {step.name!r}) is not "
                               "supported")
    return call_function(body, args, attributes, scope)


def _evaluated(entry: Operator, call: OperatorCall, args: list[Any]) -> Any:
    """What the definition gives; whatever it stumbles over is said with the node."""
    try:
        return entry(call, args)
    except TenonError as error:
        error.why = error.why or f"it is in {call.step.label} of the model"
        raise
    except MISTAKES as error:
        what = str(error) or type(error).__name__
        raise ModelError(f"{call.step.label} does not take its inputs or attributes: {what}") from error


def checked_sizes(step: OperatorStep, results: Any) -> Any:
    """The results, if none is larger than a value may be."""
    for x in results if isinstance(results, (tuple, list)) else (results,):
        if isinstance(x, tn.Tensor) and all(isinstance(d, int) for d in x.shape):
            check_bytes(x.shape, x.dtype.itemsize, step.label)
        elif isinstance(x, Known):
            check_bytes(x.array.shape, x.array.dtype.itemsize, step.label)
    return results


def call_function(body: GraphPlan, args: list[Any], attributes: dict[str, Any], scope: Scope) -> tuple[Any, ...]:
    """The results of a function of the model, or of the standard."""
    if scope.depth > DEEPEST_CALLS:
        raise TenonError(f"{body.name}: functions call each other more than {DEEPEST_CALLS} deep")
    if len(args) > len(body.inputs):
        raise TenonError(f"{body.name} takes {len(body.inputs)} inputs, and is given {len(args)}")
    given = [*args, *[None] * (len(body.inputs) - len(args))]
    return tuple(evaluate(body, given, None, {**body.defaults, **attributes}, scope.depth + 1, partial=True))


def _attributes(step: OperatorStep, scope: Scope) -> dict[str, Any]:
    found = {}
    for name, value in step.attributes.items():
        if isinstance(value, Reference):
            value = (scope.attributes or {}).get(value.name)
            if value is None:
                continue
        found[name] = value
    return found
