"""Progress bars and tables on the terminal: by rich where it is installed, in plain text otherwise."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TextIO, TypeVar

T = TypeVar("T")

HAVE_RICH = importlib.util.find_spec("rich") is not None


def progress(iterable: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """The items of `iterable`, with a bar on standard error while they are taken. A pipe or a log file gets no bar."""
    total = len(iterable) if total is None and isinstance(iterable, Sized) else total
    if not sys.stderr.isatty():
        return iter(iterable)
    if HAVE_RICH:
        from rich.console import Console  # optional dependency
        from rich.markup import escape
        from rich.progress import track

        return iter(track(iterable, escape(description), total, console=Console(stderr=True), transient=True))
    return plain_progress(iterable, description, total, sys.stderr)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], file: TextIO | None = None) -> None:
    """Print rows under column names; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    file = file or sys.stdout
    if not (HAVE_RICH and file.isatty()):
        print(plain_table(title, columns, cells), file=file)
        return
    from rich.console import Console  # optional dependency
    from rich.table import Table
    from rich.text import Text  # not a plain string: rich would take `f32[n, 3]` for markup

    drawn = Table(title=Text(title), title_justify="left")
    for at, name in enumerate(columns):
        drawn.add_column(Text(name), justify="right" if is_numeric(row[at] for row in cells) else "left")
    for row in cells:
        drawn.add_row(*map(Text, row))
    Console(file=file).print(drawn)


def plain_progress(iterable: Iterable[T], description: str, total: int | None, file: TextIO) -> Iterator[T]:
    """One line, written again for each item."""
    for done, item in enumerate(iterable):
        print(f"\r{description} {done}/{total or '?'}", end="", file=file, flush=True)
        yield item
    print("\r\033[K", end="", file=file, flush=True)


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """
    >>> print(plain_table("Passes", ["pass", "nodes"], [["simplify", "12"], ["fuse", "3"]]))
    Passes
    pass      nodes
    --------  -----
    simplify     12
    fuse          3
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows)]
    numeric = [is_numeric(row[at] for row in rows) for at in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        aligned = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(cells, widths, numeric)]
        return "  ".join(aligned).rstrip()

    return "\n".join([title, line(columns), line(["-" * width for width in widths]), *map(line, rows)])


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether every cell starts as a number does: `12`, `-0.5`, `98.1 %`, `3.2 ms`."""
    cells = list(cells)
    return bool(cells) and all(cell.lstrip("-+")[:1].isdigit() for cell in cells)
