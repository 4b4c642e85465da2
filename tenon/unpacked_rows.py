"""`_, i = torch.max(x, 1)`: rows of one tensor where PyTorch has two tensors -> a warning, once a line."""

from __future__ import annotations

import dis
import opcode
import warnings
from functools import lru_cache
from types import CodeType, FrameType

# What gives (values, indices) in PyTorch and one tensor here -> how both are written.
PAIRS = {
    "max": "x.max(1), x.argmax(1)", "min": "x.min(1), x.argmin(1)", "sort": "x.sort(1), x.argsort(1)",
    "median": "x.kthvalue((n + 1) // 2, 1)", "cummax": "x.cummax(1, return_indices=True)",
    "cummin": "x.cummin(1, return_indices=True)", "nanmedian": 'x.nanquantile(0.5, 1, method="lower")',
}
LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")
UNPACK = opcode.opmap["UNPACK_SEQUENCE"]


class PortingWarning(UserWarning):
    """A call that means another thing in the library that a program comes from."""


def warn_of_rows(frame: FrameType) -> None:
    """Warn where a frame unpacks into two names what it has just called by a name of `PAIRS`."""
    code, at = frame.f_code, frame.f_lasti
    if code.co_code[at] == UNPACK and (name := _called_before(code, at)) is not None:
        warnings.warn(f"{name}: two names get the rows of one tensor, PyTorch gives (values, indices); write "
                      f"{PAIRS[name]}, or x.{name}(1).unbind() for rows", PortingWarning, stacklevel=3)


@lru_cache(1024)
def _called_before(code: CodeType, at: int) -> str | None:
    """The name of `PAIRS` whose call gives what is unpacked into two at an instruction."""
    before = [x for x in dis.get_instructions(code) if x.offset <= at]
    if len(before) < 2 or before[-1].arg != 2 or not before[-2].opname.startswith("CALL"):
        return None
    call = before[-2].positions
    # The function's name is what begins where its call begins and ends where the arguments do.
    heads = [x for x in before[:-2] if x.opname in LOADS and call is not None and x.positions is not None
             and x.positions[0] == call[0] and x.positions[2] == call[2] and x.positions[1:4:2] != call[1:4:2]]
    found = heads[-1].argval if heads else None
    return found if found in PAIRS else None
