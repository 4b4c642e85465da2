"""A program that is wrong -> the smallest one found that is wrong in the same way, by delta debugging.

Each move makes a program simpler: fewer outputs, calls or steps, no transformation, a step replaced by an input or by
what it was made of, smaller sizes, plainer types and data.  A move stays if the program is still wrong.  Every try runs
in a child of this process, so that a crash or a hang is an answer like any other.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.generate import generate
from fuzz.judge import Failure, judge
from fuzz.program import Input, Program, Step, load, trimmed

SECONDS = 30            # of the processor, for one try
ASLEEP = 10             # times as many seconds in which it may do nothing, for others do
Moves = Iterator[Program]


def shrunk(program: Program, failure: Failure, seconds: float = 120.0,
           check: Callable[[str], Failure | None] | None = None) -> tuple[Program, Failure]:
    """The smallest program found within this time, and what is wrong with it."""
    check, end = check or judged_apart, time.monotonic() + seconds
    tried = {program.source}
    while time.monotonic() < end:
        for smaller in moves(program):
            if smaller.source in tried or time.monotonic() > end:
                continue
            tried.add(smaller.source)
            found = check(smaller.source)
            if found is not None and found.kind == failure.kind:
                program, failure = smaller, found
                break
        else:
            break
    return program, failure


def judged_apart(source: str, seconds: float = SECONDS) -> Failure | None:
    """What is wrong with a program, found by a child process that may crash or hang."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of other threads: the child has none that matter
        child = os.fork()
    if not child:
        os.close(reader)
        code = 1
        try:
            found = judge(source).failure
            os.write(writer, json.dumps([found.kind, found.detail] if found else None).encode())
            code = 0
        except Exception as error:      # of the judge's own, which is no verdict
            os.write(writer, json.dumps(["the judge raises", repr(error)[:500]]).encode())
        finally:
            os._exit(code)
    os.close(writer)
    return answer(child, reader, seconds)


def answer(child: int, reader: int, seconds: float) -> Failure | None:
    """What a child says, or how it ended."""
    ready: list[int] = []
    used, end = processor_seconds(child), time.monotonic() + ASLEEP * seconds
    while not ready and processor_seconds(child) - used < seconds and time.monotonic() < end:
        ready, _, _ = select.select([reader], [], [], 0.2)
    if not ready:
        os.kill(child, signal.SIGKILL)
    said = os.read(reader, 65536) if ready else b""
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if not ready:
        return Failure("hangs", f"no answer in {seconds:g} seconds")
    if os.WIFSIGNALED(status):
        return Failure("crashes", f"by signal {signal.Signals(os.WTERMSIG(status)).name}")
    found = json.loads(said) if said else None
    return Failure(*found) if found else None


