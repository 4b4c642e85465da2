"""The TENON_* environment variables -> one frozen `Config`.  Nothing else in the package reads the environment.

| variable      | meaning                                                                      | default          |
|---------------|------------------------------------------------------------------------------|------------------|
| TENON_BACKEND | what runs the graphs: `cpu` (machine code) or `reference` (NumPy)            | cpu              |
| TENON_THREADS | how many threads a compiled program uses                                     | the usable cores |
| TENON_CACHE   | the directory that keeps machine code between processes, or `off`            | ~/.cache/tenon   |
| TENON_SHOW    | what to print, comma separated: graph, loops, llvm, asm, guards, fallbacks, time, memory | nothing |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BACKENDS = ("cpu", "reference")
SHOWABLE = ("graph", "loops", "llvm", "asm", "guards", "fallbacks", "time", "memory")
MOST_THREADS = 1024


class ConfigError(ValueError):
    """A TENON_* variable holds something that has no meaning."""


@dataclass(frozen=True)
class Config:
    backend: str
    threads: int | None  # None: as many as there are usable cores
    cache_dir: Path | None  # None: keep nothing between processes
    show: frozenset[str]


@cache
def config() -> Config:
    """The configuration of this process; the environment is read on the first call only."""
    return read_config(os.environ)


def read_config(environ: Mapping[str, str]) -> Config:
    return Config(
        backend=_one_of("TENON_BACKEND", environ.get("TENON_BACKEND", "").strip() or "cpu", BACKENDS),
        threads=_threads(environ.get("TENON_THREADS", "").strip()),
        cache_dir=_cache_dir(environ),
        show=frozenset(
            _one_of("TENON_SHOW", word.strip(), SHOWABLE)
            for word in environ.get("TENON_SHOW", "").split(",")
            if word.strip()
        ),
    )


def _one_of(variable: str, word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise ConfigError(f"{variable}: {word!r} is not one of {', '.join(known)}")
    return word


def _threads(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_THREADS):
        raise ConfigError(f"TENON_THREADS: {text!r} is not a whole number from 1 to {MOST_THREADS}")
    return int(text)


def _cache_dir(environ: Mapping[str, str]) -> Path | None:
    chosen = environ.get("TENON_CACHE", "").strip()
    if chosen.lower() == "off":
        return None
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        return Path.home() / ".cache" / "tenon"
    except RuntimeError:  # no home directory: a container with an unknown user
        return None
