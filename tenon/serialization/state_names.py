"""A function -> a name for every tensor that it can find: where it stands in modules, optimizers, closures and globals.

    names_of([("", net.forward), ("", step)])       {id(net.hidden.weight): ["hidden.weight"], ...}

A module's tensors have the names of its `state_dict()`; what a function closes over has the variable's name in front.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tenon.errors import PACKAGE
from tenon.nn.module import Module
from tenon.random import default_generator
from tenon.tensor import Tensor

MAX_OBJECTS = 1_000_000
SEALED = (str, bytes, int, float, complex, bool, type, types.ModuleType, types.BuiltinFunctionType)


def names_of(roots: Iterable[tuple[str, Any]]) -> dict[int, list[str]]:
    """The names of the tensors that can be found from these objects, by identity, the shortest way first."""
    found: dict[int, list[str]] = {}
    seen: set[int] = set()
    kept: list[Any] = []        # so that identities stay theirs
    waiting = deque([*roots, ("generator", default_generator)])
    while waiting and len(seen) < MAX_OBJECTS:
        name, value = waiting.popleft()
        if isinstance(value, Tensor):
            found.setdefault(id(value), []).append(name)
        elif id(value) not in seen and not isinstance(value, SEALED):
            seen.add(id(value))
            kept.append(value)
            waiting.extend((f"{name}.{part}" if name and part else name or part, x) for part, x in _parts(value))
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What stands in an object, and where."""
    if isinstance(value, types.MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, Mapping):
        yield from ((str(key), x) for key, x in value.items())
        yield from _attributes(value)
    elif isinstance(value, (list, tuple, deque)):
        yield from ((str(k), x) for k, x in enumerate(value))
    elif isinstance(value, Module):
        yield from value._state().items()
        yield from _attributes(value)
    else:
        yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(value, "__wrapped__", None) or getattr(value, "func", None)
    if callable(inner):         # a jitted or partial function
        yield "", inner
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((name, x) for name, x in attributes.items() if not name.startswith("__"))


def _of_function(value: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function of the user's closes over, and the globals that it names."""
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:      # not assigned yet
            continue
    if not value.__code__.co_filename.startswith(PACKAGE):
        codes = [value.__code__]
        while codes:
            code = codes.pop()
            yield from ((name, value.__globals__[name]) for name in code.co_names if name in value.__globals__)
            codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
    yield from ((f"default_{k}", x) for k, x in enumerate(value.__defaults__ or ()))
