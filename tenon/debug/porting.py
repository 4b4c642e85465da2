"""Calls that mean another thing in the library that a program comes from -> a warning, once a line.

    with tn.debug.porting("torch"):
        train()         # PortingWarning: max: PyTorch gives (values, indices); write x.max(1), x.argmax(1)

What such a call would give there, and how it is written here, stands in `DIFFERENCES`.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

import numpy as np

from tenon.debug.held_views import VIEWS, changes_its_source, note
from tenon.errors import PACKAGE, ArgumentError
from tenon.graph.operators import Operators
from tenon.locks import Lock
from tenon.nn.module import Module, Parameter
from tenon.records import dataclass
from tenon.slice_stores import lost_change, store_slice
from tenon.tensor import NOBODYS, Tensor
from tenon.unpacked_rows import PAIRS, PortingWarning

CALLS_FOR_USERS = os.path.join(PACKAGE, "capture", "convert") + os.sep      # what makes a captured function's calls

Call = Callable[[tuple[Any, ...], Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Difference:
    """What a call gives in PyTorch, how that is written here, and which calls it is about."""

    theirs: str
    write: str
    concerns: Call


def _axis_given(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    return type(args[1] if len(args) > 1 else named.get("axis", named.get("dim"))) is int


def _unless(*names: str) -> Call:
    return lambda args, named: not any(name in named for name in names)


def _always(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    return True


def _sections_are(kind: type) -> Call:
    def concerns(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        given = args[1] if len(args) > 1 else next((named[n] for n in (
            "sections", "split_size", "split_size_or_sections") if n in named), None)
        return isinstance(given, (list, tuple) if kind is list else kind)
    return concerns


def _even(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    return len(args) == 1 and not named


def _of_an_array(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    return len(args) > 1 and isinstance(args[1], np.ndarray) and args[1].dtype != np.float32


def _moves_an_axis(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Of `x[0, :, i]`: NumPy takes 0 for an index like i, and puts their axis first as they stand apart."""
    key = args[1] if isinstance(args[1], tuple) else ()
    several = [k for k, part in enumerate(key) if isinstance(part, list) or getattr(part, "ndim", None)]
    every = [k for k, part in enumerate(key) if k in several or type(part) is int]
    return bool(several) and _apart(every) and not _apart(several) and any(
        k not in every for k in range(several[0]))


def _apart(places: list[int]) -> bool:
    return places[-1] - places[0] >= len(places)


