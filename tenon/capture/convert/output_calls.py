"""`print`, `logging`, `warnings.warn`, `str`, `repr`, `format` in captured code: text of the graph, and who says it."""

from __future__ import annotations

import builtins
import logging
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.code_origin import IN_PLACE, user_frame
from tenon.capture.convert.builtin_overrides import aware, replaces
from tenon.capture.convert.callees import OF_TEXT, REPLACED, callee
from tenon.capture.convert.captured_text import form_of, may_say, method_of, option_of, part_of, say, shown
from tenon.capture.convert.conversion_runtime import capture_now
from tenon.capture.convert.converting_capture import ConvertingCapture
from tenon.capture.convert.stream_calls import told_stream
from tenon.capture.output_effects import logged, printed, rules_of_warnings, warned


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does what the user's code would, where the graph cannot."""
    IN_PLACE.add(function.__code__)
    return function


for _function in (form_of, shown, part_of):
    in_place(_function)


def _here() -> types.FrameType:
    return user_frame(sys._getframe())


def speaker() -> ConvertingCapture | None:
    """The capture, where what is said here is said by its call."""
    capture = capture_now()
    return capture if capture is not None and may_say(capture) else None


@in_place
@aware
@replaces(print)
def print_(*args: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:
    capture, stream = speaker(), told_stream(file)
    if capture is not None and stream is None and type(flush) is bool and is_written(file):
        write_parts(capture, file, args, sep, end, flush)
    elif capture is None or stream is None or type(flush) is not bool or not {type(sep), type(end)} <= {
            str, type(None)}:
        print(*args, sep=sep, end=end, file=file, flush=flush)
    else:
        say(capture, printed, (stream,), (tuple([option_of(capture, x) for x in args]), sep, end, flush))


def is_written(file: Any) -> bool:
    """Whether a user's class says what writing to a file means."""
    return isinstance(getattr(type(file), "write", None), types.FunctionType)


def write_parts(capture: ConvertingCapture, file: Any, args: Sequence[Any], sep: Any, end: Any, flush: bool) -> None:
    """What `print` does with such a file."""
    write = callee(file.write)
    for k, x in enumerate(args):
        if k:
            write(" " if sep is None else sep)
        write(shown(capture, x))
    write("\n" if end is None else end)
    if flush:
        callee(file.flush)()


# ---------------------------------------------------------------- logging

def _log(function: Callable[..., Any], level: int | None, root: bool = False) -> None:
    @in_place
    @replaces(function)
    def log(*args: Any, **keywords: Any) -> None:
        capture = speaker()
        start = (not root) + (level is None)
        if capture is None or not keywords.keys() <= {"extra"} or len(args) <= start or \
                not (root or _is_plain(args[0])):
            function(*args, **keywords)
            return
        frame = _here()
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        number = args[start - 1] if level is None else level
        message, *given = args[start:]
        named = len(given) == 1 and type(given[0]) is dict      # values for `%(name)s`
        values = [_options(capture, given[0])] if named else [option_of(capture, x) for x in given]
        message, shown_beside = option_of(capture, message), _options(capture, keywords.get("extra"))
        say(capture, logged, (None if root else args[0], *place), (number, message, values, shown_beside))


def _options(capture: Any, table: Any) -> Any:
    return table and {k: option_of(capture, x) for k, x in table.items()}


def _is_plain(logger: Any) -> bool:
    """Whether messages of a logger are what `logging` makes of them."""
    names = ("isEnabledFor", "handle", "makeRecord", "_log")
    return all(getattr(type(logger), name, None) is getattr(logging.Logger, name) for name in names)


def _adapt(name: str) -> None:
    function, level = getattr(logging.LoggerAdapter, name), getattr(logging, name.upper())

    @in_place
    @replaces(function)
    def log(adapter: Any, message: Any, *args: Any, **keywords: Any) -> None:
        plain = type(adapter).isEnabledFor is logging.LoggerAdapter.isEnabledFor and \
            type(adapter).log is logging.LoggerAdapter.log and isinstance(adapter.logger, logging.Logger)
        if speaker() is None or not plain or not adapter.isEnabledFor(level):
            function(adapter, message, *args, **keywords)
            return
        message, keywords = callee(adapter.process)(message, keywords)
        REPLACED[getattr(logging.Logger, name)](adapter.logger, message, *args, **keywords)


for _name in ("debug", "info", "warning", "error", "critical"):
    _adapt(_name)
    _log(getattr(logging.Logger, _name), getattr(logging, _name.upper()))
    _log(getattr(logging, _name), getattr(logging, _name.upper()), root=True)
_log(logging.Logger.log, None)
_log(logging.log, None, root=True)


@in_place
@replaces(warnings.warn)
def warn_(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **keywords: Any) -> None:
    capture = speaker()
    if capture is None or rules_of_warnings() != capture.warning or isinstance(message, Warning) or \
            stacklevel != 1 or source is not None or keywords:
        warnings.warn(message, category, stacklevel, source, **keywords)
    else:
        frame = _here()
        say(capture, warned, (frame.f_globals, frame.f_code.co_filename, frame.f_lineno),
            (option_of(capture, message), category))


# ---------------------------------------------------------------- text

OF_TEXT.update(join=method_of, format=method_of)


@aware
@replaces(str)
def str_(*args: Any, **keywords: Any) -> Any:
    capture = capture_now()
    return str(*args, **keywords) if capture is None or len(args) != 1 or keywords else shown(capture, args[0])


@aware
@replaces(repr)
def repr_(x: Any) -> Any:
    capture = capture_now()
    return repr(x) if capture is None else shown(capture, x, "__repr__")


@aware
@replaces(builtins.format)
def format_(x: Any, spec: Any = "") -> Any:
    capture = capture_now()
    return format(x, spec) if capture is None else part_of(capture, x, -1, spec)


