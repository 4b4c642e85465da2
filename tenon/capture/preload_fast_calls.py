"""The native functions of fast paths, made while a first program is compiled, and where they find a tensor's state."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from threading import Event, Thread
from typing import TYPE_CHECKING

from tenon.cpython import object_layout
from tenon.gc_control import COLLECTOR
from tenon.in_place import Loan
from tenon.locks import unforked
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState

if TYPE_CHECKING:
    from tenon.cpython.guard_table import Slots


def preload() -> None:
    """Let another thread make the native functions of fast paths, while a first program is compiled: the second call
    would wait for LLVM, and take the memory again that is given back once the program is there.  Nothing is lost but
    that where the system has no more threads, or Python is about to end."""
    if object_layout.READABLE and not _ready.is_set():
        with suppress(RuntimeError):
            Thread(target=_load_natives, name="tenon-compile").start()


def _load_natives() -> None:
    with COLLECTOR:
        with unforked:
            from tenon.capture.native_guards import GuardConditions  # noqa: F401  # a second call loads it
            from tenon.cpython.jit_fast_call import library  # local: LLVM is slow to load, and not always needed
        library(state_slots())
        _ready.set()


_ready = Event()


@cache
def state_slots() -> Slots:
    with unforked:
        from tenon.cpython.guard_table import Slots  # local: as above
    names = "payload", "requires_grad", "grad", "node", "index"
    state = [object_layout.slot_offset(TensorState, name) for name in names]
    loan = [object_layout.slot_offset(Loan, name) for name in ("array", "copy")]
    return Slots(object_layout.slot_offset(Tensor, "own"), *state, *loan)
