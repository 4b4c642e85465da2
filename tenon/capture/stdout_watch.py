"""What a captured function prints where no call shows it: `list(map(print, xs))` is C code that calls C code.

While anything is captured, `sys.stdout` and `sys.stderr` are streams that ask before they write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from tenon.locks import Lock


class Asking:
    """A stream that calls `ask` before something is written to it, and is the stream itself in all else."""

    def __init__(self, stream: Any, ask: Callable[[], None]):
        self._stream, self._ask = stream, ask

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        """Ask, then write."""
        self._ask()
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> Any:
        """Ask, then write."""
        self._ask()
        return self._stream.writelines(lines)

    def flush(self) -> None:
        """Ask, then flush."""
        self._ask()
        self._stream.flush()


class Streams:
    """The standard streams of the process, which ask as long as anybody wants them to."""

    def __init__(self, ask: Callable[[], None]):
        self.ask, self.lock, self.wanted = ask, Lock(), 0

    def begin(self) -> None:
        """Let the streams ask, until `end`."""
        with self.lock:
            self.wanted += 1
            self._replace(lambda x: x if x is None or type(x) is Asking else Asking(x, self.ask))

    def end(self) -> None:
        """Let them be what they were, unless somebody else wants them to ask."""
        with self.lock:
            self.wanted -= 1
            if self.wanted == 0:
                self._replace(lambda x: x._stream if type(x) is Asking else x)

    @staticmethod
    def _replace(new: Callable[[Any], Any]) -> None:
        sys.stdout, sys.stderr = new(sys.stdout), new(sys.stderr)
