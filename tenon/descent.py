"""Backward through a tape on plain arrays, where the gradients are not recorded themselves.

What the rule of an elementwise operator asks for is found out once, by recording it, for inputs of one shape and
element type: mostly one or two of NumPy's ufuncs, which are called from then on without a tensor around each array.
All other nodes have their rule called on tensors.  Sums of gradients that nobody else holds are added to in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.autodiff import pullback
from tenon.graph.build import Builder
from tenon.graph.ir import Literal, Node, Value
from tenon.graph.kernels import KERNELS
from tenon.graph.op import current, using
from tenon.ops.shape import cast, sum_to
from tenon.state import recorder
from tenon.tensor import Tensor, fresh
from tenon.types import TensorType, as_dtype

Array = np.ndarray
Rule = Callable[[list[Any]], Any]               # [gradient, output, inputs ...] -> the gradient of one input
MOST_RULES = 4096
SHAPE = (7,)                                    # stands for any shape while a rule is recorded


def is_plain(tape: Sequence[Any]) -> bool:
    """Whether the outputs on a tape are arrays, and operators mean nothing but their values here."""
    if current() is not None or recorder.get() is not None or KERNELS:
        return False
    return {type(payload) for node in tape for payload in node.payloads} <= {Array}


def descend(tape: Sequence[Any], end: Tensor, seed: Array) -> dict[Any, Tensor]:
    """The gradient of every leaf, given that of `end`, by what it is accumulated under."""
    found = _Sums()
    found.add(end, seed)
    with np.errstate(all="ignore"):
        for node in reversed(tape):
            payloads = node.payloads
            if len(payloads) == 1:
                g = found.pop(node, None)
                if g is not None:
                    rules, values = _rules_of(node, g, payloads[0])
                    if rules is None:
                        _by_rule(node, [fresh(g)], found)
                    else:
                        for rule, x in zip(rules, node.inputs, strict=True):
                            if rule is not None and x.own.requires_grad:
                                found.add(x, rule(values))
            else:
                seeds = [found.pop((node, k), None) for k in range(len(payloads))]
                if any(g is not None for g in seeds):
                    _by_rule(node, [None if g is None else fresh(g) for g in seeds], found)
    return {slot: fresh(total) for slot, total in found.items()}


class _Sums(dict[Any, Any]):
    """Gradients so far, by node where it has one output, else by slot."""

    def __init__(self) -> None:
        super().__init__()
        self.own: set[Any] = set()          # where a sum is that was made here, and is held nowhere else

    def add(self, x: Tensor, gradient: Any) -> None:
        """Add to the gradient of a tensor."""
        if type(gradient) is not Array:
            gradient = np.asarray(gradient)
        slot: Any = x.own.node
        if slot is None or len(slot.payloads) != 1:
            slot = x.slot
        if slot not in self:
            self[slot] = gradient
        elif slot in self.own:
            _add(self[slot], gradient, self[slot])
        else:
            self[slot] = np.asarray(_add(self[slot], gradient))
            self.own.add(slot)


_add = np.add


def _rules_of(node: Any, g: Array, y: Array) -> tuple[list[Rule | None] | None, list[Any]]:
    """(a rule an input, or None where the operator's own is to be called; what the rules take)."""
    dtype, shape, values, like = y.dtype, y.shape, [g, y], True
    for x in node.inputs:
        if isinstance(x, Tensor):
            payload: Any = x.own.payload
            values.append(payload)
            if payload.shape != shape or payload.dtype is not dtype:
                return None, values
        else:
            values.append(x)
            like = False
    if node.attrs:
        return None, values
    return _rules[(node.op, dtype) if like else (node.op, dtype, *map(_kind, node.inputs))], values


def _kind(x: Any) -> Any:
    """What decides about a rule where there are numbers: which; True stands for a tensor."""
    return True if isinstance(x, Tensor) else x


def _by_rule(node: Any, seeds: list[Any], found: _Sums) -> None:
    """The gradients of the inputs by the operator's rule, on tensors."""
    for x, gradient in zip(node.inputs, pullback(node, seeds), strict=True):
        if gradient is None or not isinstance(x, Tensor) or not x.requires_grad:
            continue
        value = gradient() if callable(gradient) else gradient
        if not x.is_like(value):
            value = sum_to(value, x.shape)
            value = value if value.dtype is x.dtype else cast(value, dtype=x.dtype)
        found.add(x, value.payload)


# ---------------------------------------------------------------- rules as steps of NumPy

class _Rules(dict[Any, Any]):
    """(operator, element type, kinds of the inputs if not all are tensors) -> a rule an input, or None."""

    def __missing__(self, key: Any) -> Any:
        if len(self) >= MOST_RULES:
            self.clear()
        op, dtype, *kinds = key
        self[key] = rules = _recorded(op, dtype, kinds or [True] * getattr(op, "inputs", 0))
        return rules


_rules = _Rules()


def _recorded(op: Any, dtype: Any, kinds: Sequence[Any]) -> list[Rule | None] | None:
    """What the rule of an operator does, where ufuncs do it."""
    numbers = [x for x in kinds if isinstance(x, Literal)]
    if getattr(op, "quick", None) is None or op.vjp is None or dtype.kind != "f" or dtype.itemsize < 4:
        return None
    if not all(x is True or isinstance(x, Literal) for x in kinds) or any(not x.value for x in numbers):
        return None                             # 0.0 and -0.0 are equal keys
    type = TensorType(as_dtype(dtype), SHAPE)
    g, y = Value(type, name="g"), Value(type, name="y")
    inputs = [Value(type, name=f"x{k}") if x is True else x for k, x in enumerate(kinds)]
    builder = Builder("rule", [g, y, *(x for x in inputs if isinstance(x, Value))])
    with using(builder):
        found = [x() if callable(x) else x for x in op.vjp(g, y, *inputs)]
    places = {x: k for k, x in enumerate([g, y, *inputs]) if isinstance(x, Value)}
    rules = []
    for x, gradient in zip(inputs, found, strict=True):
        wanted = isinstance(x, Value) and gradient is not None
        rules.append(_rule(gradient, places, dtype) if wanted else None)
        if wanted and rules[-1] is None:
            return None
    return rules


def _rule(x: Any, places: dict[Value, int], dtype: Any) -> Rule | None:
    """The gradient x as a function of the values at these places."""
    if isinstance(x, Literal):
        number = np.asarray(x.value, dtype)
        return lambda values: number
    if x in places:
        place = places[x]
        return lambda values: values[place]
    node: Node | None = x.node
    if node is None or not isinstance(node.op.ref, np.ufunc) or node.attrs or not node.op.elementwise:
        return None
    edges = [y for y in (*node.outputs, *node.inputs) if y is not None]
    if any(y.type.shape not in ((), SHAPE) or y.type.dtype.numpy is not dtype for y in edges):
        return None
    ufunc, parts = node.op.ref, [_rule(y, places, dtype) for y in node.inputs]
    direct = [places.get(y, -1) if isinstance(y, Value) else -1 for y in node.inputs]
    if len(parts) == 2 and min(direct) >= 0:
        first, second = direct
        return lambda values: ufunc(values[first], values[second])
    known = [part for part in parts if part is not None]
    return None if len(known) < len(parts) else lambda values: ufunc(*[part(values) for part in known])
