"""A kernel -> the same kernel by the schedule that proved fastest on this machine, where several claim its product.

Every candidate runs on random numbers of the kernel's sizes, in turn and several times; the model's choice stays unless
another takes clearly less time.  What was chosen is remembered by this process and beside the code, under all that
decides the code, so it is measured once: every later run takes the same schedule and gives the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from tenon.backends.cpu.kernel_compiler import libraries
from tenon.backends.cpu.lowered_kernel import make_unit
from tenon.graph.ir import Graph
from tenon.llvm import machine_code
from tenon.llvm.code_cache import make_key
from tenon.observe import emit, span
from tenon.program.backend_interface import Array
from tenon.program.execution_plan import Assembly
from tenon.program.kernel import CompiledKernel
from tenon.program.steps import KernelStep, Storage
from tenon.runtime.program import Program
from tenon.types import TensorType

SECONDS = 0.05          # for each candidate, about,
ROUNDS = 5              # but at least so many runs,
MAX_ROUNDS = 200        # and at most so many
CLEARLY = 0.95          # of the time that the model's choice takes

_chosen: dict[str, str] = {}


def tuned(unit: CompiledKernel) -> CompiledKernel:
    """The kernel by the schedule that is remembered, or measured now; itself where there is no choice."""
    if unit.key is None or unit.facts.sizes or unit.facts.checks:       # its text does not say all, or no sizes
        return unit
    name = make_key("schedule", unit.key)
    schedule = _chosen.get(name)
    if schedule is None:
        found = machine_code.stored(name)
        schedule = _chosen[name] = measured(unit) if found is None else found.decode()
        if found is None:
            machine_code.store(name, schedule.encode())
    return make_unit(unit.body, unit.target, schedule=schedule) if schedule else unit


def measured(unit: CompiledKernel) -> str:
    """The schedule that takes clearly less time than the model's choice; none where that is the fastest."""
    from tenon.backends.cpu.lower_kernel import schedules  # local: with it come all emitters
    _, *others = schedules(unit.kernel, unit.target) or [""]
    if not others:
        return ""
    with span("autotune", kernel=unit.name, candidates=len(others)):
        units = {"": unit} | {name: make_unit(unit.body, unit.target, schedule=name) for name in others}
        libraries(units.values())               # compiled side by side
        times = race({name: _alone(candidate) for name, candidate in units.items()},
                     [_random(p.type) for p in unit.body.params])
    best = min(times, key=times.__getitem__)
    chosen = best if times[best] < CLEARLY * times[""] else ""
    emit("autotuned", kernel=unit.name, chosen=chosen, seconds=times)
    return chosen


def race(programs: dict[str, Program], arrays: Sequence[Array]) -> dict[str, float]:
    """The least time that each takes, measured by turns, so that what disturbs one disturbs all."""
    times = {name: _seconds(program, arrays) for name, program in programs.items()}     # and the caches are warm
    for _ in range(min(max(int(SECONDS / min(times.values())), ROUNDS), MAX_ROUNDS)):
        times = {name: min(best, _seconds(programs[name], arrays)) for name, best in times.items()}
    return times


def _seconds(program: Program, arrays: Sequence[Array]) -> float:
    started = time.perf_counter()
    program.run(arrays)
    return max(time.perf_counter() - started, 1e-9)


def _alone(unit: CompiledKernel) -> Program:
    """The program that is this one kernel."""
    body = unit.body
    arguments = tuple(Storage("argument", p.type, k) for k, p in enumerate(body.params))
    results = tuple(Storage("result", r.type, k) for k, r in enumerate(body.results))
    temporaries = tuple(Storage("temporary", type) for type in unit.facts.temporaries)
    step = KernelStep(body.nodes[-1], unit, arguments, results, temporaries)
    return Program(Assembly(Graph("candidate", body.params, (), body.results), (step,), arguments, results))


def _random(type: TensorType) -> Array:
    """Numbers about 1, of which every function has a value; whole ones are 0, which is an index everywhere."""
    shape = tuple(int(n) for n in type.shape)
    if type.dtype.kind != "f":
        return np.zeros(shape, type.dtype.numpy)
    return (np.random.default_rng(0).random(shape, np.float32) + 0.5).astype(type.dtype.numpy)
