"""A sum between devices in two operators, with other work between: it is started, and waited for.

    pending = all_reduce_start(gradient, over=("data",))[0]            # says what this rank has, and goes on
    h = tanh(x)                                                         # meanwhile the others say theirs
    total = all_reduce_done(pending, gradient, over=("data",))[0]       # the sum

The pass `overlap_collectives` makes them of `all_reduce`, when nodes have their last order.  `pending` is the memory of
the sum, in which it is not yet: only `all_reduce_done` may read it, and its results are that memory.  What is summed is
read until then, so both operators are given it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.ops.collectives import canonical_attrs, together_ref, together_type
from tenon.ops.communicator import communicator
from tenon.ops.define import define
from tenon.types import TOKEN, TensorType

_DONE = np.zeros((), np.bool_)


def _start_into(outputs: Any, *xs: Any, over: Any, op: str) -> None:
    communicator("all_reduce_start").start_sum(xs, outputs[:len(xs)], over, op)


def _done_type(*pending_and_summed: TensorType, over: Any, op: str = "sum") -> tuple[TensorType, ...]:
    pending = _pending(pending_and_summed)
    if pending != pending_and_summed[len(pending):]:
        raise ArgumentError("all_reduce_done: what was started is given first, then what is summed, of the same types")
    return (*pending, TOKEN)


def _pending(both: tuple[Any, ...]) -> tuple[Any, ...]:
    return both[:len(both) // 2]


def _done_into(outputs: Any, *both: Any, over: Any, op: str) -> None:
    communicator("all_reduce_done").finish_sum(_pending(both))


all_reduce_start = define(
    "all_reduce_start", public=False, handles=True, effect=True, type=together_type, ref=together_ref, into=_start_into,
    canonical=lambda *xs, over, op="sum": canonical_attrs(TOKEN, over=over, op=op),
    doc="Begins a sum of what all ranks have of these tensors: its results are to be given to `all_reduce_done` alone.",
    examples=['all_reduce_start(f32[2, 3], f32[4], over=("data",), op="sum") -> (f32[2, 3], f32[4], token)'])

all_reduce_done = define(
    "all_reduce_done", public=False, handles=True, effect=True, type=_done_type, into=_done_into,
    ref=lambda *both, over, op: (*_pending(both), _DONE),
    canonical=lambda *xs, over, op="sum": canonical_attrs(TOKEN, over=over, op=op),
    doc="Waits for a sum that was started: what that made first, then what is summed.  The results lie where it was.",
    examples=['all_reduce_done(f32[2, 3], f32[2, 3], over=("data",), op="sum") -> (f32[2, 3], token)'])
