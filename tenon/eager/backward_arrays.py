"""Backward through a tape on plain arrays, where the gradients are not recorded themselves.

The rules of operators are NumPy calls in a row where they can be (`vjp_cache.py`), else they are called on tensors.
Sums of gradients that nobody else holds are added to in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.autodiff import pullback
from tenon.eager.vjp_cache import Formula, alike, elementwise, pulled
from tenon.graph.kernels import KERNELS
from tenon.graph.op import current
from tenon.tensor import Tensor, fresh
from tenon.tensor_state import recorder

Array = np.ndarray


def is_plain(tape: Sequence[Any]) -> bool:
    """Whether the outputs on a tape are arrays, and operators mean nothing but their values here."""
    if current() is not None or recorder.get() is not None or KERNELS:
        return False
    return {type(payload) for node in tape for payload in node.payloads} <= {Array}


def descend(tape: Sequence[Any], ends: Sequence[Tensor], seeds: Sequence[Array]) -> dict[Any, Tensor]:
    """The gradient of every leaf, given those of `ends`, by what it is accumulated under; and that of what other nodes
    than those of the tape have made, by the node where it has one output."""
    found = Sums()
    for end, seed in zip(ends, seeds, strict=True):
        found.add(end, seed)
    with np.errstate(all="ignore"):
        ways.down(tape, found, found.pull, found.add)
    return {slot: fresh(total) for slot, total in found.items()}


def down(tape: Sequence[Any], found: Sums, pull: Callable[[Any], None], add: Callable[[Tensor, Any], None]) -> None:
    """Go through a tape from its end, and give the gradient of each node to its inputs."""
    for node in reversed(tape):
        pull(node)


def release(tape: Sequence[Any], one: Callable[[Any], None]) -> None:
    """Let all nodes of a tape go."""
    for node in tape:
        one(node)


class BackwardEngine:
    """How a tape is gone through: in Python, or by machine code, which calls it for what is not usual."""

    def __init__(self) -> None:
        self.above: Callable[[list[Any]], list[Any] | None] | None = None   # only where nothing is captured
        self.down: Callable[..., None] = down
        self.release: Callable[..., None] = release


ways = BackwardEngine()


class Sums(dict[Any, Any]):
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


    def pull(self, node: Any) -> None:
        """Give what has come to a node to its inputs."""
        payloads = node.payloads
        if len(payloads) > 1:
            seeds = [self.pop((node, k), None) for k in range(len(payloads))]
            if any(g is not None for g in seeds):
                _by_rule(node, seeds, self)
            return
        g = self.pop(node, None)
        if g is None:
            return
        if (known := node.pulled((g,))) is not None:
            for x, array in known:
                self.add(x, array)
            return
        rules, values = _rules_of(node, g, payloads[0])
        if rules is None:
            _by_rule(node, [g], self)
            return
        for rule, x in zip(rules, node.inputs, strict=True):
            if rule is not None and x.own.requires_grad:
                self.add(x, rule(values))


_add = np.add


def _rules_of(node: Any, g: Array, y: Array) -> tuple[list[Formula | None] | None, list[Any]]:
    """(a rule an input, or None where the operator is not elementwise here; what the rules take)."""
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
    return elementwise[(node.op, dtype) if like else (node.op, dtype, *map(_kind, node.inputs))], values


def _kind(x: Any) -> Any:
    """What decides about a rule where there are numbers: which; True stands for a tensor."""
    return True if isinstance(x, Tensor) else x


def _by_rule(node: Any, seeds: Sequence[Array | None], found: Sums) -> None:
    """The gradients of the inputs by the operator's rule."""
    known = node.pulled(seeds) or pulled(node, seeds)
    if known is not None:
        for x, array in known:
            found.add(x, array)
        return
    lifted = [None if g is None else fresh(g) for g in seeds]
    for x, gradient in zip(node.inputs, pullback(node, lifted), strict=True):
        if isinstance(x, Tensor) and x.own.requires_grad and (value := alike(gradient, x)) is not None:
            found.add(x, value.payload)
