"""What the form of symbolic sizes does not say is asked of a capture: who answers, and who asked, Tenon or its user."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tenon.errors import PACKAGE, TenonError

if TYPE_CHECKING:
    from tenon.dims.symbolic_dim import Dim, SymbolicDim

F = TypeVar("F", bound=Callable[..., Any])
METHODS = ("/dataclasses.py", "/reprlib.py")      # where those of dataclasses are, Python's and ours


class UndecidedSize(TenonError):
    """A decision needs the number behind a symbolic size, and nothing may be assumed about it."""


class Answering(Protocol):
    """Who is asked what the normal form cannot say: `tenon.dims.size_assumptions.Assumptions`."""

    def answer(self, left: Dim, relation: str, right: Dim) -> bool: ...

    def needed(self, dim: Dim) -> BaseException:
        """What to raise where the number behind a size is needed."""

    def note(self, raised: BaseException) -> None:
        """That a number is needed, which is raised now."""

    def number(self, dim: SymbolicDim) -> Any:
        """What stands for the number behind a size; raises where nothing does."""


innermost: ContextVar[Answering | None] = ContextVar("innermost", default=None)


_for_user: set[CodeType] = set()


def for_user(function: F) -> F:
    """A function of Tenon's that does to the user's values what the user's code says, and so asks for the user."""
    _for_user.add(function.__code__)
    return function


def asked_by_user() -> bool:
    """Whether a method of a size was called in a capture, by other code than Tenon's own."""
    if innermost.get() is None:
        return False
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename.endswith(METHODS) or (
            frame.f_code.co_filename == "<string>" and frame.f_code.co_name.startswith("__"))):
        frame = frame.f_back        # a method of a dataclass
    return frame is not None and (frame.f_code in _for_user or not frame.f_code.co_filename.startswith(
        (PACKAGE, weakref.__file__)))
