"""Nodes of a graph -> the user's lines that they come from, marked: in the graph, Python only, or where it stopped."""

from __future__ import annotations

import linecache
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from types import CodeType

from tenon.errors import Location
from tenon.graph.ir import Node
from tenon.records import dataclass

GRAPH, PYTHON, STOP = "graph", "python", "stop"
MAX_LINES = 200


@dataclass(frozen=True)
class Line:
    """A line of a program, and the operators that it calls; number 0 is a title."""

    number: int
    text: str
    mark: str
    operators: str = ""

    @property
    def place(self) -> str:
        """The number, as text."""
        return str(self.number or "")


def source_lines(nodes: Iterable[Node], codes: Collection[CodeType],
                 stopped: Sequence[Location] = ()) -> tuple[Line, ...]:
    """The lines of the functions that the nodes come from, and of where the capture stopped."""
    operators: dict[tuple[str, str], dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for node in nodes:
        if node.loc is not None:
            operators[node.loc.file, node.loc.function][node.loc.line][node.op.name] += 1
    for place in stopped:
        operators[place.file, place.function].setdefault(place.line, Counter())
    stops = {(place.file, place.line) for place in stopped}
    found: list[Line] = []
    for (file, function), lines in operators.items():
        first, last = min(lines), max(lines)
        for code in codes:
            if (code.co_filename, code.co_name) == (file, function) and code.co_firstlineno <= first:
                first, last = code.co_firstlineno, max(last, *(line or 0 for *_, line in code.co_lines()))
        rows = [(number, linecache.getline(file, number).rstrip()) for number in range(first, last + 1)]
        if len(operators) > 1:
            found.append(Line(0, f"# {function}, {os.path.basename(file)}", PYTHON))
        found += [_line(number, text, lines.get(number), (file, number) in stops) for number, text in rows if text]
    return tuple(found[:MAX_LINES])


def _line(number: int, text: str, operators: Counter[str] | None, stopped: bool) -> Line:
    if stopped:
        return Line(number, text, STOP, "needs Python")
    told = ", ".join(name if count == 1 else f"{count} {name}" for name, count in (operators or {}).items())
    return Line(number, text, GRAPH if operators else PYTHON, told)
