"""A jitted function and observers -> its compiled programs, run with looks at their memory while a block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.constant_weights import late_program
from tenon.capture.graph_breaks import Around, Run
from tenon.capture.jitted import Jitted
from tenon.eager.dispatch import program_of
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.on_mesh import parts_of
from tenon.errors import ArgumentError, TenonError
from tenon.program.backend_interface import Executable
from tenon.runtime.instrumented_program import Halted, InstrumentedProgram, StepObserver
from tenon.runtime.multi_device import MultiDevice
from tenon.runtime.program import Program
from tenon.runtime.spmd_program import SpmdProgram, Unheard
from tenon.runtime.staged_program import StagedProgram


def jitted_of(function: Any, tool: str) -> Jitted:
    """The jitted function that a tool works on; raises ArgumentError for any other."""
    jitted = getattr(function, "__func__", function)
    if not isinstance(jitted, Jitted):
        raise ArgumentError(f"{tool} takes a function with @tn.jit, not {function!r}",
                            hint=f"put @tn.jit above it: {tool} looks into compiled code")
    return jitted


@contextmanager
def instrumented(jitted: Jitted, observers: Sequence[StepObserver], around: Around | None = None,
                 given: Callable[[Sequence[Any]], None] | None = None, devices: bool = False) -> Iterator[None]:
    """Let observers see what runs of the function's programs have in memory.

    `around` is called around each run.  `given` is called with the arguments of the program of a gradient, which runs
    outside of calls.

    With `devices` also those of a mesh or of a graph that is cut, where observers are called on a thread a device.
    """
    with ExitStack() as ends:
        known: set[Program] = set()

        def run_looked_at(run: Run, captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> Any:
            several = _by_device(captured, leaves) if devices else ()
            for program, inside in (*programs_of(captured), *((part, True) for part in several)):
                if program not in known:
                    known.add(program)
                    ends.callback(_look(program, observers, None if inside else given or _nobody))
            try:
                return run(captured, leaves, containers)
            except Halted as halted:
                raise halted.error from None
        with jitted.with_around(run_looked_at):
            if around is not None:
                ends.enter_context(jitted.with_around(around))
            yield


def _look(program: Program, observers: Sequence[StepObserver],
          given: Callable[[Sequence[Any]], None] | None) -> Callable[[], None]:
    """Put looks into a program, beside those that are there; what takes them out again."""
    before = program.instrumented
    own = (*before.observers, *observers) if isinstance(before, InstrumentedProgram) else tuple(observers)
    program.instrumented = InstrumentedProgram(program, own, given)

    def end() -> None:
        program.instrumented = before
    return end


def _nobody(arrays: Sequence[Any]) -> None:
    """Nobody wants to know."""


def programs_of(captured: Captured) -> Iterator[tuple[Program, bool]]:
    """The native programs that a call of the capture runs, and that of its gradient, which runs outside of calls."""
    try:
        yield from ((program, True) for program in _native(captured.program))
        if captured.differentiable and is_grad_enabled() and captured.halves is not None:
            for half in captured.halves.parts:
                yield from ((program, False) for program in _native(program_of(half.backward)))
    except TenonError:          # what is wrong with the program, running it says
        return


def runs_on_devices(captured: Captured) -> bool:
    """Whether the capture is one graph a device."""
    return isinstance(captured.program, (MultiDevice, SpmdProgram))


def _by_device(captured: Captured, leaves: Sequence[Any]) -> Iterator[Program]:
    """The native programs of the devices that a capture runs on, for these arguments."""
    program = captured.program
    if isinstance(program, SpmdProgram):
        arrays = [parts_of(x.own.payload) for x in captured.inputs.holders(leaves)]
        program = program.program_for(arrays).program
    if isinstance(program, MultiDevice):
        for part in program.parts.values():
            inner = part.program.program if isinstance(part.program, Unheard) else part.program
            yield from _native(inner)


def _native(program: Executable) -> Iterator[Program]:
    late = late_program(program)
    parts = late._programs.values() if isinstance(late, StagedProgram) else (late,)
    yield from (part for part in parts if isinstance(part, Program))
