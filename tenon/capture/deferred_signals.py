"""Signals that come while a function is captured -> their handlers, called when the capture is over.

A handler may look at the model, and change it.  Within a capture it would see tensors without elements, and what it
changes would become a part of the step.  Ctrl-C's own handler only raises, so it ends a capture at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def handled_later() -> Iterator[None]:
    """Let the handlers that are Python functions wait for the end of this block."""
    if threading.current_thread() is not threading.main_thread():       # others handle none
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        waiting.append((number, frame))
    try:
        for known in signal.valid_signals():
            handler = signal.getsignal(known)
            if callable(handler) and handler is not signal.default_int_handler:
                handlers[known] = handler
                signal.signal(known, note)
        yield
    finally:
        for taken, handler in handlers.items():
            if signal.getsignal(taken) is note:         # unless the function has set another
                signal.signal(taken, handler)
        for number, frame in waiting:
            handlers[number](number, frame)
