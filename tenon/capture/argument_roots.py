"""Objects among the arguments of a call, such as models: what is known of them does not keep them alive.

Guards look at such a root through a weak reference, effects are made on the argument of the call at hand, and a record
goes with the object that its key names.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tenon.capture.effects import Effect
from tenon.capture.guard_readers import referent
from tenon.capture.guards import GuardGroup, is_value
from tenon.graph.op import Op
from tenon.records import replace
from tenon.tensor import Tensor

LASTING = (type, types.ModuleType, types.BuiltinFunctionType, Op)
Roots = Mapping[int, int]


def reference(x: Any, gone: Callable[[Any], None] | None = None) -> weakref.ref[Any] | None:
    """A weak reference to an argument that can die, and means itself; None for others."""
    if isinstance(x, (Tensor, *LASTING)) or is_value(x):
        return None
    try:
        return weakref.ref(x, gone)
    except TypeError:
        return None


def roots_of(leaves: Sequence[Any]) -> dict[int, int]:
    """The arguments that can die: identity -> which leaf."""
    return {id(x): k for k, x in enumerate(leaves) if reference(x) is not None}


def through(read: Callable[[Any], Any], holder: weakref.ref[Any]) -> Any:
    """What is read of the object that a reference refers to."""
    return read(holder())


def weakly(groups: Sequence[GuardGroup], roots: Roots) -> list[GuardGroup]:
    """The conditions, with references to the roots in the place of them."""
    return [replace(g, read=partial(through, g.read), holder=weakref.ref(g.holder)) if id(g.holder) in roots else
            replace(g, read=still_there, expected=(id(g.expected[0]),))
            if g.read is referent and id(g.expected[0]) in roots else g for g in groups]


def still_there(reference: weakref.ref[Any]) -> tuple[int]:
    """The identity of what a weak reference refers to, which no other object has while there is a record of it."""
    return (id(reference()),)


def direct(group: GuardGroup) -> GuardGroup:
    """The condition as it was before: on the object itself."""
    if isinstance(group.read, partial) and group.read.func is through:
        return replace(group, read=group.read.args[0], holder=group.holder())
    return group


def on_argument(effect: Effect, roots: Roots) -> tuple[Effect, int | None]:
    """An effect on a root as one on that argument, whose number is below 0: `-1 - k`; any other as it is."""
    k = roots.get(id(effect.holder))
    return (effect, None) if k is None else (replace(effect, holder=None), -1 - k)
