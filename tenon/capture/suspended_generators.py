"""Generators that a capture leaves where they yield -> ended while what they do at their end can still be put back.

What keeps them goes with the capture, and Python ends them then: `finally: log.append("closed")` would happen for good.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from dis import opmap
from types import FrameType, GeneratorType

YIELDS = opmap["YIELD_VALUE"]


class SuspendedGenerators:
    """Those that began, and are not done."""

    def __init__(self) -> None:
        self._frames: dict[FrameType, None] = {}

    def enter(self, frame: FrameType) -> None:
        """The frame of a generator runs, or goes on."""
        self._frames[frame] = None

    def leave(self, frame: FrameType) -> None:
        """It yields, or is done."""
        if frame in self._frames and frame.f_code.co_code[frame.f_lasti] != YIELDS:
            del self._frames[frame]

    def forget(self) -> None:
        """Keep nothing of them."""
        self._frames.clear()

    def end(self) -> None:
        """Leave what they are in."""
        for generator in gc.get_referrers(*self._frames) if self._frames else ():
            if isinstance(generator, GeneratorType):
                with suppress(BaseException):       # such as that of a stop before an act
                    generator.close()
