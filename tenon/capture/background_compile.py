"""A capture and a call -> its machine code, made by another thread while the function itself goes on eagerly.

Nothing is lost where that fails: the call that comes then compiles as if nobody had, and tells what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.capture.captured import Captured
from tenon.capture.constant_weights import WithConstants, given
from tenon.capture.parameter_sources import Argument
from tenon.eager.dispatch import program_of
from tenon.llvm.compile_pool import Workers
from tenon.tensor_state import in_memory


class InTheBackground:
    """The code of a capture, in the making for calls like this one."""

    def __init__(self, captured: Captured, leaves: Sequence[Any]) -> None:
        arrays: list[Any] = [in_memory(x.own.payload) for x in captured.inputs.holders(leaves)]
        arrays = [_like(a) if isinstance(source, Argument) else a       # what a call was given is not kept
                  for a, source in zip(arrays, captured.sources, strict=True)]
        self._process = os.getpid()
        self._job = Workers(1, "tenon-background").submit(partial(_make, captured, arrays))

    @property
    def done(self) -> bool:
        """Whether a call need not wait; a forked child waits for nothing, since nobody makes it there."""
        return self._job.done or self._process != os.getpid()


def _like(array: np.ndarray) -> np.ndarray:
    """An array of that type and shape, of one element's memory."""
    return np.broadcast_to(np.empty((), array.dtype), array.shape)


def _make(captured: Captured, arrays: list[np.ndarray]) -> None:
    """All that the first run of the graph would compile, and the graph of its gradients."""
    program: Any = captured.program
    donated: Sequence[int] = () if captured.differentiable else captured.donations
    if isinstance(program, WithConstants):
        ready = program.ready_for(arrays)
        donated = [ready.parts.reads.index(k) for k in donated]
        program, arrays = program.late, given(ready, arrays)
    if hasattr(program, "prepare"):             # a backend of the user's need not have it
        program.prepare([a.shape for a in arrays], donated)
    if captured.halves is not None:
        for half in captured.halves.parts:
            program_of(half.backward)
