"""An exception that leaves a function -> whether the function raised it, and raises it again for the same data.

`sys.exit()` and `raise KeyboardInterrupt` are the program's, as any error is.  Ctrl-C, a timer's or another signal's
handler come from outside: they end the capture, and nothing is known of the next call.
"""

from __future__ import annotations

import dis
import signal
import types
from functools import lru_cache

from tenon.capture.code_monitor import UnsafeCall
from tenon.dims.symbolic_dim import PinnedSize

OF_CAPTURE = (UnsafeCall, PinnedSize, GeneratorExit)


def is_of_the_program(error: BaseException | None) -> bool:
    """Whether an exception is the program's own doing."""
    if error is None or isinstance(error, Exception):
        return True
    if isinstance(error, OF_CAPTURE):
        return False
    frames = list(_frames(error))
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    if not frames or any(code in handlers for code, _ in frames):
        return False
    return not isinstance(error, KeyboardInterrupt) or frames[-1][1] in _raises(frames[-1][0])


def _frames(error: BaseException) -> list[tuple[types.CodeType, int]]:
    """The code that an exception came through, the outermost first, and which instruction."""
    found, place = [], error.__traceback__
    while place is not None:
        found.append((place.tb_frame.f_code, place.tb_lasti))
        place = place.tb_next
    return found


@lru_cache(maxsize=64)
def _raises(code: types.CodeType) -> frozenset[int]:
    """Where the code has a `raise`."""
    return frozenset(i.offset for i in dis.get_instructions(code) if i.opname in ("RAISE_VARARGS", "RERAISE"))
