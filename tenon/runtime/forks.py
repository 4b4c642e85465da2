"""Runs that write in the memory of tensors, and forks: a child has to find whole arrays, so a fork waits for such runs.

    phase = Phase(words)        # of a frame: what it does now, and for which thread

From the moment that a fork waits no such run begins: `FORKING` is a word that the fast paths of calls look at.  What a
thread has begun nevertheless is lost in the child, which says so rather than wait for what nobody ends.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref

import numpy as np

from tenon.program.backend_interface import IDLE, LOST, READING, WRITING

PAUSE = 1e-4                # seconds between two looks at whether a run is over
PATIENCE = 1.0              # seconds that a fork waits for a run that may itself wait for the thread that forks
FORKING = np.zeros(1, np.int64)

_this_thread = ctypes.pythonapi.PyThreadState_Get
_this_thread.restype = ctypes.c_size_t


class RunPhase:
    """Two words of a frame: IDLE, READING, WRITING or LOST, and the state of the thread that runs it."""

    def __init__(self, words: np.ndarray):
        self.words = words
        _all.add(self)

    @property
    def now(self) -> int:
        """What the run does."""
        return int(self.words[0])

    def begin(self) -> None:
        """Others see loans of what it updates from now on."""
        self.words[:] = READING, _this_thread()

    def end(self) -> None:
        """It is over."""
        self.words[0] = IDLE

    @property
    def is_another(self) -> bool:
        """Whether the run is one of another thread: this one's waits where Python runs, and has not begun to write."""
        return self.now != IDLE and int(self.words[1]) != _this_thread()

    def wait(self) -> None:
        """Wait for a run of another thread."""
        deadline = time.monotonic() + PATIENCE
        while self.is_another and (self.now == WRITING or time.monotonic() < deadline):
            time.sleep(PAUSE)


_all: weakref.WeakSet[RunPhase] = weakref.WeakSet()


def _before() -> None:
    FORKING[0] = 1
    for phase in list(_all):
        phase.wait()


def _in_parent() -> None:
    FORKING[0] = 0


def _in_child() -> None:
    FORKING[0] = 0
    for phase in list(_all):
        if phase.now == WRITING and phase.is_another:
            phase.words[0] = LOST


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
