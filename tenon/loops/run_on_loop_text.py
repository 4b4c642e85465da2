"""Loop text -> loop text after some passes, each given what it takes: what `tenon opt` prints of loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.errors import ArgumentError
from tenon.loops.loop_ir import Kernel, Nest
from tenon.loops.loop_pipeline import (
    LOOP_PASSES,
    LoopPass,
    LoopPassStep,
    Loops,
    all_elements,
    all_nests,
    each_element,
    each_nest,
    into_groups,
    run_loop_passes,
    whole_kernel,
)
from tenon.loops.loop_printer import print_loops
from tenon.loops.parse_loops import ParsedLoops, parse_loops
from tenon.loops.verify_loops import verify_loops

OF_ELEMENTS, OF_NESTS = (all_elements, each_element, into_groups), (each_nest, all_nests, whole_kernel)


def run_on_loop_text(text: str, names: Sequence[str], each: bool = False) -> Iterator[str]:
    """The text of loops after these passes, or after each of them.

    Raises ArgumentError for an unknown pass, and for one that takes elements where there are nests, or the other way
    round; GraphError for text that is not understood.
    """
    if unknown := [name for name in names if name not in LOOP_PASSES]:
        raise ArgumentError(f"no pass over loops named {unknown[0]!r}",
                            hint=f"the passes are {', '.join(reversed(LOOP_PASSES))}")
    parsed, steps = parse_loops(text), list[LoopPassStep]()
    loops: Loops = list(parsed.sections)
    verify_loops(loops, parsed.context)
    for name in names:
        loops = run_loop_passes(_given(LOOP_PASSES[name], loops, parsed), [LOOP_PASSES[name]], parsed.context, steps)
        verify_loops(loops, parsed.context)
    yield from map(str, steps) if each else [print_loops(loops, parsed.context)]


def _given(each: LoopPass, loops: Loops, parsed: ParsedLoops) -> Loops:
    """What a pass takes of what there is."""
    listed: list[object] = list(loops.nests if isinstance(loops, Kernel) else loops)
    nests = [x for x in listed if isinstance(x, Nest)]
    if each.over in OF_ELEMENTS and not nests:
        return [x for section in listed for x in (section if isinstance(section, list) else [section])]
    if each.over in OF_NESTS and len(nests) == len(listed):
        return parsed.with_nests(nests).kernel() if each.over is whole_kernel else nests
    if each.over not in (*OF_ELEMENTS, *OF_NESTS) and all(isinstance(x, (list, Nest)) for x in listed):
        return listed
    raise ArgumentError(f"{each.name} takes {'elements' if each.over in OF_ELEMENTS else 'nests'}, and there are "
                        f"{'nests' if nests else 'elements'}",
                        hint=f"the passes, in order, are {', '.join(reversed(LOOP_PASSES))}")
