"""Timed steps -> a roofline: GFLOP/s over operations per byte, below what this machine reaches (Williams et al., 2009).

The limits are measured as steps are, on one thread: a large product of matrices, and a sum of arrays that no cache
holds.  A step below the slope waits for memory, one below the flat part for arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from math import log10
from pathlib import Path
from typing import Any

from tenon.debug.node_costs import flops_of, nodes_of
from tenon.debug.step_times import Timed, timed_steps
from tenon.errors import ArgumentError
from tenon.jit import jit
from tenon.ops.creation import ones
from tenon.records import dataclass

PRODUCT = 512               # rows and columns of the matrices
TIMES = 20                  # that each is run: other work on the machine makes some of them late
STREAM = 1 << 24            # elements of the arrays: 64 MB
WIDTH, HEIGHT, EDGE = 860, 520, 64      # of the drawing, in pixels
COLORS = {"line": "#8a94a6", "point": "#4f46e5", "text": "#334155"}


@dataclass(frozen=True)
class Limits:
    """What this machine does at best: floating-point operations, and bytes, a second."""

    operations: float
    bytes: float


@dataclass(frozen=True)
class Point:
    """A step: operations for each byte of memory that it is given, and operations a second."""

    name: str
    intensity: float
    rate: float
    seconds: float
    where: str


@cache
def limits() -> Limits:
    """Measured once a process, in about a second."""
    a, x = ones((PRODUCT, PRODUCT)), ones((STREAM,))
    (product,) = _timed(lambda a, b: a @ b, a, a)
    (stream,) = _timed(lambda x, y: x + y, x, x)
    return Limits(product.operations / product.seconds, 3 * x.size * 4 / stream.seconds)


def _timed(function: Any, *args: Any) -> tuple[Timed, ...]:
    captured = jit(function).capture(*args)
    return timed_steps(captured, captured.program, args, {}, TIMES)


def points(steps: Sequence[Timed]) -> list[Point]:
    """The steps that do arithmetic, the slowest first."""
    found = []
    for step in steps:
        done = max(step.operations, sum(flops_of(node, step.sizes) for node in nodes_of(step.step)))
        if done and step.bytes and step.seconds:
            found.append(Point(step.name, done / step.bytes, done / step.seconds, step.seconds, str(step.where or "")))
    return sorted(found, key=lambda point: -point.seconds)


def _roof(found: Sequence[Point]) -> Limits:
    """The limits, with operations as many as a step reached, if that is more: then it was measured in better times."""
    best = limits()
    return Limits(max([best.operations, *(point.rate for point in found)]), best.bytes)


def roofline_png(steps: Sequence[Timed], path: str | Path) -> None:
    """The drawing as a picture; raises ArgumentError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # optional dependency
    except ImportError:
        raise ArgumentError("a roofline as .png needs matplotlib", hint="save it as .html instead") from None
    found = points(steps)
    best = _roof(found)
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    low, high = _range(found, best)
    knee = best.operations / best.bytes
    axes.loglog([low, knee, high], [low * best.bytes / 1e9, best.operations / 1e9, best.operations / 1e9],
                color=COLORS["line"], label=_words(best))
    total = sum(p.seconds for p in found) or 1.0
    axes.scatter([p.intensity for p in found], [p.rate / 1e9 for p in found], color=COLORS["point"], alpha=0.6,
                 s=[20 + 900 * p.seconds / total for p in found])
    for point in found[:8]:
        axes.annotate(point.name, (point.intensity, point.rate / 1e9), fontsize=7, xytext=(4, 4),
                      textcoords="offset points")
    axes.set(xlabel="operations for each byte", ylabel="GFLOP/s")
    axes.legend(loc="lower right")
    axes.grid(True, which="both", alpha=0.2)
    figure.savefig(path, dpi=130)


