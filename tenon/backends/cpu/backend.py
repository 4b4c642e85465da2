"""Optimised graph -> assembly for this processor: bodies to loops to LLVM IR, equal ones once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tenon.backends.cpu.assemble import Assembly, assemble
from tenon.backends.cpu.driver import driver
from tenon.backends.cpu.machine_code import start, threads
from tenon.backends.cpu.unit import Unit, make_unit
from tenon.backends.cpu.unit_cache import keep
from tenon.backends.threads import default_sleep, entries
from tenon.garbage import collect_young
from tenon.graph.ir import Graph
from tenon.observe import emit, span
from tenon.passes.bodies import key_of


def assemble_graph(graph: Graph, tuned: Callable[[Unit], Unit] = lambda unit: unit) -> Assembly:
    """Kernels and steps for a graph, `tuned` those; the kernels' code may still be in the making."""
    units: dict[str, Unit | None] = {}
    pool = threads()
    try:
        for make in (driver, partial(entries, default_sleep())):    # what every program is run by
            pool.submit(make)
        with span("assemble", graph=graph.name, nodes=len(graph.nodes)):
            return assemble(graph, partial(_shared_unit, units, tuned), lambda unit: start(unit, pool))
    finally:
        pool.shutdown(wait=False)


def _shared_unit(units: dict[str, Unit | None], tuned: Callable[[Unit], Unit], body: Graph) -> Unit | None:
    """The kernel of a body, or None; one that can fail is not shared, since it belongs to one place in the source."""
    key = key_of(body)
    if key in units:
        return units[key]
    found = _try_unit(body, key)
    unit = None if found is None else tuned(found)
    if unit is None or not unit.facts.checks:
        units[key] = unit
    return unit


def _try_unit(body: Graph, text: str) -> Unit | None:
    """Loops and, for a kernel that is not known yet, code, so that what code cannot express falls back as well."""
    try:
        unit = make_unit(body, text)
        if "kernel" in vars(unit):
            unit.require_code()
            if unit.key is not None and unit.facts.in_place:
                keep(unit.key, unit.facts)      # without code: it may come to be used in variants alone
        collect_young()
        return unit
    except (NotImplementedError, KeyError, AssertionError, RecursionError) as error:
        emit("no_kernel", kernel=body.name, error=repr(error))
        return None
