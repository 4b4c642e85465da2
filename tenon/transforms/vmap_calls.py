"""A call under `tn.vmap` -> the function run operator by operator on whole batches, or by the graph of one example.

The first way is the plain one.  A function that is seen to ask for the elements of an example goes the second way from
then on.  What it had done in Python until then is put back; so the first call of a function is watched, and those after
it where it had effects.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from tenon.capture.code_monitor import CodeWatch, UnsafeCall, is_watched
from tenon.capture.effects import Snapshot
from tenon.capture.guard_discovery import Reach
from tenon.capture.pytree import Structure
from tenon.errors import PACKAGE
from tenon.graph.op import using
from tenon.tensor import Tensor
from tenon.tensor_state import Changes, recorder
from tenon.transforms.one_example import run_by_graph

Function = Callable[..., Any]
_plain: WeakSet[Any] = WeakSet()        # code, or an object, that asked for nothing and had no effects
_asked_nothing: WeakSet[Any] = WeakSet()    # in a capture, which knows what has effects
_by_graph: WeakSet[Any] = WeakSet()     # that asked for the elements of an example


def run_batched(function: Function, leaves: Sequence[Any], structure: Structure, level: Any, changes: Changes) -> Any:
    """What the function returns, with examples of this level among the leaves of its arguments."""
    capture, subject = recorder.get(), subject_of(function)
    call = function, leaves, structure, level, changes
    is_quiet = is_own(subject) or subject in _plain
    if capture is None and subject in _by_graph:
        return by_graph(*call)
    if getattr(capture, "converting", False) and not is_quiet and subject not in _asked_nothing:
        return by_graph(*call)
    if capture is None and not is_watched() and not is_quiet:
        return run_watched(*call)
    try:
        result = run_plain(*call)
    except UnsafeCall as unsafe:
        note_need(subject, unsafe)
        if capture is not None or is_watched() or not unsafe.convertible:
            raise
    else:
        if capture is not None:
            note(_asked_nothing, subject)
        return result
    changes.settle()
    changes.restore()
    return by_graph(*call)


def run_plain(function: Function, leaves: Sequence[Any], structure: Structure, level: Any, changes: Changes) -> Any:
    """Operator by operator."""
    with using(level), changes.noted():
        args, keywords = structure.build(leaves)
        return function(*args, **keywords)


def by_graph(function: Function, leaves: Sequence[Any], structure: Structure, level: Any, changes: Changes) -> Any:
    """By the graph of one example."""
    with using(level.outer), changes.noted():
        return run_by_graph(function, leaves, structure, level)


def run_watched(function: Function, leaves: Sequence[Any], structure: Structure, level: Any, changes: Changes) -> Any:
    """Operator by operator, up to where the function asks for an element, or does what cannot be put back."""
    reach, subject = Reach(None), subject_of(function)
    for root in (getattr(function, "__func__", function), *(x for x in leaves if not isinstance(x, Tensor))):
        reach.add(root, "the function")
    snapshot = Snapshot(list(reach.holders.values()), reach.cells)
    try:
        with CodeWatch(iterators=reach.iterators).stopping():
            result = run_plain(function, leaves, structure, level, changes)
    except UnsafeCall as unsafe:
        note_need(subject, unsafe)
        snapshot.restore()
        for kept in reach.kept:
            kept.put_back()
        changes.settle()
        changes.restore()
        return by_graph(function, leaves, structure, level, changes)
    if not snapshot.changes() and not any(kept.put_back() for kept in reach.kept):
        note(_plain, subject)
    return result


def note_need(subject: Any, unsafe: UnsafeCall) -> None:
    """Note that it asked for the elements of an example, if that is why it was stopped."""
    if unsafe.convertible and not is_own(subject):
        note(_by_graph, subject)
        for known in (_plain, _asked_nothing):
            known.discard(subject)


def note(known: WeakSet[Any], subject: Any) -> None:
    """Note what is known of it, but for objects that nobody can refer to weakly."""
    with suppress(TypeError):
        known.add(subject)


def subject_of(function: Any) -> Any:
    """What is known of a function is known of all functions of its code: this code, or the object that is called."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif "__wrapped__" in getattr(function, "__dict__", ()):
            function = function.__wrapped__
        else:
            return getattr(function, "__code__", function)


def is_own(subject: Any) -> bool:
    """Whether this is code of Tenon's, which has no effects."""
    return isinstance(subject, types.CodeType) and subject.co_filename.startswith(PACKAGE)
