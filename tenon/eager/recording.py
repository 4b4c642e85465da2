"""Whether operators record themselves for `backward`: the switches `no_grad` and `enable_grad`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tenon.autocast import autocast_is, autocasting
from tenon.types import DType

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


@contextmanager
def differentiating(again: bool) -> Iterator[None]:
    """While gradients are computed: recorded only to be differentiated again, in the types of the forward pass."""
    with recording_is(again), autocast_is(None):
        yield


def is_grad_enabled() -> bool:
    """Whether operators record themselves for `backward` here."""
    return _recording.get()


recording = _recording.get      # the same, for those who ask at every call


def modes() -> tuple[bool, DType | None]:
    """All switches that change what operators do: whether they record themselves, and the type of `autocast`."""
    return _recording.get(), autocasting()
