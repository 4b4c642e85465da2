"""Steps -> the last of them that may find an error: before it no argument may be overwritten.

A step that looks for what an earlier one would have found does not count: the gradient of an embedding writes at the
very indices at which the embedding was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.backends.cpu.steps import KernelStep, Step, Storage
from tenon.dims import Dim
from tenon.passes.checks import checked, is_whole
from tenon.runtime.table import has_loops, is_checked


def last_failing(steps: Sequence[Step]) -> int:
    """The place of the last step that may fail where all before it did not, or be interrupted; -1 where none may."""
    last, known = -1, set[tuple[Storage, Dim]]()
    for k, step in enumerate(steps):
        found = _checked(step)
        if has_loops(step) or (is_checked(step) and (found is None or not found <= known)):
            last = k
        if found is not None and isinstance(step, KernelStep) and is_whole(step.unit.body):
            known |= found
    return last


def _checked(step: Step) -> set[tuple[Storage, Dim]] | None:
    """The arguments whose elements are checked to be indices of so many places; None where it is not as simple."""
    if not isinstance(step, KernelStep) or any(check.node < 0 for check in step.unit.facts.checks):
        return None
    body = step.unit.body
    found = checked(body, [body.nodes[check.node] for check in step.unit.facts.checks])
    places = {(step.inputs[k], size) for k, size in found or ()}
    return places if places and all(place.kind == "argument" for place, _ in places) else None
