"""What `tn.jit` made of a function, in words: what is captured, which lines are in the graph, what is guarded and baked
in, what would be captured again, what is assigned, and what runs with graph breaks and why.  As text, and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tenon.capture.capture_cache import CaptureRecord, Reason, argument_names
from tenon.capture.captured import Captured
from tenon.capture.constant_weights import late_program
from tenon.capture.effects import Effect
from tenon.capture.guards import is_atom
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Argument, GradientOf
from tenon.capture.pytree import unfold
from tenon.debug.notebook import MONOSPACE, block, table_html
from tenon.debug.source_lines import GRAPH, PYTHON, STOP, Line, source_lines
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import ArgumentError, CaptureError
from tenon.jit import jit
from tenon.records import dataclass

SHOWN = 12      # of a long list
STAGES = ("capture", "compile", "machine_code", "layout", "first_run")
MARKS = {GRAPH: "graph ", PYTHON: "      ", STOP: "python"}
COLORS = {GRAPH: "#dfd", PYTHON: "", STOP: "#fdd"}


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><style>
body {{ font-family: sans-serif; margin: 2em; color-scheme: light dark }} td, th {{ padding: 0 1em 0 0 }}
tr[style*="#dfd"] td, tr[style*="#fdd"] td {{ color: black }}
</style></head><body><h1>{title}</h1>{captures}{body}</body></html>
"""


