"""Processes of Python with as many threads as asked for, and what they print.

    number(module("memory", "gpt", "--child", "torch"), threads=1)      # the last line, a number
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", "JAX_PLATFORMS": "cpu"}
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}      # installed libraries have bytecode; a checkout keeps it where it may

RUN = """
import runpy, sys, types
_, folder, name, *arguments = sys.argv
package = sys.modules["benchmarks"] = types.ModuleType("benchmarks")
package.__path__ = [folder]
sys.argv = [name, *arguments]
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""


def module(name: str, *arguments: str) -> list[str]:
    """What Python is given to run a module of this folder, wherever that is: an installed one is on nobody's path."""
    return ["-c", RUN, str(Path(__file__).resolve().parent), f"benchmarks.{name}", *arguments]


def environment(threads: int) -> dict[str, str]:
    """Variables that tell every library how many threads to use, and to keep its log to itself."""
    names = "TENON_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"
    return os.environ | dict.fromkeys(names, str(threads)) | QUIET | COMPILED


def caches(folder: str) -> dict[str, str]:
    """Variables by which every library that compiles keeps all of its code in a folder."""
    places = dict.fromkeys(("TENON_CACHE", "TORCHINDUCTOR_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"), folder)
    return places | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                     "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def number(arguments: list[str], threads: int, variables: Mapping[str, str] | None = None) -> float:
    """The number that is all of the last line that a process prints."""
    return float(_last_line(arguments, threads, variables))


def numbers(arguments: list[str], threads: int, variables: Mapping[str, str] | None = None) -> list[float]:
    """The list of numbers that is all of the last line that a process prints."""
    return list(map(float, _last_line(arguments, threads, variables)))


def _last_line(arguments: list[str], threads: int, variables: Mapping[str, str] | None) -> Any:
    done = subprocess.run([sys.executable, *arguments], env=environment(threads) | dict(variables or {}),
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
