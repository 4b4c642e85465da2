"""The TENON_* environment variables -> one frozen `Config`.  Nothing else in the package reads the environment.

| variable      | meaning                                                                      | default          |
|---------------|------------------------------------------------------------------------------|------------------|
| TENON_BACKEND | what runs the graphs: `cpu` (machine code), `reference` (NumPy), or your own | cpu              |
| TENON_THREADS | how many threads a compiled program uses                                     | the usable cores |
| TENON_DEVICES | how many logical devices there are: `cpu:0`, `cpu:1` ...                     | 1                |
| TENON_VECTORS | the longest vectors that machine code uses, in bits: 128, 256 or 512         | the processor's  |
| TENON_CACHE   | the directory that keeps machine code between processes, or `off` or `0`     | ~/.cache/tenon   |
| TENON_SHOW    | prints, by commas: graph, loops, llvm, asm, guards, fallbacks, recompiles, time, memory | nothing |
| TENON_CHECK   | how the compiler checks itself, comma separated: bounds, passes, guard, guard_before | nothing |
| TENON_TRACEBACK | `short`: uncaught errors end at your line; `full`: with Tenon's own frames    | short            |
| TENON_TIMEOUT | how many seconds a process of several waits for another one                  | 600              |
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from tenon.errors import TenonError
from tenon.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "0.1.0"       # of Tenon
SHOWABLE = ("graph", "loops", "llvm", "asm", "guards", "fallbacks", "time", "memory", "recompiles")
CHECKABLE = ("bounds", "passes", "guard", "guard_before")
VECTORS = ("128", "256", "512")
MAX_THREADS = 1024
WORLD_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")      # what MPICH, Open MPI and Slurm set
MAX_DEVICES = 1024
OFF, ON = ("off", "0", "no", "none", "false"), ("on", "1", "yes", "true")      # words that name no directory


class ConfigError(TenonError, ValueError):
    """A TENON_* variable holds something that has no meaning."""


@dataclass(frozen=True)
class Config:
    backend: str
    threads: int
    vectors: int            # bits
    cache_dir: Path | None  # None: keep nothing between processes
    show: frozenset[str]
    check: frozenset[str] = frozenset()
    traceback: str = "short"
    timeout: float = 600.0  # seconds
    processes: bool = False     # whether this is one of several that an MPI launcher started
    devices: int = 1        # logical ones


@cache
def config() -> Config:
    """The configuration of this process; the environment is read on the first call only."""
    return read_config(os.environ)


def read_config(environ: Mapping[str, str]) -> Config:
    return Config(
        backend=_backend(environ.get("TENON_BACKEND", "").strip() or "cpu"),
        threads=_count("TENON_THREADS", environ, MAX_THREADS) or usable_cores(),
        devices=_count("TENON_DEVICES", environ, MAX_DEVICES) or 1,
        vectors=int(_one_of("TENON_VECTORS", environ.get("TENON_VECTORS", "").strip() or VECTORS[-1], VECTORS)),
        cache_dir=_cache_dir(environ),
        show=read_show(environ),
        check=_words("TENON_CHECK", environ, CHECKABLE),
        traceback=read_traceback(environ),
        timeout=_seconds("TENON_TIMEOUT", environ.get("TENON_TIMEOUT", "").strip() or "600"),
        processes=any(int(environ.get(name, "").strip() or 0) > 1 for name in WORLD_SIZES
                      if environ.get(name, "").strip().isdigit()),
    )


def read_show(environ: Mapping[str, str]) -> frozenset[str]:
    """The words of TENON_SHOW."""
    return _words("TENON_SHOW", environ, SHOWABLE)


def read_traceback(environ: Mapping[str, str]) -> str:
    """Whether uncaught errors are printed short, or in full."""
    return _one_of("TENON_TRACEBACK", environ.get("TENON_TRACEBACK", "").strip() or "short", ("short", "full"))


def _words(variable: str, environ: Mapping[str, str], known: tuple[str, ...]) -> frozenset[str]:
    words = (word.strip() for word in environ.get(variable, "").split(","))
    return frozenset(_one_of(variable, word, known) for word in words if word)


def _backend(name: str) -> str:
    """A name; whether it is that of a backend is known when something is compiled, and users' backends are there."""
    if not name.isidentifier():
        raise ConfigError(f"TENON_BACKEND: {name!r} is no name of a backend")
    return name


def _one_of(variable: str, word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise ConfigError(f"{variable}: {word!r} is not one of {', '.join(known)}")
    return word


def _seconds(variable: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise ConfigError(f"{variable}: {text!r} is no number of seconds above 0")
    return found


def _count(variable: str, environ: Mapping[str, str], most: int) -> int:
    """A number from 1 on; 0 where none is given."""
    text = environ.get(variable, "").strip()
    if text and not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most):
        raise ConfigError(f"{variable}: {text!r} is not a whole number from 1 to {most}")
    return int(text or 0)


def _cache_dir(environ: Mapping[str, str]) -> Path | None:
    from pathlib import Path  # local: slow to load
    chosen = environ.get("TENON_CACHE", "").strip()
    if chosen.lower() in OFF:
        return None
    if chosen.lower() in ON:
        raise ConfigError(f"TENON_CACHE: {chosen!r} is neither a directory nor one of {', '.join(OFF)}",
                          hint=f"without the variable there is a cache; a directory of that name is ./{chosen}")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        return Path.home() / ".cache" / "tenon"
    except RuntimeError:  # no home directory: a container with an unknown user
        return None


@cache
def usable_cores() -> int:
    """The cores that this process may run on: by affinity, and by the share of time that its container is given."""
    allowed: int | None
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        allowed = os.process_cpu_count()
    elif hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count()
    return max(1, min(allowed or 1, math.ceil(min(_container_limits(), default=MAX_THREADS))))


def _container_limits() -> list[float]:
    """Cores' worth of time allowed by each control group (version 2) that this process is in."""
    from pathlib import Path  # local, as above
    limits = []
    root = Path("/sys/fs/cgroup")
    with suppress(OSError):
        group = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # no such file, or "max" for no limit
                quota, period = (folder / "cpu.max").read_text().split()
                limits.append(int(quota) / int(period))
    return limits
