"""The symbolic sizes of a capture -> one Python function that reads them off the arguments of a call.

It gives new arrays for the results, and behind them the words that differ between calls, packed for machine code, which
compares all shapes.  It gives None where the capture does not hold for these sizes.  Where one is larger than the
program keeps memory for, that is told.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.source_writer import SourceWriter
from tenon.capture.store_results import ARRAYS
from tenon.dims.size_assumptions import told_by
from tenon.dims.symbolic_dim import Dim, evaluate, smallest_size, substitute, symbol, symbols
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.types import Shape

SizeReader = Callable[[Sequence[Any]], "tuple[Any, ...] | None"]


@dataclass(frozen=True)
class NewArray:
    """The array of a result: what makes it, of which shape and element type."""

    empty: Callable[..., Any]
    shape: Shape
    dtype: Any


@dataclass(frozen=True)
class SizeLimits:
    """The numbers up to which dimensions may be, and what is told where one is larger."""

    most: Mapping[Dim, int]
    outgrown: Callable[[], None]


def size_reader(captured: Captured, leaves: Sequence[Any], words: Sequence[Dim], results: Sequence[NewArray] = (),
                limits: SizeLimits | None = None) -> SizeReader | None:
    """The function, for arguments like these; None where they do not say all sizes."""
    writer = _SizeWriter()
    arrays = ((k, x) for k, x in enumerate(leaves) if isinstance(x, ARRAYS))
    for type, (k, x) in zip(captured.types, arrays, strict=True):
        writer.read(k, x, type.shape)
    try:
        writer.holds(captured)
        if limits is not None:
            writer.limited(limits)
        writer.answer(words, results)
    except KeyError:        # a symbol that no argument tells
        return None
    return writer.function()


def array_maker(results: Sequence[NewArray]) -> SizeReader:
    """What makes the arrays where all calls have the same sizes."""
    writer = _SizeWriter()
    writer.answer((), results)
    return writer.function()


class _SizeWriter(SourceWriter):
    """Writes the text; `known` has the variables of symbols."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, str] = {}

    def function(self) -> SizeReader:
        body = "\n".join(f"        {line}" for line in self.lines)
        source = f"def sizes(leaves):\n    try:\n{body}\n    except Exception:\n        return None\n"
        exec(compile(source, "<tenon sizes>", "exec"), self.scope)
        made: SizeReader = self.scope["sizes"]
        return made

    def read(self, leaf: int, x: Any, shape: Shape) -> None:
        """What the shape of an array says of symbols; machine code looks at the rest."""
        told: dict[str, int] = {}
        for axis, dim in enumerate(shape):
            if (name := told_by(dim)) is not None and name not in self.known:
                told.setdefault(name, axis)
        if not told:
            return
        array = "x.own.payload" if isinstance(x, Tensor) else "x"
        self.lines += [f"x = leaves[{leaf}]", f"if type(x) is not {self.name(type(x))}: return None",
                       f"{''.join(f's{k}, ' for k in range(len(shape)))} = {array}.shape"]
        for name, axis in told.items():
            variable = self.known[name] = f"n{len(self.known)}"
            dim = shape[axis]
            low, step = evaluate(dim, {name: 0}), evaluate(dim, {name: 1}) - evaluate(dim, {name: 0})
            if (low, step) == (0, 1):
                self.lines.append(f"{variable} = s{axis}")
            else:
                self.lines += [f"{variable}, rest = divmod(s{axis} - {low}, {step})", "if rest: return None"]
            self.lines.append(f"if {variable} < {smallest_size(name)}: return None")

    def holds(self, captured: Captured) -> None:
        """The answers that the capture relies on."""
        for (left, relation, right), answer in captured.assumptions.recorded.items():
            asked = f"{self.text(left)} {relation} {self.text(right)}"
            self.lines.append(f"if {f'not ({asked})' if answer else asked}: return None")

    def limited(self, limits: SizeLimits) -> None:
        asked = [f"{self.text(dim)} > {most}" for dim, most in limits.most.items()]
        self.lines.append(f"if {' or '.join(asked)}: return {self.name(limits.outgrown)}()")

    def answer(self, words: Sequence[Dim], results: Sequence[NewArray]) -> None:
        made = [f"{self.name(x.empty)}(({''.join(f'{self.text(dim)}, ' for dim in x.shape)}), {self.name(x.dtype)})"
                for x in results]
        if words:
            pack = self.name(struct.Struct(f"={len(words)}q").pack)
            made.append(f"{pack}({', '.join(map(self.text, words))})")
        self.lines.append(f"return ({''.join(f'{x}, ' for x in made)})")

    def text(self, dim: Dim) -> str:
        """A dimension in Python; raises KeyError for a symbol that is not known."""
        return str(substitute(dim, {name: symbol(self.known[name]) for name in symbols(dim)}))
