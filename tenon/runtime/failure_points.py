"""Which steps may fail, or be ended; and the last that may find an error: before it no argument may be overwritten.

A step that looks for what an earlier one would have found does not count: the gradient of an embedding writes at the
very indices at which the embedding was read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.dims.symbolic_dim import Dim
from tenon.passes.fusion.index_checks import checked, is_whole
from tenon.program.steps import (
    AllocateStep,
    BranchStep,
    FollowStep,
    HostStep,
    KernelStep,
    LookStep,
    LoopStep,
    Step,
    Storage,
    leaves,
)


def is_checked(step: Step) -> bool:
    """Whether all threads look, within the step or after it, if one has failed, or was ended within a kernel."""
    return any(isinstance(x, (HostStep, AllocateStep, FollowStep, LookStep))
               or (isinstance(x, KernelStep) and (bool(x.unit.facts.checks) or x.unit.endless)) for x in leaves([step]))


def has_loops(step: Step, endless: bool = False) -> bool:
    """Whether a signal may end the step in a loop; `endless`: in one that the data end, if anything."""
    match step:
        case LoopStep():
            return not endless or step.length is None or any(has_loops(x, True) for part in step.parts for x in part)
        case BranchStep():
            return any(has_loops(x, endless) for part in step.branches for x in part)
    return isinstance(step, KernelStep) and step.unit.endless


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
    if not isinstance(step, KernelStep) or step.pieces or any(check.node < 0 for check in step.unit.facts.checks):
        return None
    body = step.unit.body
    found = checked(body, [body.nodes[check.node] for check in step.unit.facts.checks])
    places = {(step.inputs[k], size) for k, size in found or ()}
    return places if places and all(place.kind == "argument" for place, _ in places) else None
