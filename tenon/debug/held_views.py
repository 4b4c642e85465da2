"""What is a view in PyTorch, held under a name, and changed in place: `row = x[0]; row.zero_()` changes x there.

Here the row is a tensor of its own.  While a program is ported, what its own lines cut out of a tensor, or see in
another shape, is noted; so a change of it can be told as long as there is the tensor that it comes from.
"""

from __future__ import annotations

import dis
import sys
import weakref
from functools import lru_cache, partial
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from tenon.errors import PACKAGE
from tenon.pytorch_methods import Data, DataPart
from tenon.slice_stores import says_its_whole
from tenon.tensor import Tensor

VIEWS = (
    "__getitem__", "H", "T", "broadcast_to", "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "hsplit",
    "mH", "mT", "moveaxis", "movedim", "narrow", "permute", "ravel", "reshape", "reshape_as", "select", "split",
    "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind", "unflatten",
    "unfold", "unsqueeze", "view", "view_as", "vsplit")
ROWS = tuple(x for x in Tensor.__iter__.__code__.co_consts if isinstance(x, CodeType))      # of `for row in x`

_sources: dict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = {}       # by id: the view, what it is one of


def note(base: Any, made: Any, frame: FrameType, key: Any = None) -> None:
    """Note what a line of the program's has made, which is a view of `base` where the key does not copy."""
    by_user = frame.f_code in ROWS or not frame.f_code.co_filename.startswith(PACKAGE)
    if not by_user or not isinstance(base, Tensor) or not _cuts(key):
        return
    source = source_of(base)
    if source is None:
        source = base.owner if isinstance(base, Data) else base.whole.owner if isinstance(base, DataPart) else base
    for view in made if isinstance(made, (tuple, list)) else (made,):
        if type(view) is Tensor and view is not base:
            _sources[id(view)] = weakref.ref(view, partial(_forget, id(view))), weakref.ref(source)


def _forget(here: int, _: Any) -> None:
    _sources.pop(here, None)


def source_of(view: Any) -> Tensor | None:
    """The tensor that this is a view of in PyTorch, where there still is one."""
    found = _sources.get(id(view))
    return found[1]() if found is not None and found[0]() is view else None


def changes_its_source(args: tuple[Any, ...], named: Any) -> bool:
    """Whether a tensor that is given new elements is a view that the program holds."""
    return source_of(args[0]) is not None and not _is_given_back(_users_frame(), args[0])


def _users_frame() -> FrameType:
    """The innermost frame of the program's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def _cuts(key: Any) -> bool:
    """Whether an index makes a view: it has numbers, slices, None and `...` only."""
    return all(part is None or type(part) in (int, slice, type(...)) for part in (
        key if isinstance(key, tuple) else (key,)))


def _is_given_back(frame: FrameType, view: Tensor) -> bool:
    """Whether the line stores the changed slice itself, `x[0] += 1`, or has it stored, `x[0].add_(1)`."""
    return frame.f_lasti in _stores_after(frame.f_code) or says_its_whole(frame, view)


@lru_cache(1024)
def _stores_after(code: CodeType) -> frozenset[int]:
    """Where a code computes what the next instruction stores as an item."""
    found = [x for x in dis.get_instructions(code) if x.opname not in ("CACHE", "SWAP", "ROT_TWO", "ROT_THREE")]
    return frozenset(a.offset for a, b in pairwise(found)
                     if a.opname == "BINARY_OP" and b.opname == "STORE_SUBSCR")
