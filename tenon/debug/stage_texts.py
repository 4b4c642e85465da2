"""A graph or a function at every stage of compilation, as text: what `tenon opt` and `tenon show` print."""

from __future__ import annotations

import contextlib
import runpy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

from tenon.capture.constant_weights import late_program
from tenon.capture.jitted import Jitted
from tenon.dataflow.from_graph import to_dataflow
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import PACKAGE, ArgumentError, Location, TenonError, location_of
from tenon.graph.text import parse_graph, parse_type, print_graph
from tenon.graph.verify import verify
from tenon.jit import jit
from tenon.loops.parse_loops import is_loop_text
from tenon.loops.run_on_loop_text import run_on_loop_text
from tenon.ops.creation import zeros
from tenon.passes.expand import expand
from tenon.pipeline import CPU, PASSES, Step, compile, compile_with_constants, cross_backend, optimize, run_passes
from tenon.program.backend_interface import Backend
from tenon.serialization.run_file import function_of
from tenon.target import Target, target
from tenon.tensor import Tensor
from tenon.types import TensorType

STAGES = ("graph", "dataflow", "passes", "loops", "schedules", "llvm", "asm")
CONTEXTS = contextlib.__file__
SAMPLE_SIZES = (7, 11)      # of a symbolic size, one capture after the other


def run_on_text(text: str, names: Sequence[str], each: bool = False) -> Iterator[str]:
    """The text of a graph, or of loops, after these passes, or after each of them.

    Raises ArgumentError for an unknown pass.
    """
    if is_loop_text(text):
        yield from run_on_loop_text(text, names, each)
        return
    if unknown := [name for name in names if name not in PASSES]:
        raise ArgumentError(f"no pass named {unknown[0]!r}", hint=f"the passes are {', '.join(PASSES)}")
    steps: list[Step] = []
    graph = run_passes(verify(parse_graph(text)), [(name, PASSES[name]) for name in names], steps, check=True)
    yield from map(str, steps) if each else [print_graph(graph)]


def show_function(where: str, types: Sequence[str], stages: Sequence[str],
                  machine: str | None = None) -> Iterator[str]:
    """The stages of a function in a file, captured for arguments of these types, for this machine or the one named.

    `where` is `FILE:FUNCTION`.  The file is run, as `python FILE` would but for its `__main__` part.  One that
    `tn.save` wrote is only read; its function, the first where none is named, has types of its own.
    """
    if unknown := [stage for stage in stages if stage not in STAGES]:
        raise ArgumentError(f"no stage named {unknown[0]!r}", hint=f"the stages are {', '.join(STAGES)}")
    other = None if machine is None else target(machine)
    if (saved := saved_capture(where)) is not None:
        yield from stage_texts(saved, stages, other)
        return
    function, inputs = sampled_function(where, types)
    yield from stage_texts(function.capture(*inputs), stages, other)


def sampled_function(where: str, types: Sequence[str]) -> tuple[Jitted, tuple[Tensor, ...]]:
    """The function that `FILE:FUNCTION` names, captured for arguments of these types, and such arguments."""
    function, wanted = load_function(where), [parse_type(text) for text in types]
    with blaming(where):
        for size in SAMPLE_SIZES:       # a size that differs from one capture to the next becomes a symbol
            inputs = tuple(sample(type, size) for type in wanted)
            function.capture(*inputs)
    return function, inputs


def saved_capture(where: str) -> Any:
    """What is captured in a file of saved functions, `FILE` or `FILE:FUNCTION`; None where the file is Python."""
    file, _, name = (where, "", "") if Path(where).is_file() else where.rpartition(":")
    if not Path(file).is_file() or Path(file).suffix == ".py":
        return None
    return function_of(file, name or None).variants[0].capture()


def stage_texts(captured: Any, stages: Sequence[str], machine: Target | None = None) -> Iterator[str]:
    """The chosen stages of one capture, each under a title."""
    backend = CPU if machine is None else cross_backend(machine)
    if "graph" in stages:
        yield f"# captured\n{captured.graph}"
    if "dataflow" in stages:
        yield f"# dataflow\n{to_dataflow(expand(captured.graph))}"
    if "passes" in stages:
        steps: list[Step] = []
        optimize(captured.graph, steps, backend)
        yield from map(str, steps)
    program = late_program(captured.program) if machine is None else program_for(captured, backend)
    if "loops" in stages:
        for unit in program.kernels:
            yield f"# kernel {unit.name}"
            yield from map(str, steps := unit.loop_steps)
            if unit.loops != steps[-1].text:
                yield f"# as compiled\n{unit.loops}"
    if "schedules" in stages:
        yield from (f"# schedules of {unit.name}\n{unit.schedules}".rstrip() for unit in program.kernels)
    if "llvm" in stages:
        yield f"# llvm\n{program.llvm}"
    if "asm" in stages:
        yield f"# asm\n{program.assembly}"


def program_for(captured: Any, backend: Backend) -> Any:
    """What every call would run on another machine."""
    graph = captured.graph if captured.halves is None else captured.halves.forward
    if constants := sorted(captured.constant_holders):
        return compile_with_constants(graph, constants, backend).late
    return compile(graph, backend)


def load_function(where: str) -> Jitted:
    """The function that `FILE:FUNCTION` names."""
    file, _, name = where.rpartition(":")
    if not file:
        raise ArgumentError(f"{where!r} names no function", hint="write FILE:FUNCTION, as in train.py:step")
    if not Path(file).is_file():
        raise ArgumentError(f"there is no file {file!r}")
    found = run_file(file).get(name)
    if not callable(found):
        raise ArgumentError(f"{file} has no function named {name!r}")
    return found if isinstance(found, Jitted) else jit(found)


def run_file(file: str) -> dict[str, Any]:
    """What a Python file defines.  Raises TenonError, at the line of the file, for what it raises."""
    with blaming(file):
        return runpy.run_path(file)


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Let what a user's code raises in this block be a message: what was run, what it raised, and where."""
    try:
        yield
    except TenonError:
        raise
    except Exception as error:
        shown = TenonError(f"{what}: {type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}")
        shown.where = raised_at(error)
        raise shown from error


def raised_at(error: Exception) -> Location | None:
    """The innermost line of a user's that an exception came through."""
    if isinstance(error, SyntaxError):
        return Location(error.filename, error.lineno) if error.filename and error.lineno else None
    frames = [frame for frame, _ in walk_tb(error.__traceback__)
              if not frame.f_code.co_filename.startswith((PACKAGE, CONTEXTS, "<frozen"))]
    return location_of(frames[-1]) if frames else None


def sample(form: TensorType, size: int) -> Tensor:
    """Zeros of a type whose symbolic sizes are all `size`."""
    shape = tuple(size if isinstance(dim, SymbolicDim) else dim for dim in form.shape)
    found: Tensor = zeros(shape, dtype=form.dtype)
    return found


