"""Parameters of distributions: numbers and tensors made into tensors of one type, broadcast, and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.array_api import finfo
from tenon.errors import ArgumentError, DTypeError
from tenon.graph.op import at_once
from tenon.graph.promotion import floating
from tenon.ops.activations import log_softmax, softmax, softplus
from tenon.ops.comparison import clip
from tenon.ops.exponential import log, sigmoid
from tenon.ops.joining_and_axes import broadcast_arrays
from tenon.ops.reduction import all_, sum_
from tenon.tensor import Tensor, asarray, is_tensor

Check = tuple[Callable[[Any], Any], str]

positive: Check = (lambda x: x > 0, "must be above 0")
not_negative: Check = (lambda x: x >= 0, "must not be below 0")
a_probability: Check = (lambda x: (x >= 0) & (x <= 1), "must lie between 0 and 1")
a_number: Check = (lambda x: x == x, "must be numbers, not NaN")


def broadcast(owner: str, checks: dict[str, Check], **given: Any) -> list[Any]:
    """The parameters as tensors of one floating type and one shape.

    Raises ArgumentError for values that a check refuses, where they are known.
    """
    dtype: Any = floating(tuple(x.dtype if is_tensor(x) else x.__class__ if isinstance(x, (bool, int, float))
                                else asarray(x).dtype for x in given.values()))[0]
    tensors = []
    for name, x in given.items():
        made = x.astype(dtype) if is_tensor(x) else asarray(x, dtype=dtype)
        if made.dtype.kind != "f":
            raise DTypeError(f"{owner}: {name} must be real numbers, it is {made.type}")
        tensors.append(made)
        if name in checks:
            check(owner, name, x if isinstance(x, (bool, int, float)) else made, checks[name])
    return list(broadcast_arrays(*tensors)) if len(tensors) > 1 else tensors


def check(owner: str, name: str, x: Any, rule: Check) -> None:
    """Raise ArgumentError where values that are known do not satisfy a rule; a graph knows its numbers."""
    test, words = rule
    if not isinstance(x, Tensor):
        holds = test(x)
    else:
        x = x.detach()
        holds = not at_once() or bool(all_(test(x)))
    if not holds:
        raise ArgumentError(f"{owner}: {name} {words}, got {x}")


def one_of(owner: str, probs: Any, logits: Any) -> tuple[bool, Any]:
    """Whether logits were given, and what was given; raises ArgumentError unless it is one of them."""
    if (probs is None) == (logits is None):
        found = "none" if probs is None else "both"
        raise ArgumentError(f"{owner}: one of probs and logits is needed, not {found}")
    return logits is not None, probs if logits is None else logits


class Chances:
    """The probability of success of trials: given as such or as logits, and either when asked for."""

    def __init__(self, given: Any, as_logits: bool):
        self.given, self.as_logits = given, as_logits

    def probs(self) -> Any:
        """The probabilities."""
        return sigmoid(self.given) if self.as_logits else self.given

    def logits(self) -> Any:
        """The logarithm of p / (1 - p), finite."""
        if self.as_logits:
            return self.given
        p = within(self.given)
        return log(p) - log(1 - p)

    def log_none(self) -> Any:
        """log(1 - p)."""
        return -softplus(self.logits())


class Shares:
    """The probabilities of classes along the last axis: given as such, in whatever proportion, or as logits."""

    def __init__(self, given: Any, as_logits: bool):
        self.given, self.as_logits = given, as_logits

    def probs(self) -> Any:
        """The probabilities, which sum to 1."""
        return softmax(self.given, axis=-1) if self.as_logits else self.given / sum_(self.given, axis=-1, keepdims=True)

    def logits(self) -> Any:
        """The logarithms of the probabilities."""
        return log_softmax(self.given, axis=-1) if self.as_logits else log(within(self.probs()))


def within(p: Any) -> Any:
    """Probabilities, none of them 0 or 1."""
    eps = finfo(p.dtype).eps
    return clip(p, eps, 1 - eps)
