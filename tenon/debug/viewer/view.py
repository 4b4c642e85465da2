"""A call of a function -> a page, a JSON file or a picture of everything that became of it.

    tn.debug.view(step, x, y, path="view.html")
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from tenon.debug.viewer.document import document_of
from tenon.debug.viewer.dot import dot_of
from tenon.debug.viewer.graph_data import Data
from tenon.debug.viewer.memory_text import memory_text
from tenon.debug.viewer.page import page_of
from tenon.debug.watched_values import Watched
from tenon.errors import ArgumentError
from tenon.records import dataclass

FRAME_HEIGHT = 720      # pixels, in a notebook


@dataclass(frozen=True)
class View:
    """All that there is to see of a call: `data` as docs/viewer.md describes it; a notebook shows the page."""

    data: Data

    def save(self, path: str | Path) -> None:
        """Write a file, of the kind that its name ends in: `.html`, `.json` or `.dot`."""
        kind = Path(path).suffix
        if kind not in WRITERS:
            raise ArgumentError(f"view: {str(path)!r} ends in none of {', '.join(WRITERS)}")
        Path(path).write_text(WRITERS[kind](self.data), encoding="utf-8")

    def memory(self) -> str:
        """What lies between kernels when most does, the largest first: type, bytes, from which step to which, and the
        line and module that it is made for.

        >>> seen = tn.debug.view(lambda x: tn.sin(x @ x) @ x, tn.ones((64, 64)), times=False, code=False)
        >>> print(seen.memory().splitlines()[1].strip()[:30])
        0.016 MB  f32[64, 64]  steps 0
        """
        return memory_text(self.data)

    def __repr__(self) -> str:
        count, kernels = len(self.data["nodes"]), len(self.data["kernels"])
        return f"<View of {self.data['name']}: {count} nodes, {kernels} kernels>"

    def _repr_html_(self) -> str:
        return (f'<iframe title="Tenon" style="width: 100%; height: {FRAME_HEIGHT}px; border: 0" '
                f'srcdoc="{escape(page_of(self.data))}"></iframe>')


WRITERS: dict[str, Callable[[Data], str]] = {".html": page_of, ".json": json.dumps, ".dot": dot_of}


def view(function: Any, *args: Any, path: str | Path | None = None, times: bool = True, code: bool = True,
         values: bool | Watched = False, **keywords: Any) -> View:
    """What became of a function for these arguments: source, graph, passes, kernels, memory, guards.

    `path` is a file to write: a page that needs no network (.html), the data (.json) or the graph for Graphviz (.dot).
    `times` measures every step, on copies of what it writes; `code` keeps LLVM's and the machine's code, which takes a
    few seconds; `values` computes every node by the reference, and tells its range, mean, NaN and infinities; with
    what `tn.debug.watch` gave it tells those of the compiled call.  Nothing of the call is done but that arithmetic: no
    assignment, no effect.  Raises ArgumentError for what is no function and
    for other kinds of files.

    >>> seen = tn.debug.view(lambda x: tn.exp(x) + 1, tn.ones(3), times=False, code=False)
    >>> [node["op"] for node in seen.data["nodes"]], len(seen.data["kernels"])
    (['exp', 'add'], 1)
    """
    if path is not None and Path(path).suffix not in WRITERS:
        raise ArgumentError(f"view: {str(path)!r} ends in none of {', '.join(WRITERS)}")
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise ArgumentError(f"view: there is no folder {str(Path(path).parent)!r}")
    seen = View(document_of(function, args, keywords, times, code, values))
    if path is not None:
        seen.save(path)
    return seen
