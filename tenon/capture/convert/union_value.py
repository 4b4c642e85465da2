"""A value that is one of several things of different kinds: a tensor or None, bound or not, "up" or "down".

The graph knows which.  Code that only passes it on, returns it, or asks whether it `is None` goes on; where it is used
otherwise it is resolved: by what is known on the way there, by taking one of numbers or tensors, or by leaving the
graph where it is something that cannot be used so.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.errors import user_location
from tenon.tensor_state import recorder

MAX_SHOWN = 8       # options, in a message


class Unbound:
    """What a variable holds that has no value."""

    def __repr__(self) -> str:
        return "<unbound>"


UNBOUND = Unbound()


class UnionValue:
    """One of several values: the first whose condition holds, a bool of the graph; the last has none."""

    __slots__ = ("options",)

    def __init__(self, options: tuple[tuple[Any, Any], ...]):
        object.__setattr__(self, "options", options)

    def __repr__(self) -> str:
        raise refusal(self)

    def __getattr__(self, name: str) -> Any:
        return each(self, getattr, name)

    def __bool__(self) -> bool:
        capture: Any = recorder.get()
        known = None if capture is None else capture.truth(self)
        if isinstance(known, bool):
            return known
        raise refusal(self)

    def __setattr__(self, name: str, value: Any) -> None:
        each(self, setattr, name, value)


def resolved(choice: UnionValue) -> Any:
    """What the choice is, as far as the graph around it can tell."""
    capture: Any = recorder.get()
    if capture is None:
        raise refusal(choice)
    return capture.resolve(choice)


def each(choice: UnionValue, use: Callable[..., Any], *args: Any) -> Any:
    """What an operator makes of the value of a choice: of what it is, or of each of several in a branch of its own."""
    capture: Any = recorder.get()
    if capture is None:
        raise refusal(choice)
    return capture.operated(choice, use, args)


def added_to(value: Any, other: Any) -> Any:
    """`other + value`."""
    return other + value


def words(value: Any) -> str:
    """What a value is, in a word or two."""
    if type(value) is UnionValue:
        shown = [words(x) for _, x in value.options[:MAX_SHOWN]]
        left = len(value.options) - len(shown)
        return " or ".join([*shown, f"one of {left} more"] if left else shown)
    if value is None or value is UNBOUND or isinstance(value, (bool, int, float, str)):
        return "unbound" if value is UNBOUND else repr(value)
    if isinstance(value, (list, tuple, dict, set)):
        return f"a {type(value).__name__} of {len(value)}"
    return str(getattr(value, "type", None) or f"a {type(value).__name__}")


def refusal(choice: UnionValue) -> UnsafeCall:
    """For a value that would have to be known."""
    return UnsafeCall(f"a value that is {words(choice)}, as the data decide, is used where it must be known",
                      where=user_location(), hint="give it the same type and shape in all branches")


OPERATORS: dict[str, Callable[..., Any]] = {"__divmod__": divmod}


def _install(name: str, refuses: bool) -> None:
    def method(self: UnionValue, *args: Any) -> Any:
        if refuses or name in ONE_VALUE:
            value = resolved(self)
            return getattr(type(value), name)(value, *args)
        use = OPERATORS.get(name) or getattr(operator, name, None) or (
            lambda value, *rest: getattr(type(value), name)(value, *rest))
        return each(self, use, *args)

    def reflected(self: UnionValue, other: Any) -> Any:
        of = name.replace("__r", "__", 1)
        use = OPERATORS.get(of) or getattr(operator, of)
        return each(self, added_to if use is operator.add else lambda value, other: use(other, value), other)
    setattr(UnionValue, name, reflected if name in REFLECTED else method)


def _names(text: str) -> list[str]:
    return [f"__{name}__" for name in text.split()]


REFLECTED = frozenset(_names("radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift "
                             "rdivmod"))
RESOLVED = _names("add sub mul truediv floordiv mod pow matmul neg pos abs invert lt le gt ge eq ne len iter getitem "
                  "setitem delitem contains call enter exit iadd isub imul itruediv and or xor lshift rshift divmod "
                  "reversed round")
ONE_VALUE = frozenset(_names("len iter contains reversed enter exit"))      # Python wants the answer itself
KNOWN = _names("hash int float index str format next")
for _name in [*RESOLVED, *sorted(REFLECTED), *KNOWN]:
    _install(_name, refuses=_name in KNOWN)