def _holds_layers(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Of `net.x = [layer]`: modules are found in lists, too, and so are their parameters."""
    return isinstance(args[2], (list, tuple, dict)) and _has_parameters(args[2])


def _has_parameters(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_parameters, value.values() if isinstance(value, dict) else value))
    return isinstance(value, (Module, Parameter))


def _few(args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    return len(args) < 4


DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "max": (Difference("(values, indices)", PAIRS["max"], _axis_given),),
    "min": (Difference("(values, indices)", PAIRS["min"], _axis_given),),
    "sort": (Difference("(values, indices)", PAIRS["sort"], _always),),
    "median": (Difference("(values, indices), of two the lower", PAIRS["median"], _axis_given),
               Difference("of two in the middle the lower", "x.ravel().kthvalue((n + 1) // 2)[0]", _even)),
    "nanmedian": (Difference("(values, indices), of two the lower", PAIRS["nanmedian"], _axis_given),
                  Difference("of two in the middle the lower", 'x.nanquantile(0.5, method="lower")', _even)),
    "cummax": (Difference("(values, indices)", PAIRS["cummax"], _unless("return_indices")),),
    "cummin": (Difference("(values, indices)", PAIRS["cummin"], _unless("return_indices")),),
    "split": (Difference("pieces of this size", "x.split_with_sizes([2, 2, 1])", _sections_are(int)),
              Difference("pieces of these sizes", "x.split_with_sizes([1, 3])", _sections_are(list))),
    "repeat": (Difference("the tensor side by side", "x.tile(2, 1)", _few),),
    "nonzero": (Difference("one tensor of rows", "x.nonzero(as_tuple=False)", _unless("as_tuple")),),
    "meshgrid": (Difference("the first input along axis 0", 'tn.meshgrid(x, y, indexing="ij")', _unless("indexing")),),
    "svd": (Difference("U, S, V", "U, S, Vh = tn.linalg.svd(x, full_matrices=False)", _always),),
    "lu": (Difference("LU, pivots", "tn.linalg.lu_factor(x)", _always),),
    "Tensor": (Difference("float32", "tn.tensor(array, dtype=tn.float32)", _of_an_array),),
    "x[0, :, i]": (Difference("the axis of i in its place", "x[0][:, i]", _moves_an_axis),),
    "triu_indices": (Difference("one tensor of two rows", "tn.stack(tn.triu_indices(n, n))", _always),),
    "tril_indices": (Difference("one tensor of two rows", "tn.stack(tn.tril_indices(n, n))", _always),),
    "net.x = [layer]": (Difference("no parameters of it", "nn.ModuleList([layer]), or lambda: layer to hide it",
                                   _holds_layers),),
    "y.add_(1)": (Difference("a change of x too, after y = x[0]", "x[0].add_(1), or y = y.add(1)",
                             changes_its_source),),
    "equal": (Difference("one bool for all elements", "tn.array_equal(x, y)", _always),),
} | {name: (Difference("a division by n - 1", f"x.{name}(correction=1)", _unless("correction", "unbiased")),)
     for name in ("std", "var", "std_mean", "var_mean")}

# Those that are not called by their name: the methods, and whose they are.
METHODS: dict[str, tuple[type, tuple[str, ...]]] = {
    "Tensor": (Tensor, ("__init__",)), "x[0, :, i]": (Tensor, ("__getitem__", "__setitem__")),
    "net.x = [layer]": (Module, ("__setattr__",)), "y.add_(1)": (Tensor, ("_rebind",))}
THROUGH = {"y.add_(1)": PACKAGE}        # what is between those and the program's line

_lock = Lock()
_active: list[set[tuple[str, int, str]]] = []      # of each block that is open: the lines that were warned about
_originals: dict[tuple[Any, str], Any] = {}


@contextmanager
def porting(library: str = "torch") -> Iterator[None]:
    """Warn, once a line, about calls in this block that mean another thing in PyTorch, and how to write that.

    Raises ArgumentError for another library.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as found, tn.debug.porting("torch"):
    ...     warnings.simplefilter("always")
    ...     _ = tn.ones(2, 3).std()
    >>> print(found[0].message)
    std: PyTorch gives a division by n - 1; write x.std(correction=1)
    """
    if library not in ("torch", "pytorch"):
        raise ArgumentError(f"porting: differences to {library!r} are not known", hint='tn.debug.porting("torch")')
    with _lock:
        if not _active:
            _install()
        _active.append(set())
    try:
        yield
    finally:
        with _lock:
            _active.pop()
            if not _active:
                _remove()


def _install() -> None:
    """Put a warning before every function and method of the table, and watch what makes views."""
    for name in [*DIFFERENCES, *(name for name in VIEWS if name not in DIFFERENCES)]:
        first, methods = METHODS.get(name, (sys.modules["tenon"], (name,)))
        for holder in (first, Operators, *((Tensor,) if name in VIEWS else ())):
            for called in methods:
                if called in vars(holder) and (holder, called) not in _originals:
                    _originals[holder, called] = vars(holder)[called]
                    setattr(holder, called, _watched(name, called, vars(holder)[called]))


def _remove() -> None:
    for (holder, name), original in _originals.items():
        setattr(holder, name, original)
    _originals.clear()


def _watched(name: str, method: str, original: Any) -> Any:
    """The same, which warns of what concerns it."""
    if isinstance(original, property):
        return property(_watched(name, method, original.fget))
    if method == "__setitem__":
        return _watched_store(name, original)
    makes_views, by_key = method in VIEWS, method == "__getitem__"

    @functools.wraps(original, updated=())
    def called(*args: Any, **named: Any) -> Any:
        _look(name, args, named)
        made = original(*args, **named)
        if makes_views and args:
            note(args[0], made, sys._getframe(1), args[1] if by_key else None)
        return made
    return called


def _watched_store(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The same of `x[key] = value`; of a slice that nobody holds, `x[i][j]`, which only the first call can tell."""
    def __setitem__(self: Any, key: Any, value: Any) -> None:
        is_nobodys = getrefcount(self) <= NOBODYS and type(self) is Tensor
        _look(name, (self, key), {})
        original(self, key, value)
        if is_nobodys and not store_slice(sys._getframe(1), self):
            raise lost_change()
    return __setitem__


def _look(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    for difference in DIFFERENCES.get(name, ()):
        if difference.concerns(args, named):
            _warn(name, difference)
            break


def _warn(name: str, difference: Difference) -> None:
    frame, depth = sys._getframe(3), 4
    while frame.f_back is not None and frame.f_code.co_filename.startswith(THROUGH.get(name, CALLS_FOR_USERS)):
        frame, depth = frame.f_back, depth + 1
    if frame.f_code.co_filename.startswith(PACKAGE):
        return          # a call of Tenon's own, which means what it says
    place = (frame.f_code.co_filename, frame.f_lineno, name)
    if _active and place not in _active[-1]:
        _active[-1].add(place)
        warnings.warn(f"{name}: PyTorch gives {difference.theirs}; write {difference.write}", PortingWarning,
                      stacklevel=depth)
