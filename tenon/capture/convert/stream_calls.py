"""`sys.stdout.write`, `file.write`, `flush` in captured code: text of the graph, which the call writes when it has run.

Files are those that captured code can do nothing else with unnoticed: see `capture.text_streams`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.builtin_overrides import replaces
from tenon.capture.convert.callees import OF_STREAMS
from tenon.capture.convert.captured_text import may_say, option_of, say
from tenon.capture.convert.conversion_runtime import capture_now
from tenon.capture.output_effects import ASKING, flushed, written
from tenon.capture.stdout_watch import Asking
from tenon.capture.text_streams import is_told
from tenon.errors import user_location


def stream_name(file: Any) -> str | None:
    """The name of a standard stream that is as it was outside of the capture."""
    if type(sys.stdout) is Asking and (file is None or file is sys.stdout):
        return "stdout"
    return "stderr" if type(sys.stderr) is Asking and file is sys.stderr else None


def told_stream(file: Any) -> Any:
    """What stands for a stream in what a call says: the name of a standard one, or itself; None for another."""
    return stream_name(file) or (file if is_told(file) else None)


def write(stream: Any, lines: Sequence[Any], plainly: Callable[[], Any]) -> Any:
    """Let the call write these; how many characters the last has."""
    capture = capture_now()
    if capture is None or not may_say(capture) or stream is None or not lines or not all(
            isinstance(line, str) for line in lines):
        return plainly()
    for line in lines:
        say(capture, written, (stream,), (option_of(capture, line),))
    return len(lines[-1]) if type(lines[-1]) is str else Uncounted()


@replaces(Asking.write)
def write_(file: Asking, text: Any) -> Any:
    return write(stream_name(file), [text], lambda: file.write(text))


@replaces(Asking.writelines)
def writelines_(file: Asking, lines: Any) -> None:
    lines = list(lines)
    write(stream_name(file), lines, lambda: file.writelines(lines))


@replaces(Asking.flush)
def flush_(file: Asking) -> None:
    flush(stream_name(file), file.flush)


def flush(stream: Any, plainly: Callable[[], Any]) -> None:
    """Let the call flush a stream."""
    capture = capture_now()
    if capture is None or not may_say(capture) or stream is None:
        plainly()
    else:
        say(capture, flushed, (stream,), ())


OF_STREAMS["write"] = lambda method: lambda text: write(
    told_stream(method.__self__), [text], lambda: method(text))
OF_STREAMS["writelines"] = lambda method: lambda lines: _write_all(method, list(lines))
OF_STREAMS["flush"] = lambda method: lambda: flush(told_stream(method.__self__), method)


def _write_all(method: Any, lines: list[Any]) -> None:
    write(told_stream(method.__self__), lines, lambda: method(lines))


class Uncounted:
    """How many characters a text of the graph has, which nobody knows before the graph has run."""


def _refuse(*_: Any) -> NoReturn:
    raise UnsafeCall("how many characters were written is asked for", where=user_location())


for _name in ASKING:
    setattr(Uncounted, f"__{_name}__", _refuse)
for _name in ("add", "radd", "sub", "rsub", "rmul", "truediv", "rtruediv", "floordiv", "neg", "abs"):
    setattr(Uncounted, f"__{_name}__", _refuse)
