"""Whether operators record themselves for `backward`: the switches `no_grad` and `enable_grad`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tenon.autocast import autocasting, narrowing
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


class differentiating:
    """While gradients are computed: recorded only to be differentiated again, in the types of the forward pass."""

    __slots__ = ("again", "tokens")

    def __init__(self, again: bool):
        self.again = again

    def __enter__(self) -> None:
        self.tokens = _recording.set(self.again), narrowing.set(None)

    def __exit__(self, *_: object) -> None:
        again, before = self.tokens
        narrowing.reset(before)
        _recording.reset(again)


def is_grad_enabled() -> bool:
    """Whether operators record themselves for `backward` here."""
    return _recording.get()


recording = _recording.get      # the same, for those who ask at every call


def modes() -> tuple[bool, DType | None]:
    """All switches that change what operators do: whether they record themselves, and the type of `autocast`."""
    return _recording.get(), autocasting()
