"""The scalars of a training run -> a few lines that stay on the terminal: curves, rate, time that is left, memory.

    loss      0.412  ▇▆▅▄▃▃▂▂▂▁▁
    step 120 of 1000, 35.2 a second, 0:25 left, 812 MB
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from tenon.debug.console import HAVE_RICH
from tenon.debug.resident_memory import resident_bytes

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 48              # of a curve, in characters
EVERY = 0.25            # seconds between two drawings, at least
History = Mapping[str, Sequence[tuple[int, float]]]


class Dashboard:
    """Draws on a terminal, by rich where it is installed; a pipe or a log file gets nothing.

    `total` is how many steps there will be, where that is known.
    """

    def __init__(self, total: int | None = None, file: TextIO | None = None):
        self.total, self.file = total, file or sys.stderr
        self.shown = HAVE_RICH and self.file.isatty()
        self._began, self._drawn = time.monotonic(), 0.0
        self._live: Any = None

    def update(self, history: History) -> None:
        """Draw the scalars as they are now, unless that was done just before."""
        if self.shown and time.monotonic() - self._drawn >= EVERY:
            self._draw(history)

    def close(self, history: History) -> None:
        """Draw for the last time."""
        if self.shown and history:
            self._draw(history)
        if self._live is not None:
            self._live.stop()
        self.shown = False

    def _draw(self, history: History) -> None:
        from rich.console import Console  # optional dependency
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=Console(file=self.file), auto_refresh=False)
            self._live.start()
        self._drawn = time.monotonic()
        self._live.update(Text(dashboard_text(history, self._drawn - self._began, self.total)), refresh=True)


def dashboard_text(history: History, seconds: float, total: int | None = None) -> str:
    """
    >>> print(dashboard_text({"loss": [(0, 4.0), (1, 2.0), (2, 1.0)]}, seconds=1.5, total=9).partition(" left")[0])
    loss  1  █▃▁
    step 3 of 9, 2 a second, 0:03
    """
    width = max(map(len, history), default=0)
    values = {tag: f"{pairs[-1][1]:.4g}" for tag, pairs in history.items()}
    column = max(map(len, values.values()), default=0)
    lines = [f"{tag:<{width}}  {values[tag]:>{column}}  {curve([value for _, value in pairs])}"
             for tag, pairs in history.items()]
    return "\n".join([*lines, _progress(history, seconds, total)])


def _progress(history: History, seconds: float, total: int | None) -> str:
    done = max((len(pairs) for pairs in history.values()), default=0)
    rate = done / seconds if seconds > 0 else 0.0
    words = [f"step {done}{f' of {total}' if total else ''}", f"{rate:.3g} a second"]
    if total and rate:
        minutes, left = divmod(int(max(0, total - done) / rate), 60)
        words.append(f"{minutes}:{left:02} left")
    if (memory := resident_bytes()) is not None:
        words.append(f"{memory / 1e6:.0f} MB")
    return ", ".join(words)


def curve(values: Sequence[float]) -> str:
    """Numbers as a row of blocks, those that are no numbers as dots; many are averaged.

    >>> curve([0, 1, 2, float("nan"), 7])
    '▁▂▃·█'
    """
    numbers = np.asarray(values, np.float64)
    if numbers.size > WIDTH:
        numbers = np.array([part.mean() for part in np.array_split(numbers, WIDTH)])
    finite = numbers[np.isfinite(numbers)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((x - low) * scale)] if np.isfinite(x) else "·" for x in numbers)
