"""What is stored where -> a kernel: the passes over loops in the order in which they run, and what runs them.

    elements    `out[i, j] = value for i, j`, from the compute rules, one for each result and for each value kept
    nests       the elements that share their loops, and then those loops as statements
    kernel      all nests, with the buffers that they hand on

`lower(graph, name, trace=[])` and `finish(kernel, trace)` fill the list with one `LoopPassStep` a pass: time, text, and
whether anything changed.  With TENON_CHECK=passes what stood before and after each pass is run (`validate_loops`), and
the first that changes what is stored is named.  A new pass is a file, and a line in one of the lists below.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tenon.loops.collapse_loops import with_flat_loops, with_flat_reductions
from tenon.loops.column_reductions import column_nest
from tenon.loops.densify_operand import with_dense_rows
from tenon.loops.epilogue_reductions import beside_products
from tenon.loops.fuse_row_reductions import along_rows
from tenon.loops.group_elements import grouped
from tenon.loops.index_set_splitting import in_intervals
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_fusion import fuse_loops
from tenon.loops.loop_ir import Kernel, Nest
from tenon.loops.loop_printer import print_loops
from tenon.loops.pad_operand import with_zeros_around
from tenon.loops.peeling import peeled
from tenon.loops.reuse_local_buffers import with_shared_rows
from tenon.loops.schedule import plain_nest, product_nest
from tenon.loops.split_div_mod_loops import with_split_loops
from tenon.loops.split_k import with_parted_depth
from tenon.loops.split_reductions import in_parts
from tenon.loops.store_target import StoreTarget
from tenon.loops.tile_transposes import transposed_nest
from tenon.loops.validate_loops import compare, is_validating
from tenon.loops.verify_loops import verify_loops
from tenon.records import dataclass

Loops = Any         # elements; groups of elements, and nests; or a kernel
Part = StoreTarget | Nest
Pair = tuple[Sequence[Part], Sequence[Part]]        # what stood there before a pass, and what stands there after it
Applied = tuple[Loops, list[Pair]]


@dataclass(frozen=True)
class LoopPass:
    """`run` is called with what `over` says, and the context."""

    name: str
    run: Callable[[Any, LoopContext], Any]
    over: Callable[[Callable[[Any, LoopContext], Any], Loops, LoopContext], Applied]


@dataclass(frozen=True)
class LoopPassStep:
    """What one pass did."""

    name: str
    seconds: float
    text: str
    changed: bool

    def __str__(self) -> str:
        if not self.changed:
            return f"# {self.name} (unchanged)"
        return f"# {self.name}: {self.seconds * 1e3:.2f} ms\n{self.text}"


# ---------------------------------------------------------------- what a pass is given

def all_elements(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """All elements -> other elements."""
    after = run(loops, context)
    return after, [(loops, after)]


def each_element(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """An element -> those that are stored instead."""
    made = [run(x, context) for x in loops]
    return [x for listed in made for x in listed], [((x,), listed) for x, listed in zip(loops, made, strict=True)]


def into_groups(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """All elements -> groups of them, one for each nest."""
    groups = run(loops, context)
    return groups, [(loops, [x for group in groups for x in group])]


def each_group(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """The elements of a nest -> other elements."""
    after = [run(x, context) for x in loops]
    return after, list(zip(loops, after, strict=True))


def claimed_groups(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """The elements of a nest -> the nest, or None: another pass makes it."""
    after = [x if isinstance(x, Nest) else run(x, context) or x for x in loops]
    return after, [(x, (y,)) for x, y in zip(loops, after, strict=True) if y is not x]


def each_nest(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """A nest -> another one."""
    after = [run(x, context) for x in loops]
    return after, [((x,), (y,)) for x, y in zip(loops, after, strict=True)]


def all_nests(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """All nests -> other nests."""
    after = run(loops, context)
    return after, [(loops, after)]


def whole_kernel(run: Callable[..., Any], loops: Loops, context: LoopContext) -> Applied:
    """A kernel -> another one."""
    after = run(loops, context)
    return after, [(loops.nests, after.nests)]


def alone(run: Callable[[Any], Any]) -> Callable[[Any, LoopContext], Any]:
    """A pass that needs no context."""
    return lambda x, context: run(x)


# ---------------------------------------------------------------- the passes, in order

# Tried again with one value more in memory, as long as there is one that would be computed again and again.
FIRST_PASSES = [
    LoopPass("split_div_mod_loops", with_split_loops, all_elements),
    LoopPass("index_set_splitting", in_intervals, all_elements)]
ELEMENT_PASSES = [
    LoopPass("fuse_row_reductions", along_rows, all_elements),
    LoopPass("epilogue_reductions", beside_products, all_elements),
    LoopPass("collapse_reductions", alone(lambda x: [with_flat_reductions(x)]), each_element),
    LoopPass("split_k", with_parted_depth, each_element),
    LoopPass("pad_operand", with_zeros_around, each_element),
    LoopPass("densify_operand", with_dense_rows, each_element),
    LoopPass("split_reductions", in_parts, each_element)]
SCHEDULE_PASSES = [
    LoopPass("collapse_loops", alone(with_flat_loops), each_group),
    LoopPass("collapse_reductions", alone(lambda group: [*map(with_flat_reductions, group)]), each_group),
    LoopPass("products", alone(product_nest), claimed_groups),
    LoopPass("column_reductions", alone(column_nest), claimed_groups),
    LoopPass("tile_transposes", alone(transposed_nest), claimed_groups),
    LoopPass("compute_at", alone(plain_nest), claimed_groups),      # which takes all that is left
    LoopPass("reuse_local_buffers", alone(with_shared_rows), each_nest)]
NEST_PASSES = [
    LoopPass("group_elements", alone(grouped), into_groups),
    *SCHEDULE_PASSES,
    LoopPass("loop_fusion", alone(fuse_loops), all_nests)]
KERNEL_PASSES = [
    LoopPass("peeling", alone(peeled), whole_kernel)]

LOOP_PASSES = {each.name: each for each in reversed([*FIRST_PASSES, *ELEMENT_PASSES, *NEST_PASSES, *KERNEL_PASSES])}


# ---------------------------------------------------------------- running them

always_check = False     # tests set it: loops are verified after every pass


def run_loop_passes(loops: Loops, passes: Sequence[LoopPass], context: LoopContext,
                    trace: list[LoopPassStep] | None = None, check: bool | None = None,
                    validate: bool | None = None) -> Loops:
    """Each pass after the other: timed, verified where `check` says so, and what stands before and after it run and
    compared where `validate` does."""
    check, validate = always_check if check is None else check, is_validating() if validate is None else validate
    text = "" if trace is None else print_loops(loops, context)
    seen: dict[int, Any] = {}
    for each in passes:
        started = time.perf_counter()
        try:
            loops, pairs = each.over(each.run, loops, context)
            if check:
                verify_loops(loops, context, seen)
            if validate:
                for before, after in _changed(pairs):
                    compare(each.name, before, after)
        except Exception as error:
            error.add_note(f"in the loop pass {each.name} on {context.name}")
            raise
        if trace is not None:
            previous, text = text, print_loops(loops, context)
            trace.append(LoopPassStep(each.name, time.perf_counter() - started, text, text != previous))
    return loops


def _changed(pairs: Sequence[Pair]) -> Iterator[tuple[tuple[Part, ...], tuple[Part, ...]]]:
    return ((tuple(before), tuple(after)) for before, after in pairs if tuple(before) != tuple(after))


def begun(name: str, loops: Loops, context: LoopContext, trace: list[LoopPassStep] | None) -> Loops:
    """The loops that passes begin with, told as a step."""
    if trace is not None:
        trace.append(LoopPassStep(name, 0.0, print_loops(loops, context), True))
    return loops


def schedule(elements: Sequence[StoreTarget]) -> Nest:
    """The nest that stores the elements, whose loops are a prefix of the longest list of loops among them."""
    nest: Nest
    [nest] = run_loop_passes([elements], SCHEDULE_PASSES, LoopContext())
    return nest


def finish(kernel: Kernel, trace: list[LoopPassStep] | None = None) -> Kernel:
    """The kernel as code is made of it."""
    context = LoopContext(kernel.name, kernel.inputs, kernel.outputs, added=list(kernel.temporaries))
    found: Kernel = run_loop_passes(kernel, KERNEL_PASSES, context, trace)
    return found
