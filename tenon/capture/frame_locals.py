"""Functions that return while they are captured -> which values of the graph their variables were.

That is what names a value for its user: `hidden` is what the variable of that name was, `net.fc1` what that module
returned.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from tenon.graph.ir import Value
from tenon.records import dataclass
from tenon.tensor import Tensor


@dataclass(frozen=True, eq=False)
class ReturnedFrame:
    """What one call of a function held when it returned; `owner` is its `self`."""

    code: CodeType
    owner: weakref.ref[Any] | None
    variables: tuple[tuple[str, Value], ...]
    returned: tuple[Value, ...]


class FrameLocals(list[ReturnedFrame]):
    """The calls of a capture, in the order in which they returned."""

    def see(self, frame: FrameType, returned: Any) -> None:
        """A function returns."""
        held = frame.f_locals
        variables = [(name, value) for name, x in held.items() for value in _values(x)]
        given = tuple(_values(returned))
        if variables or given:
            self.append(ReturnedFrame(frame.f_code, _reference(held.get("self")), tuple(variables), given))


def _values(x: Any) -> Iterator[Value]:
    """The value of the graph that a tensor is, or those of the tensors in a tuple or list.

    By its type: what stands for one of several tensors would note that its class was asked for.
    """
    if issubclass(type(x), Tensor):
        if type(x.own.payload) is Value:
            yield x.own.payload
    elif type(x) in (tuple, list):
        yield from (y.own.payload for y in x if issubclass(type(y), Tensor) and type(y.own.payload) is Value)


def _reference(owner: Any) -> weakref.ref[Any] | None:
    try:
        return None if owner is None else weakref.ref(owner)
    except TypeError:
        return None
