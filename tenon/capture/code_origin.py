"""Code and frames -> whose code they are: the user's, Tenon's or a library's."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Sequence

from tenon.errors import PACKAGE

PACKAGES = ("site-packages", "dist-packages")       # what folders of installed packages are called


def library_folders(path: Sequence[str]) -> tuple[str, ...]:
    """Where libraries lie: those of this Python, Tenon, and what is installed elsewhere on the path, as for a user."""
    installed = {folder for folder in path if os.path.basename(os.path.normpath(folder)) in PACKAGES}
    return tuple({sys.prefix + "/lib", sys.base_prefix + "/lib", PACKAGE, *installed})


LIBRARIES = library_folders(sys.path)
ELSEWHERE = (*LIBRARIES, "<frozen", "<__array_function__")
CONVERTING = PACKAGE + "capture/convert/"
FILES = tuple(PACKAGE + x for x in ("serialization/", "tensor_file.py", "data/"))    # reads and writes files for users
FRONT_END = (PACKAGE + "nn/", PACKAGE + "optim/", PACKAGE + "random.py")    # what holds users' state
OWN = (PACKAGE, "<frozen", "<__array_function__")

# Code of Tenon's that calls what the user's code calls, and in its place.
IN_PLACE: set[types.CodeType] = set()

# Code that was rewritten for a capture -> the code that names what it may read.
STANDS_FOR: dict[types.CodeType, tuple[types.CodeType, ...]] = {}


def runs_for_tenon(frame: types.FrameType | None) -> bool:
    """Whether library code runs for Tenon, or imports something, or reads source code: what it does is no act of the
    program's."""
    while frame is not None:
        name = frame.f_code.co_filename
        if frame.f_code in IN_PLACE and (caller := caller_of(frame)) is not frame:
            frame = caller
            continue
        if name.startswith(("<frozen importlib", PACKAGE)) or name.endswith(("linecache.py", "tokenize.py")):
            return not name.startswith(FILES)
        if follows(frame.f_code):
            return False
        frame = frame.f_back
    return False


def caller_of(frame: types.FrameType) -> types.FrameType:
    """The frame that makes a call, where Tenon's code makes it in its place."""
    found: types.FrameType | None = frame
    if frame.f_code in IN_PLACE:
        while found is not None and found.f_code.co_filename.startswith(CONVERTING):
            found = found.f_back
    return found or frame


def user_frame(frame: types.FrameType) -> types.FrameType:
    """The innermost frame of a user's code."""
    found: types.FrameType | None = frame
    while found is not None and not follows(found.f_code):
        found = found.f_back
    return found or frame


def follows(code: types.CodeType) -> bool:
    """Whether what this code reads is guarded: user code, layers and optimizers, not libraries."""
    return code.co_filename.startswith(FRONT_END) or not code.co_filename.startswith(ELSEWHERE)


def counts_elements(frame: types.FrameType) -> bool:
    """Whether this is a user's code that was not rewritten, so that it may count the elements of a container."""
    code, above = frame.f_code, frame.f_back
    file = above.f_code.co_filename if above is not None else ""
    own = file.startswith(PACKAGE) and not file.startswith(CONVERTING)      # compares data of its own
    generated = code.co_filename.startswith("<") and (own or code.co_name in ("__init__", "__new__", "__hash__"))
    return code not in STANDS_FOR and not code.co_filename.startswith(PACKAGE) and not generated
