"""Loops that run as often as a number or a size says that changes from call to call -> which become loops of the graph.

The first capture has such a loop written out.  One for another number has a loop of the graph, where the body is one
that it can hold; else the loop is written out for each number.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import TypeAlias

from tenon.capture.code_origin import follows

Place: TypeAlias = tuple[str, int]      # file and line
COUNT = ("range(",)      # calls that code that is converted answers without the number
THROUGH = ("__iter__",)     # of a tensor whose rows are gone through


class CountedLoops:
    """Those of a function: what was tried in the attempt at hand, and what has to be written out."""

    def __init__(self) -> None:
        self.written_out: set[Place] = set()
        self.tried: set[Place] = set()
        self._recorded: list[Sequence[Place]] = []      # whose bodies are being recorded, the outermost first

    def begin(self) -> None:
        """Begin another attempt."""
        self.tried, self._recorded = set(), []

    def tries(self, place: Place) -> bool:
        """Whether the loop here may be one of the graph."""
        if place in self.written_out:
            return False
        self.tried.add(place)
        return True

    def opened(self, places: Sequence[Place]) -> None:
        """The body of a loop is about to be recorded."""
        self._recorded.append(places)

    def closed(self) -> None:
        """That was done."""
        self._recorded.pop()

    @property
    def inside(self) -> bool:
        """Whether the body of one is being recorded."""
        return bool(self._recorded)

    def give_up(self) -> bool:
        """After a failure: let the innermost loop that was being recorded be written out, or all that were tried;
        whether there is one."""
        found = set(self._recorded[-1]) if self._recorded else self.tried
        self.written_out |= found
        return bool(found)


def place_of(frame: FrameType) -> Place:
    """Where it stands."""
    return frame.f_code.co_filename, frame.f_lineno


def asks_how_many(code: CodeType, at: int) -> bool:
    """Whether an instruction of a user's code calls what converted code answers without the number."""
    line, _, column, _ = next(islice(code.co_positions(), at // 2, None), (None, None, None, None))
    if line is None or column is None or not follows(code):
        return False
    text = linecache.getline(code.co_filename, line).encode()[column:].decode(errors="replace")
    return text.startswith(COUNT)


def goes_round(place: Place) -> bool:
    """Whether a condition stands here which says how often the body of a `while` runs: its own, or of its `break`."""
    line = linecache.getline(*place)
    if line.lstrip().startswith("while "):
        return True
    file, number = place
    breaks = line.rstrip().endswith(": break") or linecache.getline(file, number + 1).strip() == "break"
    return line.lstrip().startswith("if ") and breaks and _around(place).startswith("while ")


def _around(place: Place) -> str:
    """The line of the statement in whose block this one stands."""
    file, number = place
    indent = _indent(linecache.getline(file, number))
    lines = (linecache.getline(file, k) for k in range(number - 1, 0, -1))
    return next((line.lstrip() for line in lines if line.strip() and _indent(line) < indent), "")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def is_how_many(raised: TracebackType | None) -> bool:
    """Whether the number behind a size was asked for by such a call, or to go through the rows of a tensor."""
    outer, inner = _outer(raised)
    return outer is not None and (inner in THROUGH or asks_how_many(outer.tb_frame.f_code, outer.tb_lasti))


def last_place(raised: TracebackType | None) -> Place:
    """The line of the user's code where something was raised."""
    outer, _ = _outer(raised)
    return ("", 0) if outer is None else (outer.tb_frame.f_code.co_filename, outer.tb_lineno)


def _outer(raised: TracebackType | None) -> tuple[TracebackType | None, str]:
    """The innermost frame of the user's code where something was raised, and the function that it called there."""
    outer, inner = None, ""
    while raised is not None:
        if follows(raised.tb_frame.f_code):
            outer, inner = raised, ""
        else:
            inner = inner or raised.tb_frame.f_code.co_name
        raised = raised.tb_next
    return outer, inner
