"""Whether operators record themselves for `backward`: the switches `no_grad` and `enable_grad`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_recording: ContextVar[bool] = ContextVar("recording", default=True)


@contextmanager
def recording_is(flag: bool) -> Iterator[None]:
    token = _recording.set(flag)
    try:
        yield
    finally:
        _recording.reset(token)


def no_grad() -> Any:
    """A context (or decorator) in which operators do not record themselves for `backward`."""
    return recording_is(False)


def enable_grad() -> Any:
    """A context (or decorator) in which operators record themselves again, inside `no_grad`."""
    return recording_is(True)


def is_grad_enabled() -> bool:
    """Whether operators record themselves for `backward` here."""
    return _recording.get()


recording = _recording.get      # the same, for those who ask at every call
