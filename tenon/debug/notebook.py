"""Tensors and graphs as a notebook shows them: HTML made from values, without scripts or styles from outside.

`tenon/__init__.py` makes these the `_repr_html_` of their classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import numpy as np

from tenon.graph.ir import Graph, Input, Value
from tenon.graph.text import value_names
from tenon.tensor import Tensor

CELLS = 24              # at most so many rows and columns of a heat map
CELL_PIXELS = 9
MONOSPACE = "font-family: monospace; white-space: pre"


def tensor_html(tensor: Tensor) -> str:
    """Type, range, counts of NaN and infinity, and a small heat map.

    >>> from tenon.debug.notebook import tensor_html
    >>> print(tensor_html(tn.tensor([1.0, 3.0]))[:60])
    <div style="font-family: monospace; white-space: pre">tensor
    """
    if not isinstance(tensor.payload, np.ndarray):
        return block(f"tensor {tensor.type} (captured)")
    return block(f"tensor {tensor.type}   {summary(tensor.payload)}", heat_map(tensor.payload))


def graph_html(graph: Graph) -> str:
    """A table with one row a node: value, type, operator call, the user's line."""
    names = value_names(graph)
    params = ", ".join(f"{names[p]}: {p.type}" for p in graph.params)
    rows = [(", ".join(names[x] for x in node.outputs), ", ".join(str(x.type) for x in node.outputs),
             f"{node.op.name}({', '.join(_input(x, names) for x in node.inputs)})", str(node.loc or ""))
            for node in graph.nodes]
    title = f"{graph.name}({params}) → {', '.join(names[r] for r in graph.results)}   {len(graph.nodes)} nodes"
    return block(title, table_html(("value", "type", "operator", "line"), rows))


def _input(x: Input, names: Mapping[Value, str]) -> str:
    return names[x] if isinstance(x, Value) else repr(x.value) if x else "None"


def summary(array: np.ndarray) -> str:
    """Range, mean and odd values of an array, in words."""
    if array.size == 0:
        return "empty"
    if array.dtype.kind in "c":
        return f"{array.size:,} elements"
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    words = [f"min {finite.min():.4g}   mean {finite.mean():.4g}   max {finite.max():.4g}"] if finite.size else []
    for name, count in (("NaN", int(np.isnan(numbers).sum())), ("inf", int(np.isinf(numbers).sum()))):
        words += [f"{count:,} {name}"] if count else []
    return "   ".join(words)


def heat_map(array: np.ndarray) -> str:
    """An SVG of the last two axes, thinned to at most CELLS rows and columns; dark is low, NaN is red."""
    if array.size < 2 or array.dtype.kind == "c":
        return ""
    plane = array.reshape(-1, array.shape[-1]) if array.ndim != 2 else array
    plane = plane[np.linspace(0, plane.shape[0] - 1, min(CELLS, plane.shape[0])).astype(int)]
    plane = plane[:, np.linspace(0, plane.shape[1] - 1, min(CELLS, plane.shape[1])).astype(int)].astype(np.float64)
    finite = plane[np.isfinite(plane)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    shade = np.clip((plane - low) / ((high - low) or 1.0), 0.0, 1.0)
    cells = [f'<rect x="{x * CELL_PIXELS}" y="{y * CELL_PIXELS}" width="{CELL_PIXELS}" height="{CELL_PIXELS}" '
             f'fill="{color(shade[y, x])}"/>' for y in range(plane.shape[0]) for x in range(plane.shape[1])]
    return (f'<svg width="{plane.shape[1] * CELL_PIXELS}" height="{plane.shape[0] * CELL_PIXELS}" '
            f'style="display: block; margin-top: 4px">{"".join(cells)}</svg>')


def color(shade: float) -> str:
    """A colour from dark blue (0) over green to yellow (1); NaN is red."""
    if not np.isfinite(shade):
        return "#d33"
    return f"rgb({int(68 + 185 * shade)}, {int(1 + 230 * shade)}, {int(84 + 60 * np.sin(np.pi * shade))})"


def block(title: str, *parts: str) -> str:
    """A monospaced line of text, then parts that are HTML already."""
    return f'<div style="{MONOSPACE}">{escape(title)}</div>{"".join(parts)}'


def table_html(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """An HTML table of text."""
    head = "".join(f'<th style="text-align: left">{escape(c)}</th>' for c in columns)
    cell = f'<td style="text-align: left; {MONOSPACE}">'
    body = "".join("<tr>" + "".join(f"{cell}{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
