"""A capture and a call that it was right for -> a fast path for the calls that follow, most of it machine code.

One native pass looks at everything that such a call depends on (`guarded_inputs`), and runs a quick program
(`fast_call_runs`, `fast_call_results`).  Python reads the leaves of the arguments, and looks at what few functions
need (`match_arguments`).  A call that is different in anything takes the slow path (`tenon.jit`), which knows why and
captures if need be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.fast_call_runs import RunMaker
from tenon.capture.guarded_inputs import GuardedInputs
from tenon.capture.match_arguments import (
    MISS,
    Call,
    Run,
    apart_from,
    for_leaves_of_tape,
    is_plain,
    same_tensors,
    with_equal,
    with_leaves,
    with_prologue,
    with_same,
)
from tenon.capture.pytree import Structure
from tenon.capture.store_results import sizes_of
from tenon.cpython import object_layout

MADE_ANEW = (slice, range, frozenset, complex, bytes)       # for each call, as a rule, and equal
Made = tuple[Call | None, Run]      # the call, where it is one native function; what runs on its leaves


def make_fast_call(captured: Captured, structure: Structure, leaves: Sequence[Any],
                   containers: Sequence[Any]) -> Call | None:
    """What makes calls like this one, which went well, or says MISS; None where there is no such way.

    Where the call changes some of the `containers` among its arguments, these stand behind the leaves.
    """
    if not object_layout.READABLE or captured.places is not None or captured.mesh is not None:
        return None
    prologue = captured.prologue
    further = () if prologue is None else prologue(leaves)
    if further is None:
        return None
    if captured.further is not None and captured.further.copied and any(
            child.has_changeable for part in structure.children for child in part.children):
        return None                     # containers from places and among the arguments may be the same
    own, changed = len(leaves), tuple(containers) if captured.uses_containers else ()
    leaves = (*leaves, *further, *changed)
    distinct = len(set(map(id, leaves)))
    found = _for_all_sizes(captured, leaves, own, len(changed)) or (
        None if captured.sized else _made(GuardedInputs(captured, leaves, own, len(changed))))
    if found is None:
        return None
    builtin, made = found
    outside = captured.outside
    if captured.leaves_of_tape:
        made = for_leaves_of_tape(captured.leaves_of_tape, made)
    if pairs := same_tensors(leaves):
        made = with_same(pairs, made)
    anew = {k: leaves[k] for k, value in captured.values if leaves[k] is not value}
    anew |= {k: x for k, x in enumerate(leaves[:own]) if type(x) in MADE_ANEW}
    if prologue is not None:
        equal = with_equal(anew, with_prologue(prologue, made, leaves, own, outside))
        return with_leaves(structure, leaves[:own], equal, captured.apart, bool(changed))
    if builtin is not None and distinct == len(leaves) and is_plain(structure) and not anew:
        return builtin if not outside else apart_from(outside, builtin)
    several = len(leaves) > 1

    def call(given: tuple[Any, ...]) -> Any:
        if outside and not outside.isdisjoint(map(id, given)):
            return MISS
        if several and len(set(map(id, given))) != distinct:
            return MISS
        return made(given)
    equal = with_equal(anew, call if outside or several else made)
    return with_leaves(structure, leaves[:own], equal, captured.apart, bool(changed))


def _for_all_sizes(captured: Captured, leaves: Sequence[Any], own: int, changed: int) -> Made | None:
    """A fast path for calls whose sizes are others, too: with memory for twice these, or at least for these.

    Where it cannot be one native call, the first one is for these sizes alone, which may stay.
    """
    sizes = sizes_of(captured.types, leaves)
    for growth in (2, 1) if sizes else ():
        max_sizes = {name: growth * size for name, size in sizes.items()}
        found = _made(GuardedInputs(captured, leaves, own, changed, max_sizes),
                      only_quick=captured.fast_call is None and not captured.differentiable)
        if found is not None:
            captured.sized, captured.grows = True, growth > 1
            return found
    return None


def _made(inputs: GuardedInputs, only_quick: bool = False) -> Made | None:
    maker = RunMaker(inputs)
    made = maker.made(only_quick)
    return None if made is None else (maker.builtin, made)
