"""A jitted call -> where its time goes: by step, by operator, by the user's line, by module.

    profile = tn.debug.profile(step, x, y)
    print(profile)                      # steps, the slowest first
    print(profile.table("module"))      # or "operator", "line", "phase"
    print(profile.source())             # your lines, with what each costs
    profile.save("step.html")           # a roofline; .png too; .json is a trace for Perfetto or Chrome
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenon.capture.constant_weights import late_program
from tenon.capture.jitted import Jitted
from tenon.debug.chrome_trace import steps_trace, write_trace
from tenon.debug.cost_tables import KEYS, Cost, Part, annotated, costs, table_text, tree_of
from tenon.debug.eager_lines import eager_lines
from tenon.debug.node_costs import flops_of, shares_of
from tenon.debug.node_origins import Origin
from tenon.debug.recapture import Recapture, recaptured
from tenon.debug.roofline import roofline_html, roofline_png
from tenon.debug.step_times import Timed, timed_steps
from tenon.errors import ArgumentError
from tenon.graph.ir import Node
from tenon.graph.op import OPS
from tenon.records import dataclass, field

SHOWN = 40              # rows of the table


@dataclass(frozen=True)
class Profile:
    """The steps of a program in the order in which they run; printed with the slowest first.

    `parts` is what every operator of the user's program has of them, `eager` the seconds of each line, (file, number),
    as eager code, where that was asked for.
    """

    steps: tuple[Timed, ...]
    parts: tuple[Part, ...] = field(default=(), repr=False)
    eager: Mapping[tuple[str, int], float] = field(default_factory=dict, repr=False)

    @property
    def seconds(self) -> float:
        """Of all steps together."""
        return sum(step.seconds for step in self.steps)

    @property
    def shared(self) -> float:
        """Seconds if every step takes as long as its longest part."""
        return sum(step.longest for step in self.steps)

    def by(self, key: str) -> list[Cost]:
        """What each operator, line, module or phase costs, the most costly first.

        >>> profile = tn.debug.profile(tn.jit(lambda x: tn.exp(x) @ x), tn.ones((8, 8)))
        >>> sorted(cost.key for cost in profile.by("operator"))
        ['exp', 'matmul']
        """
        if key not in KEYS:
            raise ArgumentError(f"a profile has no rows by {key!r}", hint=f"there are {', '.join(KEYS)}")
        return costs(self.parts, KEYS[key])

    def table(self, by: str = "operator") -> str:
        """The same as a table; modules are indented below the one that they are in, which has their cost too."""
        rows = self.by(by)
        if by == "module":
            rows = [Cost("  " * depth + cost.key, cost.seconds, cost.bytes, cost.operations, cost.parts)
                    for depth, cost in tree_of(self.parts)]
        return table_text(f"Time by {by}", by, rows, self.seconds)

    def source(self) -> str:
        """The user's source: beside each line what all that it calls takes, compiled, and as eager code if known."""
        return annotated(self.parts, self.eager)

    def save(self, path: str | Path) -> None:
        """Write a roofline (.html, or .png by matplotlib), or the steps as a trace (.json) that Perfetto opens.

        Steps are laid one after the other in the trace, with the part of each thread on a track of its own: they were
        measured one by one.
        """
        kind = Path(path).suffix
        if kind == ".json":
            write_trace(path, steps_trace(self.steps))
        elif kind == ".html":
            Path(path).write_text(roofline_html(self.steps), encoding="utf-8")
        elif kind == ".png":
            roofline_png(self.steps, path)
        else:
            raise ArgumentError(f"a profile is saved as .html, .png or .json, not as {str(path)!r}")

    def __str__(self) -> str:
        slowest = sorted(self.steps, key=lambda step: -step.seconds)
        rest = slowest[SHOWN:]
        lines = [f"{len(self.steps)} steps, {_ms(self.seconds)}; by threads {_ms(self.shared)}",
                 "       time  share  threads     GB/s  GFLOP/s  step"]
        lines += [self._line(step) for step in slowest[:SHOWN]]
        if rest:
            lines.append(f"{_ms(sum(step.seconds for step in rest))}  in {len(rest)} more")
        return "\n".join(lines)

    def _line(self, step: Timed) -> str:
        rate = f"{step.operations / step.seconds / 1e9:7.1f}" if step.operations else " " * 7
        where = f"  {step.where}" if step.where else ""
        return (f"{_ms(step.seconds)}  {step.seconds / self.seconds:5.1%}  {step.seconds / step.longest:6.2f}x  "
                f"{step.bytes / step.seconds / 1e9:7.1f}  {rate}  {step.name}{where}")


def profile(function: Any, *args: Any, repeats: int = 5, eager: bool = False, **keywords: Any) -> Profile:
    """The time of every step of the program that a call with these arguments would run, the least of `repeats`.

    Nothing of the call is done but the arithmetic: no assignment, no effect.  With `eager`, the function is also called
    once as plain Python, and its lines are timed; the tensors that it changes are put back, other effects are made.
    Raises ArgumentError for a function without `@tn.jit`, CaptureError for one that runs with graph breaks.

    >>> double = tn.jit(lambda x: x * 2)
    >>> [step.name for step in profile(double, tn.ones(3)).steps]
    ['multiply']
    """
    jitted = getattr(function, "__func__", function)
    if not isinstance(jitted, Jitted):
        raise ArgumentError(f"profile takes a function with @tn.jit, not {function!r}")
    bound = (function.__self__, *args) if function is not jitted else args
    captured = jitted.capture(*bound, **keywords)
    again = recaptured(jitted, captured, bound, keywords)
    executable = again.compiled()
    if executable is None:
        raise ArgumentError(f"profile: the data decide sizes in {jitted.__name__}, which runs in stages")
    steps = timed_steps(again.captured, executable, bound, keywords, repeats)
    parts = tuple(_parts(steps, again, late_program(executable).plan.sizes))
    return Profile(steps, parts, eager_lines(jitted, captured, bound, keywords) if eager else {})


def _parts(steps: Sequence[Timed], again: Recapture, sizes: Mapping[str, int]) -> Iterator[Part]:
    """What every operator has of the steps; one that came into being in a pass counts for what it was made for."""
    operators = again.operators
    for timed in steps:
        shares = shares_of(timed.step, sizes)
        for node, share in shares:
            yield _part(node, share, timed, operators, flops_of(node, sizes))
        if not shares:
            yield Part("copy", None, "", "copy", (), timed.seconds, timed.bytes, 0.0)


def _part(node: Node, share: float, timed: Timed, operators: Sequence[str], flops: float) -> Part:
    origin = node.loc
    costs = timed.seconds * share, timed.bytes * share, flops
    if not isinstance(origin, Origin):
        return Part(node.op.name, origin, "", "forward", (), *costs)
    made_for = operators[origin.number] if 0 <= origin.number < len(operators) else ""
    hidden = made_for == "" or OPS[made_for].moves == "view"        # a product may take the place of a view
    name = node.op.name if hidden else made_for
    return Part(name, origin, origin.path, origin.phase, origin.stack, *costs)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:8.3f} ms"
