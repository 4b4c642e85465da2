"""Real data that a machine already has: handwritten digits of scikit-learn, source text of the standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np

from tenon.errors import TenonError
from tenon.tensor import Tensor, tensor


def digits() -> tuple[Tensor, Tensor]:
    """1797 real handwritten digits: images f32[1797, 1, 8, 8] in [0, 1] and labels i64[1797], from scikit-learn."""
    try:
        from sklearn.datasets import load_digits  # local: an optional dependency
    except ImportError:
        raise TenonError("the handwritten digits come with scikit-learn, which is not installed",
                         hint="pip install tenon-graph[data]") from None
    found = load_digits()
    return tensor((found.images[:, None] / 16).astype(np.float32)), tensor(found.target.astype(np.int64))


def stdlib_text(limit: int | None = None) -> str:
    """The sources of Python's standard library, file after file by name, cut at `limit` characters.

    >>> len(tn.data.stdlib_text(1000))
    1000
    """
    parts: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        if limit is not None and size >= limit:
            break
        parts.append(path.read_text(encoding="utf-8", errors="replace"))
        size += len(parts[-1])
    return "".join(parts)[:limit]