@dataclass(frozen=True)
class Explanation:
    """Readable text, its lines one by one, and the marked source in which they end."""

    lines: tuple[str, ...]
    source: tuple[Line, ...] = ()
    captures: tuple[Captured, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """What the stages of a first call have taken by now: 0 where none came so far.

        `compile` is all passes and kernels as loops, `machine_code` what LLVM takes, or the disk, `layout` the memory
        plan.  Where a capture is recorded on the tape they are those of its results, not of its gradient.

        >>> double = tn.jit(lambda x: x * 2)
        >>> told = tn.explain(double, tn.ones(3))
        >>> [stage for stage, seconds in told.seconds.items() if seconds]
        ['capture']
        >>> y = double(tn.ones(3))
        >>> list(told.seconds)
        ['capture', 'compile', 'machine_code', 'layout', 'first_run']
        """
        total = dict.fromkeys(STAGES, 0.0)
        for captured in self.captures:
            program = late_program(captured.program) if "program" in vars(captured) else None
            for stage, seconds in (*captured.seconds.items(), *getattr(program, "seconds", {}).items()):
                total[stage] += seconds
        return total

    @property
    def schedules(self) -> str:
        """For each kernel that was compiled by now: the ways in which it may be computed, the one that is taken marked
        by a star, and what the others would cost, or why they are refused.

        >>> @tn.jit
        ... def product(x, w):
        ...     return x @ w
        >>> y = product(tn.ones(64, 100), tn.ones(100, 96))
        >>> "refused: columns fill vectors" in tn.explain(product).schedules
        True
        """
        programs = [late_program(x.program) for x in self.captures if "program" in vars(x)]
        units = [unit for program in programs for unit in getattr(program, "kernels", ())]
        return "\n".join(f"{unit.name}\n{unit.schedules}".rstrip() for unit in units)

    def __str__(self) -> str:
        width = max((len(line.text) for line in self.source), default=0)
        rows = [f"  {MARKS[x.mark]} {x.place:>4}  {x.text:<{width}}  {x.operators}".rstrip() for x in self.source]
        return "\n".join([*self.lines, *(["  lines:"] if rows else []), *rows])

    __repr__ = __str__

    def to_html(self, path: str | Path | None = None) -> str:
        """A page that needs nothing else, written to `path` where one is given: every capture, what had changed, what
        is guarded and baked in, and the source with the lines that are in the graph.

        >>> page = tn.explain(tn.jit(lambda x: x * 2), tn.ones(3)).to_html()
        >>> page.startswith("<!doctype html>") and "one graph" in page
        True
        """
        again = [(f"{number}", captured.why or "the first call") for number, captured in enumerate(self.captures, 1)]
        captures = table_html(("capture", "captured since"), again) if again else ""
        page = PAGE.format(title=escape(self.lines[0] if self.lines else "explain"), captures=captures,
                           body=self._repr_html_())
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        cell = f'<td style="text-align: left; {MONOSPACE}">'
        rows = [f'<tr style="background: {COLORS[x.mark]}">{cell}{x.place}</td>{cell}{escape(x.text)}</td>'
                f'{cell}{escape(x.operators)}</td></tr>' for x in self.source]
        return block("\n".join(self.lines), f"<table>{''.join(rows)}</table>" if rows else "")


def explain(function: Any, *args: Any, **keywords: Any) -> Explanation:
    """What a jitted function does with calls like this one.  Nothing is run or compiled, no effects are made.

    Without arguments, what it did with the calls so far.  `.seconds` is what capturing and compiling took by now,
    `.schedules` how each kernel is computed, and why not otherwise.
    A function without `@tn.jit` is explained as if it had it, for the call that is given.  Raises ArgumentError for
    one without a call, and for what is no function.

    >>> @tn.jit
    ... def f(x, times=2):
    ...     return x * times
    >>> print(tn.explain(f, tn.ones(3)))
    f: one graph
    capture 1: f(x: f32[3]), 1 node
      guarded: f.__defaults__ is (2,); 2 read from Python by identity
      captured again for: another type of x (another size becomes a symbol); another value of what is guarded
      lines:
                1  @tn.jit
                2  def f(x, times=2):
      graph     3      return x * times  multiply
    """
    jitted = getattr(function, "__func__", function)
    if not isinstance(jitted, Jitted):
        if not callable(function) or not (args or keywords):
            raise ArgumentError(f"explain takes a function with @tn.jit, or a function and arguments, not {function!r}")
        function = jit(function)
        jitted = getattr(function, "__func__", function)
    if args or keywords:
        return _of_call(jitted, (function.__self__, *args) if function is not jitted else args, keywords)
    captures = [c for record in jitted.records.values() for c in record.captures]
    return Explanation(tuple(_so_far(jitted)), captures=(*captures, *_of_pieces(jitted)))


def _so_far(jitted: Jitted) -> Iterator[str]:
    """What all calls so far came to."""
    records = list(jitted.records.values())
    captures = [c for record in records for c in record.captures]
    bugs = sum(record.eager is not None and record.eager.bug for record in records)
    yield f"{jitted.__name__}: {_count(len(captures), 'capture')}" + (f", {_count(bugs, 'bug')}" if bugs else "")
    yield from _captures(captures)
    split = any(record.split for record in records) and jitted.is_split
    if split:
        yield from _pieces(jitted)
    graph_breaks = [f"runs with graph breaks: {record.eager}" for record in records
                    if record.eager and not (split and record.split)]
    further = [f"other calls run with graph breaks: {x.full or x.unlike}" for x in records if x.full or x.unlike]
    yield from dict.fromkeys([*graph_breaks, *further])      # several kinds of calls may, for one reason


def _captures(captures: Sequence[Captured]) -> Iterator[str]:
    for number, captured in enumerate(captures, 1):
        yield f"capture {number}: {_signature(captured)}"
        yield from ([f"  captured since {captured.why}"] if captured.why else [])
        yield from _details(captured)


def _pieces(jitted: Jitted) -> Iterator[str]:
    """Where a function is split and why, and what its pieces are."""
    part = jitted.part
    assert part is not None
    for reason in part.split.reasons:
        yield f"split: {reason}"
    for first, last, piece in part.pieces:
        _, *told = _so_far(piece)
        count = sum(len(record.captures) for record in piece.records.values())
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        yield f"piece of {lines}: {_count(count, 'capture')}"
        yield from (f"  {line}" for line in told)
    for callee in part.callees:
        first_line, *told = _so_far(callee)
        yield f"calls {first_line}"
        yield from (f"  {line}" for line in told)


def _of_pieces(jitted: Jitted) -> Iterator[Captured]:
    """The captures of all pieces of a function that is split."""
    if jitted.part is not None and jitted.is_split:
        for piece in [piece for *_, piece in jitted.part.pieces] + jitted.part.callees:
            yield from (c for record in piece.records.values() for c in record.captures)
            yield from _of_pieces(piece)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _of_call(jitted: Jitted, args: tuple[Any, ...], keywords: dict[str, Any]) -> Explanation:
    """What one call would use."""
    record: CaptureRecord | None = None
    try:
        record, captured = jitted.look(*args, **keywords)
    except CaptureError as error:       # of fullgraph=True
        return Explanation((f"{jitted.__name__}: {error}",))
    except Exception as error:
        return Explanation((f"{jitted.__name__}: raises {type(error).__name__}: {error}",))
    if captured is None:
        reason = record.eager or record.full
        assert reason is not None
        in_pieces = record.split and jitted.is_split
        return _in_pieces(jitted, reason) if in_pieces else _with_graph_breaks(jitted.__name__, reason)
    again = [f"  captured since {captured.why}"] if captured.why else []
    number = [c for r in jitted.records.values() for c in r.captures].index(captured) + 1
    constants = _constants(jitted, args, keywords)
    lines = [f"{jitted.__name__}: one graph", f"capture {number}: {_signature(captured)}", *again, *_details(captured)]
    if constants:
        lines.append(f"  baked in: {_some(constants)}")
    lines.append(f"  captured again for: {'; '.join(_changes(captured, constants))}")
    return Explanation(tuple(lines), source_lines(captured.graph.nodes, captured.codes), (captured,))


def _holder(effect: Effect, number: int | None) -> str:
    """What an effect is made on."""
    return f"argument {-1 - number}" if number is not None and number < 0 else f"a {type(effect.holder).__name__}"


def _with_graph_breaks(name: str, reason: Reason) -> Explanation:
    hint = [f"  hint: {reason.hint}"] if reason.hint else []
    said = f"{name}: runs with graph breaks, since one graph cannot hold it"
    return Explanation((said, *str(reason).splitlines(), *hint),
                       source_lines(reason.before, (), [reason.where] if reason.where else []))


def _in_pieces(jitted: Jitted, reason: Reason) -> Explanation:
    """Of a call that runs in pieces, as they are known so far: what stands behind a stop is captured when it runs."""
    assert jitted.part is not None
    captures = tuple(_of_pieces(jitted))
    nodes = [node for captured in captures for node in captured.graph.nodes] or reason.before
    stops = [x.where for x in jitted.part.split.reasons if x.where]
    head = f"{jitted.__name__}: runs in {_count(len(jitted.part.pieces), 'piece')}, since one graph cannot hold it"
    return Explanation((head, *"\n".join(_pieces(jitted)).splitlines()), source_lines(nodes, (), stops), captures)


# ---------------------------------------------------------------- one capture

def _signature(captured: Captured) -> str:
    names = [f"{p.name}: {p.type}" for p, source in zip(captured.graph.params, captured.sources, strict=True)
             if isinstance(source, Argument)]
    nodes = len(captured.graph.nodes)
    return f"{captured.graph.name}({', '.join(names)}), {nodes} node{'s' * (nodes != 1)}"


def _details(captured: Captured) -> Iterator[str]:
    held = [p for p, source in zip(captured.graph.params, captured.sources, strict=True)
            if not isinstance(source, (Argument, GradientOf))]
    if held:
        yield f"  reads {len(held)} tensors from outside: {_some([str(p.type) for p in held])}"
    if captured.constants:
        yield f"  computes once, until they change, what depends on {len(captured.constants)} of them alone"
    if captured.assigned:
        yield f"  assigns {len(captured.assigned)} tensors"
    if captured.gradients:
        yield f"  sets {len(captured.gradients)} gradients"
    if captured.effects:
        told = [f"{effect.kind} {effect.key!r} of {_holder(effect, number)}" for effect, number in captured.effects]
        yield f"  does in Python: {_some(told)}"
    values, count = list(captured.guards.values()), len(captured.guards)
    others = f"{count - len(values)} read from Python by identity" if count > len(values) else ""
    yield f"  guarded: {'; '.join(filter(None, (_some(values), others))) or 'nothing beside the arguments'}"
    if captured.assumptions.recorded:
        facts = [f"{left} {relation} {right} is {answer}"
                 for (left, relation, right), answer in captured.assumptions.recorded.items()]
        yield f"  holds for sizes with: {_some(facts)}"


def _constants(jitted: Jitted, args: Any, keywords: Any) -> list[str]:
    """The Python values among the arguments, which the graph was made for."""
    leaves, structure, _ = unfold((args, keywords), classes=jitted.opened)
    names = argument_names(getattr(jitted.function, "__func__", jitted.function), structure)
    return [f"{name}={leaf!r:.60}" for name, leaf in zip(names, leaves, strict=True) if is_atom(leaf)]


def _changes(captured: Captured, constants: Sequence[str]) -> Iterator[str]:
    """What in a later call would not fit this capture."""
    params = [p for p, source in zip(captured.graph.params, captured.sources, strict=True)
              if isinstance(source, Argument)]
    if params:
        fixed = any(isinstance(d, int) for p in params for d in p.type.shape)
        size = " (another size becomes a symbol)" if fixed else ""
        yield f"another type of {', '.join(str(p.name) for p in params)}{size}"
    symbols = sorted({str(d) for p in params for d in p.type.shape if isinstance(d, SymbolicDim)})
    if symbols:
        yield f"{', '.join(symbols)} of 0 or 1"
    if captured.assumptions.recorded:
        yield "sizes that compare otherwise"
    if constants:
        yield f"another value of {', '.join(c.partition('=')[0] for c in constants)}"
    if len(captured.guards):
        yield "another value of what is guarded"


def _some(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more
