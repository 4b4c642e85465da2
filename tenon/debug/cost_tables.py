"""Timed steps -> tables of where time goes: by operator, by the user's line, by module; and the annotated source.

A kernel is timed as a whole.  What the operators in it have of its time is shared out by the work that the compiler
counts, so a row is an estimate where one kernel computes several of them.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenon.debug.console import plain_table
from tenon.errors import Location
from tenon.records import dataclass

SHOWN = 40              # rows of a table
AROUND = 2              # lines of source that are told around one that costs something


@dataclass(frozen=True)
class Part:
    """What one operator of the program has of one step.

    `module` is a path such as `GPT.blocks.0.attention`, `stack` the user's lines that lead there, outermost first.
    """

    operator: str
    where: Location | None
    module: str
    phase: str
    stack: tuple[tuple[str, int], ...]
    seconds: float
    bytes: float
    operations: float


@dataclass(frozen=True)
class Cost:
    """A row: what all parts with one key cost together."""

    key: str
    seconds: float
    bytes: float
    operations: float
    parts: int

    def cells(self, total: float) -> list[str]:
        """The row as text: key, time, share, GB/s, GFLOP/s."""
        return [self.key, ms(self.seconds), f"{self.seconds / total:.1%}" if total else "", *self.rates()]

    def rates(self) -> list[str]:
        """GB/s and GFLOP/s, as text."""
        return [f"{x / self.seconds / 1e9:.1f}" if x and self.seconds else "" for x in (self.bytes, self.operations)]


def line_of(part: Part) -> str:
    """The line that made an operator."""
    return str(part.where) if part.where is not None and part.where.file else "elsewhere"


KEYS: dict[str, Callable[[Part], str]] = {
    "operator": lambda part: part.operator, "line": line_of, "phase": lambda part: part.phase,
    "module": lambda part: part.module or f"({part.phase})"}


def costs(parts: Iterable[Part], key: Callable[[Part], str]) -> list[Cost]:
    """The rows for these parts, the most costly first."""
    sums: dict[str, list[Any]] = {}
    for part in parts:
        row = sums.setdefault(key(part), [0.0, 0.0, 0.0, 0])
        for k, amount in enumerate((part.seconds, part.bytes, part.operations, 1)):
            row[k] += amount
    return sorted((Cost(name, *row) for name, row in sums.items()), key=lambda cost: -cost.seconds)


def table_text(title: str, by: str, rows: Sequence[Cost], total: float) -> str:
    """A table, the first rows of it, with shares of a total."""
    cells = [row.cells(total) for row in rows[:SHOWN]]
    more = f"\nand {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return plain_table(title, [by, "time", "share", "GB/s", "GFLOP/s"], cells) + more


def tree_of(parts: Iterable[Part]) -> list[tuple[int, Cost]]:
    """The modules as a tree, each with all that is inside of it: (depth, cost), outer before inner."""
    parts = list(parts)
    paths: dict[str, None] = {}
    for part in parts:
        names = KEYS["module"](part).split(".")
        paths.update((".".join(names[:k]), None) for k in range(1, len(names) + 1))
    inside = {path: [p for p in parts if f"{KEYS['module'](p)}.".startswith(f"{path}.")] for path in paths}
    found = {path: costs(those, lambda _: "")[0] for path, those in inside.items()}
    order = sorted(paths, key=lambda path: _way(path, found))
    return [(path.count("."), Cost(path.rpartition(".")[2], found[path].seconds, found[path].bytes,
                                   found[path].operations, found[path].parts)) for path in order]


def _way(path: str, found: Mapping[str, Cost]) -> list[tuple[float, str]]:
    """Sorts a tree: the most costly of siblings first."""
    names = path.split(".")
    ways = [".".join(names[:k]) for k in range(1, len(names) + 1)]
    return [(-found[way].seconds, way) for way in ways]


# ---------------------------------------------------------------- the user's source

def annotated(parts: Iterable[Part], eager: Mapping[tuple[str, int], float] | None = None) -> str:
    """The user's source with the cost of each line beside it, and what it takes as eager code where that is known.

    A line has all that its calls lead to: that of `loss = net(x)` has the whole network.
    """
    sums: dict[tuple[str, int], list[Part]] = {}
    for part in parts:
        own = () if part.where is None else ((part.where.file, part.where.line),)
        for place in dict.fromkeys((*part.stack, *own)):
            sums.setdefault(place, []).append(part)
    files = dict.fromkeys(file for file, _ in (*sums, *(eager or {})) if file)
    head = f"{'compiled':>11} {'GB/s':>7} {'GFLOP/s':>8} {'eager':>11}"
    lines: list[str] = []
    for file in files:
        rows = {line: sums.get((file, line), []) for name, line in (*sums, *(eager or {})) if name == file}
        lines += [f"{head}  {os.path.basename(file)}", *_rows(file, rows, eager or {})]
    return "\n".join(lines)


def _rows(file: str, costly: Mapping[int, Sequence[Part]], eager: Mapping[tuple[str, int], float]) -> Iterator[str]:
    shown = sorted({n for line in costly for n in range(line - AROUND, line + AROUND + 1)})
    before = 0
    for number in shown:
        text = linecache.getline(file, number).rstrip()
        if number < 1 or not text:
            continue
        if before and number > before + 1:
            yield f"{'':40}..."
        before = number
        found = costs(costly.get(number, ()), lambda _: "")
        amounts = [ms(found[0].seconds), *found[0].rates()] if found else ["", "", ""]
        taken = ms(eager[file, number]) if (file, number) in eager else ""
        yield f"{amounts[0]:>11} {amounts[1]:>7} {amounts[2]:>8} {taken:>11}  {number:4}  {text}".rstrip()


def ms(seconds: float) -> str:
    """A time in milliseconds."""
    return f"{seconds * 1e3:.3f} ms"
