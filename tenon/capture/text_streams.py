"""Text files whose writes a graph can have as effects: nothing that captured code reads of them goes unnoticed.

A file that is open for writing alone gives nothing; one in memory may be read, which moves its position.
"""

from __future__ import annotations

import io
from typing import Any

METHODS = frozenset(("write", "writelines", "flush"))


def is_told(file: Any) -> bool:
    """Whether this is such a file, and open."""
    if type(file) is io.StringIO:
        return not file.closed
    return type(file) is io.TextIOWrapper and not file.closed and file.writable() and not file.readable()


def tells(method: Any) -> bool:
    """Whether this is a method that writes to such a file."""
    return getattr(method, "__name__", "") in METHODS and is_told(getattr(method, "__self__", None))


def is_closed(file: Any) -> tuple[bool]:
    """What a guard looks at."""
    return (file.closed,)


def position(file: Any) -> Any:
    """How far a file in memory is, which reading it moves."""
    return file.tell() if type(file) is io.StringIO and not file.closed else None


def set_position(file: Any, before: Any) -> None:
    """Put it back."""
    if before is not None:
        file.seek(before)
