"""Whether operators record themselves for `backward`: the switches `no_grad` and `enable_grad`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from tenon.autocast import autocasting, narrowing
from tenon.context_values import during
from tenon.types import DType

recording_variable: ContextVar[bool] = ContextVar("recording", default=True)
refusing_nan: ContextVar[bool] = ContextVar("refusing_nan", default=False)      # whether `backward` looks for it


def recording_is(flag: bool) -> AbstractContextManager[Any]:
    return during(recording_variable, flag)


def no_grad() -> Any:
    """A context (or decorator) in which operators do not record themselves for `backward`."""
    return recording_is(False)


def enable_grad() -> Any:
    """A context (or decorator) in which operators record themselves again, inside `no_grad`."""
    return recording_is(True)


def recorded_like(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """A context in which a choice among these is recorded if any of them was: in `enable_grad` within `no_grad`."""
    return recording_is(is_grad_enabled() or any(getattr(x, "node", None) is not None for x in values))


class differentiating:
    """While gradients are computed: recorded only to be differentiated again, in the types of the forward pass."""

    __slots__ = ("again", "tokens")

    def __init__(self, again: bool):
        self.again = again

    def __enter__(self) -> None:
        self.tokens = recording_variable.set(self.again), narrowing.set(None)

    def __exit__(self, *_: object) -> None:
        again, before = self.tokens
        narrowing.reset(before)
        recording_variable.reset(again)


def is_grad_enabled() -> bool:
    """Whether operators record themselves for `backward` here."""
    return recording_variable.get()


recording = recording_variable.get      # the same, for those who ask at every call


def modes() -> tuple[bool, DType | None]:
    """All switches that change what operators do: whether they record themselves, and the type of `autocast`."""
    return recording_variable.get(), autocasting()
