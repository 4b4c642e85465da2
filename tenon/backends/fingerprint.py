"""This version of Tenon -> a short text that changes with any line of it: part of the names of what is kept on disk."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from tenon.errors import PACKAGE


@cache
def fingerprint() -> str | None:
    """The digest of the package's source files; None where they cannot be read, so that nothing can be kept.

    A version number would do for releases, and give yesterday's code to whoever edits the compiler.
    """
    digest = hashlib.sha256()
    try:
        files = sorted(_sources(PACKAGE))
        for file in files:
            digest.update(file.encode() + b"\0")
            digest.update(Path(file).read_bytes() + b"\0")
    except OSError:
        return None
    return digest.hexdigest() if files else None


def _sources(folder: str) -> list[str]:
    found = []
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            found += _sources(entry.path)
        elif entry.name.endswith(".py"):
            found.append(entry.path)
    return found
