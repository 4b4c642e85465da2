"""Every row of the table: Tenon and its peers side by side, with the ratio to the best peer and to the machine's limit.

    python -m benchmarks.table [ROW ...] [--threads 1 2] [--seconds 4] [--without compiled] [--json FILE] [--chart FILE]

Rows are in `benchmarks.rows`; `other_sizes` stands for those of `benchmarks.other_sizes`, which are left out where no
row is named.  Every library has a process of its own, pinned to as many cores as there are threads.  All start from the
same numbers, must agree, and work in turn.  On one core a time is processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.bursts import Library
from benchmarks.other_sizes import OTHER_SIZES
from benchmarks.peers import LIBRARIES, able
from benchmarks.rows import ROWS, Limit, Process, Row

BURSTS = 6                      # of every library, for a row
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


@dataclass
class Measured:
    """What one row took in each library: seconds, or megabytes."""

    row: str
    threads: int
    unit: str
    values: dict[str, float]
    aim: float                      # times the best peer's value is larger
    limit: Limit | None = None
    disagrees: str = ""             # which libraries' results differ

    @property
    def best_peer(self) -> tuple[str, float]:
        """The best library beside Tenon; no number where there is none."""
        others = {name: value for name, value in self.values.items() if name != "tenon"}
        return min(others.items(), key=lambda item: item[1], default=("no peer", float("nan")))

    def __str__(self) -> str:
        ours, (name, best) = self.values["tenon"], self.best_peer
        unit, size = (self.unit, 1.0) if self.unit != "s" else next(u for u in UNITS if ours >= u[1] or u is UNITS[-1])
        cells = " ".join(f"{library} {value / size:.4g}" for library, value in self.values.items())
        limit = "" if self.limit is None else f", {self.limit[1] / ours:.0%} of the {self.limit[0]}"
        ahead = f"{best / ours:5.2f}x {name} (aim {self.aim:.2f}){limit}"
        return (f"{self.row:18} {self.threads} threads  {ahead}   {cells} {unit}"
                + f"   DISAGREES: {self.disagrees}" * bool(self.disagrees))


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", metavar="ROW", help=f"of other_sizes, {', '.join(ROWS)}")
    options.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    options.add_argument("--seconds", type=float, default=4.0, help="of every library, for a row that is run")
    options.add_argument("--without", nargs="*", default=[], choices=LIBRARIES[1:])
    options.add_argument("--json", type=Path)
    options.add_argument("--chart", type=Path)
    given = options.parse_args(arguments)
    rows = chosen(given.rows)
    if unknown := [name for name in rows if name not in ROWS]:
        options.error(f"no row is named {unknown[0]}")
    libraries = [name for name in LIBRARIES if name not in given.without and able(name)]
    found: list[Measured] = []
    for threads in given.threads:
        for name in rows:
            for measured in measure(name, threads, given.seconds, libraries):
                found.append(measured)
                print(measured, flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(m) for m in found], indent=1) + "\n")
    if given.chart:
        draw(found, given.chart)


def chosen(names: list[str]) -> list[str]:
    """The rows that are named, in groups or one by one."""
    groups = {"other_sizes": list(OTHER_SIZES)}
    usual = [name for name in ROWS if name not in OTHER_SIZES]
    return [row for name in names for row in groups.get(name, [name])] or usual


def measure(name: str, threads: int, seconds: float, libraries: list[str]) -> list[Measured]:
    """One line, or one for each part of a row of processes; none where the row is not for so many threads."""
    row = ROWS[name]
    if isinstance(row, Process):
        return processes(name, row, threads, libraries)
    return [runs(name, row, threads, seconds, libraries)] if threads in row.threads else []


def runs(name: str, row: Row, threads: int, seconds: float, libraries: list[str]) -> Measured:
    """All libraries in turn, a burst each, several times."""
    with ExitStack() as stack:
        started = start(name, threads, libraries, stack)
        found: dict[str, list[float]] = {library: [] for library in started}
        for _ in range(BURSTS):
            for library, process in started.items():
                found[library] += process.burst(seconds / BURSTS)
        limit = started["tenon"].limit()
    values = {library: median(times) / row.turns for library, times in found.items()}
    first = {library: np.array(process.first) for library, process in started.items()}
    scale = max(1.0, *(abs(x).max(initial=0.0) for x in first.values()))
    wrong = [library for library, x in first.items()
             if x.shape != first["tenon"].shape or abs(x - first["tenon"]).max(initial=0.0) > row.tolerance * scale]
    return Measured(name, threads, "s", values, row.aim, limit and (limit[0], limit[1] / row.turns), ", ".join(wrong))


def start(name: str, threads: int, libraries: list[str], stack: ExitStack) -> dict[str, Library]:
    """The libraries that can do the row; a peer that fails is named, and left out."""
    found = {}
    for library in libraries:
        try:
            process = stack.enter_context(Library(library, name, threads))
        except RuntimeError as error:
            if library == "tenon":
                raise
            print(f"({error})", file=sys.stderr)
            continue
        if process.first is not None:
            found[library] = process
    return found


def processes(name: str, row: Process, threads: int, libraries: list[str]) -> list[Measured]:
    """The median of several new processes, in turn, for each part of the row."""
    chosen = [library for library in row.libraries if library in libraries]
    found: dict[str, list[list[float]]] = {library: [] for library in chosen}
    for _ in range(row.repeats):
        for library in chosen:
            numbers = row.measure(library, threads)
            found[library].append([*numbers, *[numbers[-1]] * (len(row.parts) - len(numbers))])
    return [Measured(f"{name} {part}".strip(), threads, row.unit,
                     {library: median(numbers[k] for numbers in times) for library, times in found.items()}, row.aim)
            for k, part in enumerate(row.parts)]


# ---------------------------------------------------------------- the chart

def draw(found: list[Measured], path: Path) -> None:
    """How far ahead of the best peer every library is, one group of bars a row."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    threads = sorted({m.threads for m in found})
    figure, axes = plt.subplots(len(threads), 1, figsize=(16, 5 * len(threads)), squeeze=False, layout="constrained")
    for axis, count in zip(axes[:, 0], threads, strict=True):
        rows = [m for m in found if m.threads == count]
        names = list(dict.fromkeys(name for m in rows for name in m.values))
        for k, name in enumerate(names):
            at = [i + (k - len(names) / 2) * 0.8 / len(names) for i, m in enumerate(rows) if name in m.values]
            speeds = [m.best_peer[1] / m.values[name] for m in rows if name in m.values]
            axis.bar(at, speeds, 0.8 / len(names), label=name, align="edge")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(rows)), [m.row for m in rows], rotation=60, ha="right")
        axis.set_ylabel("best peer / library, in time or memory")
        axis.set_ylim(0, 3)
        axis.set_title(f"{count} thread{'s' * (count > 1)}")
    axes[0, 0].legend(ncols=len(LIBRARIES))
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
