"""A jitted function -> the seconds that each of the user's lines takes as eager code.

The function is called once without its decorator.  Python tells when a line begins; what passes until the next one
counts for it, with all that Tenon does meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tenon.capture.captured import Captured, holder_of
from tenon.capture.jitted import Jitted
from tenon.eager.grad_mode import no_grad
from tenon.errors import PACKAGE
from tenon.tensor import Tensor

Line = tuple[str, int]


def eager_lines(jitted: Jitted, captured: Captured, args: Sequence[Any], keywords: Any) -> dict[Line, float]:
    """Seconds by (file, line), own and called lines apart; the tensors that the call changes are put back."""
    files = {code.co_filename for code in captured.codes if not code.co_filename.startswith((PACKAGE, "<"))}
    with _put_back(captured, captured.leaves_of(args, keywords)):
        jitted.function(*args, **keywords)      # the first call of an operator makes what later ones use
    watch = _Stopwatch(files)
    with _put_back(captured, captured.leaves_of(args, keywords)):
        before = sys.gettrace()
        sys.settrace(watch.event)
        try:
            jitted.function(*args, **keywords)
        finally:
            sys.settrace(before)
    return dict(watch.seconds)


class _Stopwatch:
    """Counts time for the line that is running; frames of other files count for the line that called them."""

    def __init__(self, files: set[str]):
        self.files = files
        self.seconds: dict[Line, float] = defaultdict(float)
        self._running: list[Line] = []
        self._since = time.perf_counter()

    def event(self, frame: FrameType, event: str, _: Any) -> Any:
        """What Python tells of a new frame."""
        if frame.f_code.co_filename not in self.files:
            return None
        self._count()
        self._running.append((frame.f_code.co_filename, frame.f_lineno))
        return self._inside

    def _inside(self, frame: FrameType, event: str, _: Any) -> Any:
        self._count()
        if event == "return":
            if self._running:
                self._running.pop()
        elif event == "line" and self._running:
            self._running[-1] = frame.f_code.co_filename, frame.f_lineno
        return self._inside

    def _count(self) -> None:
        now = time.perf_counter()
        for line in dict.fromkeys(self._running):       # a line has what it calls
            self.seconds[line] += now - self._since
        self._since = time.perf_counter()


@contextmanager
def _put_back(captured: Captured, leaves: Sequence[Any]) -> Iterator[None]:
    """Give the tensors that a call changes the elements and gradients that they had."""
    given = captured.arguments(leaves)
    holders = [holder_of(change.source, given or leaves) for change in captured.changes]
    tensors = [x for x in holders if isinstance(x, Tensor)]
    with no_grad():
        kept = [(x, x.detach().copy(), x.grad) for x in tensors]
    try:
        yield
    finally:
        with no_grad():
            for x, elements, gradient in kept:
                x.assign(elements)
                x.grad = gradient
