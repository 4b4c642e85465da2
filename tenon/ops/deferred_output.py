"""What a graph says in a branch or a loop: elements that are noted while it runs, and told when the run is over.

    with hearing() as heard:
        program.run(arrays)
    for output_effect, arrays in heard: ...
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

import numpy as np

from tenon.context_values import during
from tenon.ops.define import define
from tenon.types import TOKEN, TensorType

Heard = list[tuple[int, tuple[np.ndarray, ...]]]

_heard: ContextVar[Heard | None] = ContextVar("heard", default=None)


def hearing() -> AbstractContextManager[Heard]:
    """A block in which a graph runs; what it says is in the list, in order."""
    heard: Heard = []
    return during(_heard, heard)


def _type(*xs: TensorType, output_effect: int) -> TensorType:
    return TOKEN


def _note(*xs: np.ndarray, output_effect: int) -> np.ndarray:
    heard = _heard.get()
    if heard is not None:
        heard.append((output_effect, tuple(map(np.array, xs))))
    return np.zeros(())


say = define(
    "say", public=False, handles=True, type=_type, ref=_note, effect=True,
    doc="Note these elements for the output effect of this number, which is told when the run is over: what `print` in "
        "a branch or loop of a captured function leaves in the graph.")
