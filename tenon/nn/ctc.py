"""Connectionist temporal classification: the probability of a text, however its letters lie in time.

A. Graves et al., "Connectionist temporal classification", 2006.  Between letters, and around them, stands a blank; the
probabilities of all alignments up to each of these places are carried from step to step: one loop of the graph.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.capture.while_scan import scan
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.nn.losses import Loss
from tenon.ops.comparison import clip, maximum, where
from tenon.ops.creation import arange, full, full_like
from tenon.ops.cumulative import cumsum
from tenon.ops.exponential import exp, log
from tenon.ops.indexing import take, take_along_axis
from tenon.ops.joining_and_axes import concat, expand_dims, reshape, stack
from tenon.ops.losses import reduced
from tenon.ops.placing import on_device
from tenon.ops.shape import broadcast_to
from tenon.tensor import Tensor, asarray
from tenon.types import float32, int64

__all__ = ["CTCLoss"]

NEVER = -1e30           # the logarithm of what is impossible; a number, so that differences are


def ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
             reduction: str = "mean", zero_infinity: bool = False) -> Any:
    """Minus the logarithm of the probability of target texts, given those of letters at each step.

    `log_probs` [T, N, C] or [T, C] come from `log_softmax`; `targets` are [N, S], or all texts one after another.
    "mean" divides each loss by the length of its text first.  A text that is too long for its steps has the loss inf,
    or 0 with `zero_infinity`.

    >>> scores = tn.log_softmax(tn.zeros(4, 1, 3), axis=-1)
    >>> tn.nn.functional.ctc_loss(scores, tn.tensor([[1, 2]]), [4], [2], reduction="sum")
    tensor(1.6864)
    """
    log_probs, targets, alone = _checked(log_probs, targets, blank)
    count = log_probs.shape[1]
    steps, letters = (on_device(_lengths(x, count), log_probs.device) for x in (input_lengths, target_lengths))
    if targets.ndim == 1:
        targets = _rows(targets, letters)
    extended = _with_blanks(targets, blank)
    size = extended.shape[1]
    skips = _may_skip(extended, blank)
    wide = log_probs if log_probs.dtype.bits > 16 else log_probs.astype(float32)
    start = full((count, size), NEVER, dtype=wide.dtype, device=wide.device)
    place = arange(size, device=wide.device)

    def step(state: tuple[Any, Any], scores: Any) -> Any:
        before, t = state
        each = maximum(take_along_axis(scores, extended, axis=1), NEVER)
        first = where(place < 2, each, NEVER)
        two = _shifted(before, 2)
        after = _log_sum(before, _shifted(before, 1), where(skips, two, NEVER)) + each
        new = where(t == 0, first, after)
        return (where(expand_dims(t < steps, 1), maximum(new, NEVER), before), t + 1), None
    (last, _), _ = scan(step, (start, asarray(np.int64(0), device=wide.device)), wide)
    ends = stack([letters * 2, clip(letters * 2 - 1, 0, None)], axis=1)
    found = take_along_axis(last, ends, axis=1)
    second = where(letters > 0, found[:, 1], NEVER)
    total = _log_sum(found[:, 0], second, full_like(second, NEVER))
    possible = total > NEVER / 2
    loss = where(possible, -where(possible, total, 0.0), 0.0 if zero_infinity else math.inf)
    if reduction == "mean":
        loss = loss / clip(letters, 1, None).astype(loss.dtype)
    return reduced("ctc_loss", loss[0] if alone and reduction == "none" else loss, reduction)


def _checked(log_probs: Any, targets: Any, blank: int) -> tuple[Any, Any, bool]:
    targets = targets if isinstance(targets, Tensor) else asarray(np.asarray(targets), device=log_probs.device)
    if log_probs.ndim not in (2, 3) or log_probs.dtype.kind != "f":
        raise ShapeError(f"ctc_loss: log_probs are numbers [T, N, C] or [T, C], they are {log_probs.type}")
    if targets.dtype.kind not in "iu" or targets.ndim not in (1, 2):
        raise DTypeError(f"ctc_loss: targets are integers [N, S], or all of them in a row; they are {targets.type}")
    if not 0 <= blank < log_probs.shape[-1]:
        raise ArgumentError(f"ctc_loss: blank={blank} is no class of {log_probs.type}")
    alone = log_probs.ndim == 2
    return expand_dims(log_probs, 1) if alone else log_probs, targets.astype(int64), alone


def _lengths(given: Any, count: Any) -> Any:
    """Lengths [N], of a tensor, a list or a number."""
    lengths = given if isinstance(given, Tensor) else asarray(np.asarray(given, np.int64))
    return broadcast_to(lengths.astype(int64), (count,))


def _rows(targets: Any, letters: Any) -> Any:
    """Texts in a row as one row each, as wide as all of them together."""
    starts = expand_dims(cumsum(letters) - letters, 1)
    return take(targets, clip(starts + arange(targets.shape[0], device=starts.device), 0, targets.shape[0] - 1), axis=0)


def _with_blanks(targets: Any, blank: int) -> Any:
    """A blank before each letter, and one behind the last: [N, 2 S + 1]."""
    count, size = targets.shape
    between = stack([full_like(targets, blank), targets], axis=2)
    last = full((count, 1), blank, dtype=int64, device=targets.device)
    return concat([reshape(between, (count, 2 * size)), last], axis=1)


def _may_skip(extended: Any, blank: int) -> Any:
    """Where the blank before a letter may be left out: the letter before it is another one."""
    none = full((extended.shape[0], 2), blank, dtype=int64, device=extended.device)
    before = concat([none, extended[:, :-2]], axis=1)
    return (extended != blank) & (extended != before) if extended.shape[1] > 2 else extended != extended


def _shifted(x: Any, by: int) -> Any:
    """The elements `by` places before; impossible ones where there are none."""
    size = x.shape[1]
    return concat([full((x.shape[0], by), NEVER, dtype=x.dtype, device=x.device), x], axis=1)[:, :size]


def _log_sum(a: Any, b: Any, c: Any) -> Any:
    """log(exp(a) + exp(b) + exp(c))."""
    most = maximum(maximum(a, b), c).detach()
    return most + log(exp(a - most) + exp(b - most) + exp(c - most))


class CTCLoss(Loss):
    __doc__ = ctc_loss.__doc__

    fn = staticmethod(ctc_loss)
    defaults = {"blank": 0, "reduction": "mean", "zero_infinity": False}    # noqa: RUF012
