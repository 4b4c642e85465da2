"""What an uncaught error of Tenon prints: the frames of the program alone, which end at the user's line.

Only what Python prints at its end is shorter, here and in threads: the traceback of a caught error is whole, and so is
what `TENON_TRACEBACK=full` prints.  Errors that are none of Tenon's, which may be its mistakes, are always whole.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

from tenon.errors import PACKAGE, TenonError

INSIDE = (PACKAGE, "<frozen", "<__array_function__")


def shortened(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without Tenon's own frames; the whole one where there are no others."""
    kept: list[TracebackType] = []
    entry = traceback
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(INSIDE):
            kept.append(entry)
        entry = entry.tb_next
    if not kept:
        return traceback
    made: TracebackType | None = None
    for entry in reversed(kept):
        made = TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return made


def short(error: TenonError, traceback: TracebackType | None) -> TenonError:
    """The error as it is to be printed; what was raised and dealt with inside of Tenon before it is not told."""
    inner = error.__context__
    if inner is not None and error.__cause__ is None and not _has_users_frames(inner.__traceback__):
        error.__suppress_context__ = True
    return error.with_traceback(shortened(traceback))


def _has_users_frames(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(INSIDE):
            return True
        traceback = traceback.tb_next
    return False


def shorten_uncaught() -> None:
    """Let uncaught errors of Tenon be printed short, by whatever prints uncaught errors now."""
    in_main, in_threads = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, TenonError):
            error = short(error, traceback)
            traceback = error.__traceback__
        in_main(kind, error, traceback)

    def thread_hook(given: Any, /) -> None:
        if isinstance(given.exc_value, TenonError):
            error = short(given.exc_value, given.exc_traceback)
            given = threading.ExceptHookArgs((given.exc_type, error, error.__traceback__, given.thread))
        in_threads(given)
    sys.excepthook, threading.excepthook = hook, thread_hook
