"""A program and the layout of its run -> the plan of its arena in words: what takes most room, where, and from when to
when."""

from __future__ import annotations

from collections.abc import Iterator

from tenon.program.kernel import count
from tenon.program.steps import (
    CopyStep,
    KernelStep,
    Leaf,
    MarkStep,
    ReleaseStep,
    Storage,
    homes,
    leaves,
    touched,
)
from tenon.runtime.program import Program
from tenon.runtime.program_layout import Layout

SHOWN = 8       # places


def plan_of(program: Program, layout: Layout) -> str:
    """How large the arena is, how large it has to be, and its largest places with the first and last step that need
    them."""
    plan = layout.memory
    lines = [f"{program.graph.name}: {plan.size / 1e6:.1f} MB between kernels, at least {plan.lower_bound / 1e6:.1f} "
             f"({plan.gap:.1%} above)", *_places(program, layout)]
    return "\n".join(lines)


def _places(program: Program, layout: Layout) -> Iterator[str]:
    needed: dict[Storage, list[Leaf]] = {}
    for step in leaves(program.parts.steps):
        for storage in dict.fromkeys(home for x in touched(step) for home in homes(x)):
            needed.setdefault(storage, []).append(step)
    places = sorted(((count(x.bytes, layout.sizes), place.where, steps) for x, steps in needed.items()
                     if (place := layout.of.get(x)) is not None and place.kind == "arena"), key=lambda row: -row[0])
    for size, where, (first, *others) in places[:SHOWN]:
        last = f" to {_named(others[-1])}" if others else ""
        yield f"  {size / 1e6:9.3f} MB at {where / 1e6:9.3f}: {_named(first)}{last}"
    if len(places) > SHOWN:
        yield f"  {sum(size for size, *_ in places[SHOWN:]) / 1e6:9.3f} MB in {len(places) - SHOWN} more"


def _named(step: Leaf) -> str:
    if isinstance(step, CopyStep):
        return "a copy"
    if isinstance(step, (MarkStep, ReleaseStep)):
        return "stacks"
    name = step.unit.name if isinstance(step, KernelStep) else step.node.op.name
    return f"{name} ({step.node.loc})" if step.node.loc else name
