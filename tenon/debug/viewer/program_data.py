"""A program and the times of its steps -> plain data: steps, kernels with loops and code, and the arena over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenon.backends.cpu.kernel_listing import listing_of
from tenon.debug.node_costs import flops_of, nodes_of, shares_of
from tenon.debug.node_origins import number_of
from tenon.debug.step_times import Timed
from tenon.debug.viewer.graph_data import Data
from tenon.graph.ir import Node
from tenon.program.kernel import CompiledKernel, count
from tenon.program.steps import CopyStep, HostStep, KernelStep, Leaf, Storage, homes, leaves, touched
from tenon.runtime.program import Program
from tenon.runtime.program_layout import Layout

LONGEST_CODE = 400_000          # characters of one kernel's code
Sizes = Mapping[str, int]


def step_data(program: Program, timed: Sequence[Timed], numbers: Mapping[Node, int], sizes: Sizes) -> list[Data]:
    """What runs, in order: kernels, operators that NumPy does, copies.  Times where they were measured."""
    times = {id(t.step): t for t in timed if t.step is not None}
    kernels = {unit: k for k, unit in enumerate(program.kernels)}
    return [_step(step, times.get(id(step)), kernels, numbers, sizes) for step in _shown(program)]


def _shown(program: Program) -> list[Leaf]:
    return [x for x in leaves(program.parts.steps) if isinstance(x, (KernelStep, HostStep, CopyStep))]


def _step(step: Leaf, timed: Timed | None, kernels: Mapping[CompiledKernel, int], numbers: Mapping[Node, int],
          sizes: Sizes) -> Data:
    node = None if isinstance(step, CopyStep) else getattr(step, "node", None)
    kind = {KernelStep: "kernel", HostStep: "host"}.get(type(step), "copy")
    parts: dict[int, float] = defaultdict(float)
    for x, part in shares_of(step, sizes):
        parts[number_of(x)] += part
    return {
        "kind": kind, "name": _name(step), "node": numbers.get(node, -1) if node is not None else -1,
        "kernel": kernels[step.unit] if isinstance(step, KernelStep) else None,
        "bytes": sum(count(x.bytes, sizes) for x in touched(step)),
        "flops": sum(flops_of(x, sizes) for x in nodes_of(step)),
        "seconds": timed.seconds if timed else None, "longest": timed.longest if timed else None,
        "origins": [[k, round(part, 4)] for k, part in parts.items()], "body": [number_of(x) for x in nodes_of(step)]}


def _name(step: Leaf) -> str:
    if isinstance(step, KernelStep):
        return step.unit.name
    return step.node.op.name if isinstance(step, HostStep) else "copy"


def kernel_data(program: Program, code: bool) -> list[Data]:
    """The distinct kernels: loops, and with `code` LLVM's text and the machine's, how their lines belong together, and
    the seconds that LLVM's text and the machine's code took."""
    return [_kernel(unit, code) for unit in program.kernels]


def _kernel(unit: CompiledKernel, code: bool) -> Data:
    listing = listing_of(unit, code)
    llvm, machine = listing.llvm or ("", []), listing.assembly or ("", [])
    return {"name": unit.name, "loops": listing.loops, "llvm": _cut(llvm[0]) if code else None,
            "asm": _cut(machine[0]) if code else None, "compile": list(listing.seconds) if code else None,
            "lines": {"nodes": listing.nodes, "llvm": llvm[1], "asm": machine[1]}}


def _cut(text: str) -> str:
    more = len(text) - LONGEST_CODE
    return text if more <= 0 else f"{text[:LONGEST_CODE]}\n... {more} more characters"


def arena_data(program: Program, layout: Layout) -> Data:
    """The memory between kernels: every place with the first and last step that need it."""
    steps = _shown(program)
    lives: dict[Storage, list[int]] = {}
    for k, step in enumerate(steps):
        for x in _homes(touched(step)):
            lives.setdefault(x, []).append(k)
    makers = {x: k for k, step in reversed(list(enumerate(steps))) for x in _homes(step.outputs)}
    places = [{"offset": place.where, "bytes": count(x.bytes, layout.sizes), "first": used[0], "last": used[-1],
               "type": str(x.type), "step": makers.get(x, used[0])}
              for x, used in lives.items() if (place := layout.of.get(x)) is not None and place.kind == "arena"]
    places.sort(key=lambda p: (p["first"], p["offset"]))
    plan = layout.memory
    return {"size": plan.size, "lower_bound": plan.lower_bound, "steps": len(steps), "places": places,
            "scratch": layout.scratch * layout.threads}


def _homes(storages: Iterable[Storage]) -> dict[Storage, Any]:
    return dict.fromkeys(home for x in storages for home in homes(x))