def processor_seconds(process: int) -> float:
    """How long a process has computed, as Linux tells; time that passes, elsewhere."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- moves

def moves(program: Program) -> Moves:
    """Simpler programs, the boldest first."""
    yield from without_transform(program)
    yield from fewer_calls(program)
    yield from fewer_outputs(program)
    yield from cut_steps(program)
    yield from bypassed_steps(program)
    yield from smaller_sizes(program)
    yield from plainer_inputs(program)


def without_transform(p: Program) -> Moves:
    if p.again:
        yield replace(p, again=False)
    for simpler in ("plain", "grad"):
        if p.transform not in (simpler, "plain"):
            yield replace(p, transform=simpler, batch=0)
    if p.batch > 1:
        yield replace(p, batch=1)


def fewer_calls(p: Program) -> Moves:
    for k in range(len(p.calls)):
        yield replace(p, calls=p.calls[:k] + p.calls[k + 1:])
        yield replace(p, calls=(), inputs=tuple(replace(x, shape=s) for x, s in zip(p.inputs, p.calls[k], strict=True)))


def fewer_outputs(p: Program) -> Moves:
    for name in p.outputs if len(p.outputs) > 1 else ():
        yield with_outputs(p, (name,))
    for name in p.outputs if len(p.outputs) > 2 else ():
        yield with_outputs(p, tuple(x for x in p.outputs if x != name))
    for step in reversed(p.steps):
        for name in step.targets:
            if name not in p.outputs:
                yield with_outputs(p, (name,))


def with_outputs(p: Program, outputs: tuple[str, ...]) -> Program:
    floats = tuple(name for name in outputs if name in p.floats or name not in p.outputs)
    return trimmed(replace(p, outputs=outputs, floats=floats or outputs))


def cut_steps(p: Program) -> Moves:
    """An input in the place of a step, of the type that it had."""
    types = value_types(p)
    for k, step in reversed(list(enumerate(p.steps))):
        if all(name in types and name not in p.outputs for name in step.targets):
            made = tuple(Input(f"y{name}", *types[name], seed=k) for name in step.targets)
            names = {name: f"y{name}" for name in step.targets}
            steps = tuple(renamed(s, names) for s in p.steps[:k] + p.steps[k + 1:])
            yield trimmed(replace(p, inputs=p.inputs + made, steps=steps, calls=()))


def bypassed_steps(p: Program) -> Moves:
    """What a step was made of in its place."""
    for k, step in reversed(list(enumerate(p.steps))):
        for name in step.inputs if len(step.targets) == 1 else ():
            names = {step.targets[0]: name}
            outputs = tuple(dict.fromkeys(names.get(x, x) for x in p.outputs))
            steps = tuple(renamed(s, names) for s in p.steps[:k] + p.steps[k + 1:])
            yield trimmed(replace(p, steps=steps, outputs=outputs, floats=tuple(dict.fromkeys(
                names.get(x, x) for x in p.floats))))


def smaller_sizes(p: Program) -> Moves:
    """Another number wherever a size stands, in phrases too."""
    for n in sorted({n for x in p.inputs for n in x.shape}, reverse=True):
        for m in sorted({1, 2, 3, 4, 5, n // 2, n - 1} - {0}):
            if m < n:
                yield with_size(p, n, m, True)
                yield with_size(p, n, m, False)
    for k, x in enumerate(p.inputs):
        for axis in range(len(x.shape)):
            yield with_input(p, k, replace(x, shape=x.shape[:axis] + x.shape[axis + 1:]))


def with_size(p: Program, n: int, m: int, everywhere: bool) -> Program:
    def other(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(m if k == n else k for k in shape)
    steps = tuple(replace(s, template=re.sub(rf"(?<![\w.{{]){n}(?![\w.}}])", str(m), s.template)) for s in p.steps)
    return replace(p, inputs=tuple(replace(x, shape=other(x.shape)) for x in p.inputs),
                   steps=steps if everywhere else p.steps, calls=tuple(tuple(map(other, shapes)) for shapes in p.calls))


def plainer_inputs(p: Program) -> Moves:
    for k, x in enumerate(p.inputs):
        if x.layout != "plain":
            yield with_input(p, k, replace(x, layout="plain"))
        if x.dtype in ("f64", "bf16", "f16"):
            yield with_input(p, k, replace(x, dtype="f32"))
        for values in ("whole", "normal"):
            if x.values in ("special", "positive", "normal")[:2 + (values == "whole")] and x.values != values:
                yield with_input(p, k, replace(x, values=values))
        if x.seed > 9:
            yield with_input(p, k, replace(x, seed=0))


def with_input(p: Program, k: int, x: Input) -> Program:
    calls = p.calls if x.shape == p.inputs[k].shape else ()
    return replace(p, inputs=p.inputs[:k] + (x,) + p.inputs[k + 1:], calls=calls)


def renamed(step: Step, names: dict[str, str]) -> Step:
    return replace(step, inputs=tuple(names.get(x, x) for x in step.inputs))


def value_types(p: Program) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The type of every value, found by an eager run of the steps alone."""
    names = [name for step in p.steps for name in step.targets]
    all_of_it = replace(p, transform="plain", batch=0, outputs=tuple(names), calls=())
    try:
        module: Any = load(all_of_it.source, "<types>")
        found = module.program(*map(module.tn.asarray, module.CALLS[0]))
        listed = found if isinstance(found, tuple) else (found,)
        return {name: (x.dtype.short, tuple(x.shape)) for name, x in zip(names, listed, strict=True)}
    except Exception:
        return {}


def main(seed: int, kind: str, detail: str, seconds: float) -> dict[str, str]:
    """Shrink the program of a seed; what a worker answers with."""
    program, failure = shrunk(generate(seed), Failure(kind, detail), seconds)
    return {"source": program.source, "kind": failure.kind, "detail": failure.detail}
