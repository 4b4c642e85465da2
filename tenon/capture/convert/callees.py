"""What rewritten code is about to call -> the same thing, rewritten too where it is a user's function.

Functions of Python that would ask a tensor for its truth or its value have others in their place, which stay in the
graph; they are looked up by the function itself, whatever it is called.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from operator import is_
from typing import Any

from tenon.capture.code_monitor import unwatched
from tenon.capture.code_origin import STANDS_FOR, follows
from tenon.capture.convert.ast_templates import HELPER
from tenon.capture.convert.source_definitions import Unconvertible
from tenon.capture.guard_readers import cell_contents
from tenon.capture.text_streams import tells
from tenon.errors import PACKAGE
from tenon.tensor import Tensor
from tenon.tensor_state import recorder

# Code of Tenon's that is rewritten as users' is: what calls users' modules, what goes through users' containers.
CONTAINERS = tuple(PACKAGE + name for name in ("nn/containers.py", "nn/module.py", "optim/learning_rates.py",
                                                 "optim/cyclic_lr.py", "capture/convert/builtins_in_python.py"))
OPTIMIZERS = (PACKAGE + "optim/optimizer.py", PACKAGE + "optim/clipping.py")
REPLACED: dict[Any, Callable[..., Any]] = {}        # filled by `builtin_overrides`
OF_TEXT: dict[str, Callable[..., Any]] = {}         # methods of `str`, filled by tenon.capture.convert.output_calls
OF_STREAMS: dict[str, Callable[..., Any]] = {}      # and of text files, by tenon.capture.convert.stream_calls
_codes: dict[tuple[str, types.CodeType], types.CodeType | None] = {}     # by file: equal code may stand elsewhere
_cell = types.CellType()                            # holds the runtime; filled by `convert_function`
Rewrite = Callable[[types.CodeType, dict[str, Any]], types.CodeType]
_rewrite: list[Rewrite] = []


def set_up(rewrite: Rewrite, runtime: Any) -> None:
    """Say how code is rewritten, and what rewritten code calls."""
    _rewrite.append(rewrite)
    _cell.cell_contents = runtime


def callee(function: Any) -> Any:
    """The function (or method, class, object) to call in the place of another."""
    kind = type(function)
    if kind is types.FunctionType:
        return REPLACED.get(function) or around_converted(converted(function))
    if kind is types.MethodType:
        inner = callee(function.__func__)
        return function if inner is function.__func__ else types.MethodType(inner, function.__self__)
    if kind is functools.partial:
        inner = callee(function.func)
        return function if inner is function.func else functools.partial(inner, *function.args, **function.keywords)
    try:
        other = REPLACED.get(function)
    except TypeError:
        other = None
    if other is not None:
        return other
    if kind is types.BuiltinMethodType and type(function.__self__) is str and function.__name__ in OF_TEXT:
        return OF_TEXT[function.__name__](function)
    if kind is types.BuiltinMethodType and function.__name__ in OF_STREAMS and tells(function):
        return OF_STREAMS[function.__name__](function)
    if kind is type:
        return _constructor(function)
    inner = getattr(kind, "__call__", None)     # noqa: B004
    if isinstance(inner, types.FunctionType):
        jitted = vars(function).get("function") if kind.__module__ == "tenon.capture.jitted" else None
        if jitted is not None:
            return callee(jitted)
        new = converted(inner)
        return function if new is inner else types.MethodType(new, function)
    return function


def converted(function: types.FunctionType) -> types.FunctionType:
    """A user's function with rewritten code; it shares globals, defaults and closure cells. Others stay as they are."""
    code = code_of(function)
    if code is None:
        return function
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[HELPER] = _cell
    new = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__,
                             tuple(cells[name] for name in code.co_freevars))
    new.__kwdefaults__ = function.__kwdefaults__
    new.__dict__.update(function.__dict__)
    new.__qualname__, new.__module__ = function.__qualname__, function.__module__
    return new


def around_converted(function: types.FunctionType) -> types.FunctionType:
    """A library's wrapper, such as `tn.grad(f)`, around the rewritten form of what it calls."""
    if "__wrapped__" not in vars(function) or not function.__closure__ or follows(function.__code__):
        return function
    contents = [cell_contents(cell)[0] for cell in function.__closure__]
    inner = [callee(x) if callable(x) and not isinstance(x, type) and x is not function else x for x in contents]
    if all(map(is_, inner, contents)):
        return function
    itself = types.CellType()       # for a wrapper that calls itself
    cells = [itself if y is function else cell if x is y else types.CellType(y)
             for cell, x, y in zip(function.__closure__, contents, inner, strict=True)]
    new = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__,
                             tuple(cells))
    itself.cell_contents = new
    new.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(new, function)
    return new


def code_of(function: types.FunctionType) -> types.CodeType | None:
    """The rewritten code of a function, made once; None where it runs as it is."""
    code = function.__code__
    if code in STANDS_FOR or not ((follows(code) and not code.co_filename.startswith(PACKAGE))
                                  or code.co_filename.startswith(CONTAINERS) or _asks_for_gradients(code)):
        return None
    key = code.co_filename, code
    if key not in _codes:
        with unwatched():
            try:
                _codes[key] = _rewrite[-1](code, function.__globals__)
            except Unconvertible:
                _codes[key] = None
    return _codes[key]


def _asks_for_gradients(code: types.CodeType) -> bool:
    """Whether this is code of an optimizer's, where the data decide which gradients there are."""
    return code.co_filename.startswith(OPTIMIZERS) and getattr(recorder.get(), "irregular", False)


def _constructor(cls: type) -> Any:
    """A class whose `__init__` is a user's: what makes an object as the class does."""
    init = cls.__dict__.get("__init__")
    if not isinstance(init, types.FunctionType) or (new_init := converted(init)) is init:
        return cls

    def make(*args: Any, **keywords: Any) -> Any:
        own = any("__new__" in vars(base) for base in cls.__mro__[:-1])
        made = cls.__new__(cls, *args, **keywords) if own else object.__new__(cls)
        if isinstance(made, cls):
            new_init(made, *args, **keywords)
        return made
    return make


def getter(holder: Any, name: str) -> Any:
    """`holder.name`, by a rewritten property where a user wrote it."""
    found = getattr(type(holder), name, None)
    if type(found) is property and isinstance(found.fget, types.FunctionType):
        read = converted(found.fget)
        if read is not found.fget:
            return read(holder)
    return getattr(holder, name)


def own_truth(value: Any) -> Any:
    """What the `__bool__` of a user's object gives, which may be a bool of the graph; any other value itself."""
    if value is True or value is False or isinstance(value, Tensor):
        return value
    test = getattr(type(value), "__bool__", None)
    if not isinstance(test, types.FunctionType) or code_of(test) is None:
        return value
    return converted(test)(value)