def roofline_html(steps: Sequence[Timed]) -> str:
    """The drawing as a page of its own, with a table; a step says what it is when pointed at."""
    found = points(steps)
    best = _roof(found)
    low, high = _range(found, best)
    floor = min([p.rate for p in found] + [low * best.bytes]) / 2
    span = log10(high / low), log10(2 * best.operations / floor)

    def at(intensity: float, rate: float) -> tuple[float, float]:
        return (EDGE + log10(intensity / low) / span[0] * (WIDTH - 2 * EDGE),
                HEIGHT - EDGE - log10(rate / floor) / span[1] * (HEIGHT - 2 * EDGE))
    knee = best.operations / best.bytes
    roof = [at(low, low * best.bytes), at(knee, best.operations), at(high, best.operations)]
    total = sum(p.seconds for p in found) or 1.0
    dots = "".join(_dot(p, at(p.intensity, p.rate), p.seconds / total) for p in found)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in roof)
    rows = "".join(f"<tr><td>{escape(p.name)}</td><td>{escape(p.where)}</td><td>{p.seconds * 1e3:.3f}</td>"
                   f"<td>{p.intensity:.2f}</td><td>{p.rate / 1e9:.1f}</td>"
                   f"<td>{p.rate / min(best.operations, p.intensity * best.bytes):.0%}</td></tr>" for p in found)
    return PAGE.format(words=escape(_words(best)), line=line, dots=dots, rows=rows, width=WIDTH, height=HEIGHT,
                       ticks=_ticks(at, low, high, floor, 2 * best.operations), text=COLORS["text"])


def _dot(point: Point, place: tuple[float, float], share: float) -> str:
    title = f"{point.name} {point.where}: {point.seconds * 1e3:.3f} ms, {point.rate / 1e9:.1f} GFLOP/s"
    return (f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{4 + 26 * share ** 0.5:.1f}" '
            f'fill="{COLORS["point"]}" fill-opacity="0.45"><title>{escape(title)}</title></circle>')


def _ticks(at: Any, low: float, high: float, floor: float, top: float) -> str:
    """Powers of ten along both axes."""
    drawn = []
    for k in range(-6, 16):
        if low <= 10.0 ** k <= high:
            x, y = at(10.0 ** k, floor)
            drawn.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{10.0 ** k:g}</text>')
        if floor <= 10.0 ** k <= top:
            x, y = at(low, 10.0 ** k)
            drawn.append(f'<text x="{x - 8:.0f}" y="{y + 4:.0f}" text-anchor="end">{10.0 ** k / 1e9:g}</text>')
    return "".join(drawn)


def _range(found: Sequence[Point], best: Limits) -> tuple[float, float]:
    """What the axis of intensity shows: all steps, and the knee."""
    knee = best.operations / best.bytes
    values = [p.intensity for p in found] + [knee]
    return min(values) / 3, max(values) * 6


def _words(best: Limits) -> str:
    return f"{best.operations / 1e9:.0f} GFLOP/s and {best.bytes / 1e9:.1f} GB/s on one thread of this machine"


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Roofline</title><style>
body {{ font: 14px system-ui, sans-serif; color: {text}; max-width: 900px; margin: 24px auto; }}
svg text {{ font-size: 11px; fill: {text}; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
td, th {{ padding: 2px 10px; text-align: right; }} td:first-child, td:nth-child(2) {{ text-align: left; }}
</style></head><body><h1>Roofline</h1><p>{words}</p>
<svg width="{width}" height="{height}" role="img" aria-label="GFLOP/s over operations for each byte">
<polyline points="{line}" fill="none" stroke="{line_color}" stroke-width="2"/>{ticks}{dots}
<text x="50%" y="{height}" dy="-12" text-anchor="middle">operations for each byte</text>
<text x="14" y="50%" transform="rotate(-90 14 260)" text-anchor="middle">GFLOP/s</text></svg>
<table><tr><th>step</th><th>line</th><th>ms</th><th>operations for each byte</th><th>GFLOP/s</th>
<th>of the roof</th></tr>
{rows}</table></body></html>
""".replace("{line_color}", COLORS["line"])
