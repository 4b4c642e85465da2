"""A call that Python makes sooner than a program that asks Python step by step -> that call.

Linear algebra, Fourier transforms and complex numbers are NumPy's in a program too, and a call of NumPy from there
costs more than one from Python.  A function of a few such operators on little data is called as it is.  What else it
does in Python is not seen in the graph: where it turns out to be much, its program is run after all.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from tenon.capture.captured import Captured

MEASURED = 16       # calls, of which the shortest counts: eager code warms up
MISS = object()     # what a way says that a call does not fit


class EagerCall:
    """`fits` says MISS where a call is not one like those of the capture."""

    def __init__(self, captured: Captured, fits: Callable[..., Any], function: Callable[..., Any]):
        self.captured, self.fits, self.function = captured, fits, function
        self.left, self.shortest = MEASURED, float("inf")

    def __call__(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What the function returns."""
        if not self.captured.by_python or self.fits(args, keywords) is MISS:
            return MISS
        if not self.left:
            return self.function(*args, **keywords)
        started = perf_counter()
        result = self.function(*args, **keywords)
        self._note(perf_counter() - started)
        return result

    def _note(self, seconds: float) -> None:
        self.left, self.shortest = max(self.left - 1, 0), min(self.shortest, seconds)
        if not self.left and self.shortest > (self.captured.by_python or 0):
            self.captured.by_python = 0.0
            self.captured.calls = 1         # a way by the program is wanted soon
