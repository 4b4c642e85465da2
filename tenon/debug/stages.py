"""A graph or a function at every stage of compilation, as text: what `tenon opt` and `tenon show` print."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon.capture.constants import late_program
from tenon.dims import SymbolicDim
from tenon.errors import ArgumentError
from tenon.graph.text import parse_graph, parse_type, print_graph
from tenon.graph.verify import verify
from tenon.jit import Jitted, jit
from tenon.pipeline import PASSES, Step, optimize, run_passes
from tenon.tensor import Tensor
from tenon.types import TensorType

STAGES = ("graph", "passes", "loops", "llvm", "asm")
SAMPLE_SIZES = (7, 11)      # of a symbolic size, one capture after the other


def run_on_text(text: str, names: Sequence[str], each: bool = False) -> Iterator[str]:
    """The text of a graph after these passes, or after each of them.  Raises ArgumentError for an unknown pass."""
    if unknown := [name for name in names if name not in PASSES]:
        raise ArgumentError(f"no pass named {unknown[0]!r}", hint=f"the passes are {', '.join(PASSES)}")
    steps: list[Step] = []
    graph = run_passes(verify(parse_graph(text)), [(name, PASSES[name]) for name in names], steps, check=True)
    yield from map(str, steps) if each else [print_graph(graph)]


def show_function(where: str, types: Sequence[str], stages: Sequence[str]) -> Iterator[str]:
    """The stages of a function in a file, captured for arguments of these types.

    `where` is `FILE:FUNCTION`.  The file is run, as `python FILE` would but for its `__main__` part.
    """
    if unknown := [stage for stage in stages if stage not in STAGES]:
        raise ArgumentError(f"no stage named {unknown[0]!r}", hint=f"the stages are {', '.join(STAGES)}")
    function, wanted = load_function(where), [parse_type(text) for text in types]
    for size in SAMPLE_SIZES:       # a size that differs from one capture to the next becomes a symbol
        captured = function.capture(*(sample(type, size) for type in wanted))
    yield from stage_texts(captured, stages)


def stage_texts(captured: Any, stages: Sequence[str]) -> Iterator[str]:
    """The chosen stages of one capture, each under a title."""
    if "graph" in stages:
        yield f"# captured\n{captured.graph}"
    if "passes" in stages:
        steps: list[Step] = []
        optimize(captured.graph, steps)
        yield from map(str, steps)
    program = late_program(captured.program)
    if "loops" in stages:
        yield from (f"# kernel {unit.name}\n{unit.loops}" for unit in program.kernels)
    if "llvm" in stages:
        yield f"# llvm\n{program.llvm}"
    if "asm" in stages:
        yield f"# asm\n{program.assembly}"


def load_function(where: str) -> Jitted:
    """The function that `FILE:FUNCTION` names."""
    file, _, name = where.rpartition(":")
    if not file:
        raise ArgumentError(f"{where!r} names no function", hint="write FILE:FUNCTION, as in train.py:step")
    if not Path(file).is_file():
        raise ArgumentError(f"there is no file {file!r}")
    found = runpy.run_path(file).get(name)
    if not callable(found):
        raise ArgumentError(f"{file} has no function named {name!r}")
    return found if isinstance(found, Jitted) else jit(found)


def sample(type: TensorType, size: int) -> Tensor:
    """Zeros of a type whose symbolic sizes are all `size`."""
    shape = tuple(size if isinstance(dim, SymbolicDim) else dim for dim in type.shape)
    return Tensor(np.zeros(shape, type.dtype.numpy))


