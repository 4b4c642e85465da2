"""How long a thread that comes back from LLVM waits for Python's lock while another thread computes in Python.

A compilation comes back some fifty times.  Python lets others have the lock every 5 milliseconds, so beside a thread
that lowers kernels a compilation of 80 ms would take 200.
"""

from __future__ import annotations

import sys

from tenon.locks import Lock

SWITCH_SECONDS = 0.0005  # seconds


class ShortTurns:
    """Within it, in any thread, Python's threads take short turns.

    >>> import sys
    >>> usual = sys.getswitchinterval()
    >>> with ShortTurns():
    ...     sys.getswitchinterval() < usual
    True
    >>> sys.getswitchinterval() == usual
    True
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._usual = Lock(), 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, SWITCH_SECONDS))
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._usual)

    def forked(self) -> None:
        """In a child the threads that were inside are gone."""
        if self._inside:
            self._inside = 0
            sys.setswitchinterval(self._usual)
