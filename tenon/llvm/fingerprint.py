"""This version of Tenon -> a short text that changes with any line of it: part of the names of what is kept on disk."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tenon.errors import PACKAGE
from tenon.llvm import machine_code
from tenon.llvm.code_cache import make_key
from tenon.locks import Lock

SETTLING_SECONDS = 2.0  # seconds after a change, within which a second one may have the same time
File = tuple[str, os.stat_result]


_looking = Lock()


def fingerprint() -> str | None:
    """The digest of the package's source files; None where they cannot be read, so that nothing can be kept.

    A version number would do for releases, and give yesterday's code to whoever edits the compiler.
    """
    with _looking:          # who asks meanwhile waits
        return _of_sources()


@cache
def _of_sources() -> str | None:
    try:
        files = sorted(_sources(PACKAGE))
        return _remembered(files) if files else None
    except OSError:
        return None


def _sources(folder: str) -> list[File]:
    found = []
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            found += _sources(entry.path)
        elif entry.name.endswith(".py"):
            found.append((entry.path, entry.stat()))
    return found


def _remembered(files: Sequence[File]) -> str:
    """The digest; from the disk where the system says that no file was changed since, as Python does for its own."""
    facts = ((path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for path, stat in files)
    key = make_key("sources", *map(str, facts))
    known = machine_code.stored(key)
    if known is not None:
        return known.decode()
    digest = _digest(files)
    if time.time() - max(max(stat.st_mtime, stat.st_ctime) for _, stat in files) > SETTLING_SECONDS:
        machine_code.store(key, digest.encode())
    return digest


def _digest(files: Sequence[File]) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        digest.update(path.encode() + b"\0")
        digest.update(Path(path).read_bytes() + b"\0")
    return digest.hexdigest()
