"""Pictures as files, by matplotlib where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HAVE_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def grid(path: Path, pictures: np.ndarray, titles: Sequence[str], colors: Sequence[str],
         columns: int = 8) -> Path | None:
    """Write pictures [n, height, width] to a PNG, each under its title; returns the path, None without matplotlib."""
    if not HAVE_MATPLOTLIB:
        return None
    from matplotlib.figure import Figure  # optional dependency

    rows = -(-len(pictures) // columns)
    figure = Figure(figsize=(columns, rows * 1.25), layout="constrained")
    for axes, picture, title, color in zip(figure.subplots(rows, columns, squeeze=False).flat, pictures, titles, colors,
                                           strict=False):
        axes.imshow(picture, cmap="gray_r")
        axes.set_title(title, color=color)
    for axes in figure.axes:
        axes.axis("off")
    figure.savefig(path, dpi=120)
    return path
