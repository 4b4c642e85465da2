"""State that effects cannot describe -> its value before a capture, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.records import dataclass


class RandomGenerators:
    """The global generators of random numbers, which library code draws from without a trace."""

    def __init__(self) -> None:
        import random  # local: slow to load, and wanted when something is captured
        self.random, self.python = random, random.getstate()
        self.numpy: Any = np.random.get_state(legacy=False)

    def put_back(self) -> str:
        """Undo what was drawn, for the run that draws it again; says from which."""
        if self.random.getstate() != self.python:
            self.random.setstate(self.python)
            return "random"
        if not _equal(np.random.get_state(legacy=False), self.numpy):
            np.random.set_state(self.numpy)
            return "numpy.random"
        return ""


@dataclass(eq=False)
class KeptThing:
    """A mutable thing that effects cannot describe: how to read all of it, and how to put it back."""

    holder: Any
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    path: str

    def __post_init__(self) -> None:
        self.before = self.read(self.holder)

    def put_back(self) -> str | None:
        """Undo what the captured function changed; says what it was, None where nothing changed."""
        if _equal(self.read(self.holder), self.before):
            return None
        self.write(self.holder, self.before)
        return f"{self.path}, of type {type(self.holder).__name__}, is changed by the function"


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    return bool(left == right)
