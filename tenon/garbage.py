"""Python's collector of cycles, put off while a graph is compiled.

A graph is one large cycle (nodes know their values, values their node), and so are its loop nests and its LLVM IR.
They live until the graph is compiled, so looking for garbage again and again meanwhile finds little, and takes a tenth
of the time.  What has become garbage is freed at the end, by a look at the objects made since; `give_back` hands the
memory on.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tenon.locks import Lock

_changing = Lock()
_users = 0              # threads that compile
_was_enabled = False


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """No cycle is looked for before the end of the `with`; where several threads are in one, that of the last.

    >>> import gc
    >>> with collected_at_the_end():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    global _users, _was_enabled
    with _changing:
        _users += 1
        if _users == 1:
            _was_enabled = gc.isenabled()
            gc.disable()
    try:
        yield
    finally:
        with _changing:
            _users -= 1
            last = _users == 0 and _was_enabled
            if last:
                gc.enable()
        if last:
            gc.collect(0)


def give_back() -> None:
    """Return to the system what the C library keeps of memory that was freed, 20 to 30 MB after compiling a network.

    >>> give_back()
    """
    import ctypes  # local: slow to load, and here by now where anything was compiled

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:                # glibc's alone
        trim(0)


def _after_fork() -> None:
    """A child has none of the threads that compile."""
    global _users
    if _users:
        _users = 0
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
