"""Pictures as files: by matplotlib where it is installed, and PNG of pixels."""

from __future__ import annotations

import importlib.util
import struct
import zlib
from collections.abc import Mapping, Sequence
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


def curves(path: Path, history: Mapping[str, Sequence[tuple[int, float]]]) -> Path | None:
    """Write (step, value) pairs as a PNG, a curve under each name; returns the path, None without matplotlib."""
    if not HAVE_MATPLOTLIB:
        return None
    from matplotlib.figure import Figure  # optional dependency

    figure = Figure(figsize=(8, max(1, len(history)) * 2.6), layout="constrained")
    for axes, (name, pairs) in zip(figure.subplots(max(1, len(history)), 1, squeeze=False).flat, history.items(),
                                   strict=False):
        axes.plot(*np.array(pairs, np.float64).reshape(-1, 2).T, marker="." if len(pairs) < 2 else "")
        axes.set(title=name, xlabel="step")
        axes.grid(True, alpha=0.3)
    figure.savefig(path, dpi=120)
    return path


Row = tuple[str, str, str, float, float]        # whose it is, its name and kind, from when to when in seconds
COLORS = {"compute": "#3b7dd8", "send": "#2a9d5c", "recv": "#e0a030", "wait": "#dddddd"}


def spans_by_row(path: Path, charts: Mapping[str, Sequence[Row]]) -> Path | None:
    """Write a chart of bars in rows under each title; returns the path, None without matplotlib."""
    if not HAVE_MATPLOTLIB:
        return None
    from matplotlib.figure import Figure  # optional dependency

    figure = Figure(figsize=(11, 1 + 1.6 * len(charts)), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(max(1, len(charts)), 1, squeeze=False, sharex=True).flat,
                                   charts.items(), strict=False):
        names = list(dict.fromkeys(row[0] for row in rows))
        for whose, _, kind, start, end in rows:
            axes.barh(names.index(whose), (end - start) * 1e6, left=start * 1e6, color=COLORS.get(kind, "gray"),
                      edgecolor="white", linewidth=0.4)
        axes.set(title=title, yticks=range(len(names)), yticklabels=names)
        axes.invert_yaxis()
    figure.axes[-1].set_xlabel("microseconds")
    figure.savefig(path, dpi=120)
    return path


def png_bytes(pixels: np.ndarray) -> bytes:
    """Bytes [height, width, 1, 3 or 4 channels] as a PNG."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)    # no filter
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks)
