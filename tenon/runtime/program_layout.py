"""An assembly, sizes and threads -> a layout: the driver's table of steps, and where in memory everything lies.

Between two barriers the threads are not in step, so memory may be used again only after the next barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tenon.dims.symbolic_dim import Dim, SymbolicDim
from tenon.errors import OverBudget
from tenon.graph.interpret import concrete_type
from tenon.graph.ir import DONATED, MEMORY_BUDGET, UPDATES
from tenon.program.backend_interface import Array
from tenon.program.execution_plan import Assembly
from tenon.program.kernel import CompiledKernel, count
from tenon.program.steps import (
    AllocateStep,
    BranchStep,
    CopyStep,
    FollowStep,
    HostStep,
    KernelStep,
    LookStep,
    LoopStep,
    Move,
    MoveStep,
    Step,
    Storage,
    homes,
)
from tenon.records import dataclass, field
from tenon.runtime.arena_planning import ArenaBuffer, ArenaPlan, plan_arena
from tenon.runtime.barrier_placement import Room
from tenon.runtime.failure_points import has_loops, last_failing
from tenon.runtime.guard_pages import guarding, spaced
from tenon.runtime.parallel_profitability import saved, work_of
from tenon.runtime.step_table import STATUS_WORDS, AddressOf, Table, unit_for
from tenon.types import TensorType

QUICK_WORK = 200_000        # elements below which it is not worth to let other Python threads run meanwhile

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class MemoryPlace:
    """Where a storage is in this layout: an `object` (argument or result), the arena, an absolute address; or, of a
    `moving` one, which pointer says where it is now."""

    kind: str
    where: int


@dataclass(eq=False)
class Layout:
    steps: np.ndarray
    moves: np.ndarray                           # (to, from, offset) of pointers
    bindings: np.ndarray                        # (object, slot, offset): the slot gets an address in the object's data
    places: np.ndarray                          # (offset, slot): the slot gets an address in the arena
    pointers: np.ndarray                        # as they are before binding: constants
    size_words: np.ndarray                      # the symbolic sizes that kernels are given
    size_names: tuple[str, ...]                 # which these are
    room: Mapping[Dim, int]                     # the bytes that there are for what takes as many as its sizes say
    params: list[tuple[np.dtype[np.generic], tuple[int, ...]]]
    results: list[tuple[tuple[int, ...], np.dtype[np.generic], int | None]]   # and the argument whose memory it takes
    threads: int                                # 1, or as many as the pool has
    pool_threads: int                           # when the layout was made
    scratch: int                                # bytes a thread
    memory: ArenaPlan
    work: int
    status_words: int
    checked: list[KernelStep]                   # who writes the status words
    host: list[HostStep | AllocateStep | FollowStep | LookStep]     # what may call back
    loops: bool                                 # whether a signal may end it
    endless: bool                               # whether the data alone may
    sizes: Sizes
    of: dict[Storage, MemoryPlace]
    labels: list[str] = field(default_factory=list)   # every row of the table of steps, to be read
    budget: int | None = None                   # bytes, for arena and cells of stacks
    cell_bytes: int = 0                         # that runs have taken

    @property
    def most_cells(self) -> int | None:
        """Bytes that the cells of stacks may take."""
        return None if self.budget is None else max(0, self.budget - self.memory.size)


def make_layout(assembly: Assembly, address_of: AddressOf, sizes: Sizes, taken: dict[Storage, Storage],
                threads: int, most: Sizes | None = None) -> Layout:
    """The plan of a run with these sizes, in which results take the memory of donated arguments; `most` are sizes for
    which there is to be memory too."""
    several = threads > 1 and saved(assembly.steps, sizes, threads) > 0
    table = Table(address_of, dict(sizes), taken, threads if several else 1, Room(assembly.steps, sizes))
    table.add_all(assembly.steps)
    return _finished(assembly, table, threads, most or sizes)


def differ_in_words_alone(steps: Sequence[Step]) -> bool:
    """Whether other sizes change nothing in the table of these steps but the sizes that kernels are given."""
    return all(map(_differs_in_words_alone, steps))


def _differs_in_words_alone(step: Step) -> bool:
    match step:
        case CopyStep():
            return isinstance(step.source.bytes, int)
        case MoveStep():
            return _are_fixed(step.moves)
        case LoopStep():
            fixed = not isinstance(step.length, SymbolicDim) and _are_fixed((*step.start, *step.advance))
            return fixed and all(map(differ_in_words_alone, step.parts))
        case BranchStep():
            return all(map(differ_in_words_alone, step.parts))
    return isinstance(step, KernelStep)


def _are_fixed(moves: Sequence[Move]) -> bool:
    return not any(isinstance(move.offset, SymbolicDim) for move in moves)


def called_first(assembly: Assembly) -> dict[CompiledKernel, CompiledKernel]:
    """The kernels that the first run will call, and of which kernel each is a variant: such is the code that is wanted.

    Nearly always the arguments in `graph.notes[DONATED]` are donated.
    """
    taken = take_donated(assembly, sorted(assembly.graph.notes.get(DONATED, ())))
    found = {unit_for(step, taken): step.unit for step in assembly.kernel_steps}
    return found | (called_first(assembly.packing) if assembly.packing else {})


def take_donated(assembly: Assembly, donated: Collection[int]) -> dict[Storage, Storage]:
    """Results that are written into the memory of a donated argument: where the graph says which, of the one that it
    updates.

    Only when the argument is not read later, and only when nothing after the first write can fail: a program that
    fails leaves its arguments as they were.
    """
    taken: dict[Storage, Storage] = {}
    if not donated:
        return taken
    steps, graph = assembly.steps, assembly.graph
    failing = last_failing(steps)
    last_read = {x: k for k, step in enumerate(steps) for y in step.inputs for x in homes(y)}
    written = {x: k for k, step in reversed(list(enumerate(steps))) for y in step.outputs for x in homes(y)}
    free: dict[TensorType, list[Storage]] = {}
    for index in donated:
        free.setdefault(graph.params[index].type, []).append(assembly.arguments[index])
    updated = {result: argument for argument, result in graph.notes.get(UPDATES, ())}
    for result in assembly.results:
        first, arguments = written.get(result, -1), free.get(graph.results[result.index].type, [])
        if first <= failing:
            continue
        for argument in arguments:
            read = last_read.get(argument, -1)
            if updated and updated.get(result.index) != argument.index:
                continue
            if read < first or (read == first and _may_share(steps[first], result, argument)):
                taken[result] = argument
                arguments.remove(argument)
                break
    return taken


def _may_share(step: Step, result: Storage, source: Storage) -> bool:
    """Whether the step may write the result where it reads the source."""
    if isinstance(step, CopyStep):
        return True
    return (isinstance(step, KernelStep) and step.inputs.count(source) == 1
            and step.inputs.index(source) not in step.pieces
            and (step.outputs.index(result), step.inputs.index(source)) in step.unit.facts.in_place)


def _finished(assembly: Assembly, table: Table, pool_threads: int, most: Sizes) -> Layout:
    """Memory for everything, and the table as arrays."""
    room: dict[Dim, int] = {}

    def room_for(bytes: Dim) -> int:
        needed = max(count(bytes, table.sizes), count(bytes, most))
        return needed if isinstance(bytes, int) else room.setdefault(bytes, needed)
    scratch = max((room_for(u.facts.scratch) for u in assembly.units), default=0)
    moves, (arena, plan, stride) = table.finish(), plan_memory(table, scratch, room_for)
    graph, sizes, taken = assembly.graph, table.sizes, table.taken
    _hold_to(graph.notes.get(MEMORY_BUDGET), plan.size)
    arguments = len(assembly.arguments)
    of = {x: _place(taken.get(x, x), table, arena, arguments) for x in dict.fromkeys(table.operands)}
    slots = list(enumerate(of[x] for x in table.operands))

    def offset(slot: int) -> int:
        return table.offsets.get(slot, 0)
    params = [concrete_type(p.type, sizes) for p in graph.params]
    results = [concrete_type(r.type, sizes) for r in graph.results]
    donors = [taken[x].index if x in taken else None for x in assembly.results]
    return Layout(
        steps=_words(table.rows), moves=_words(moves),
        bindings=_words([(p.where, slot, offset(slot)) for slot, p in slots if p.kind == "object"]),
        places=_words([(p.where + offset(slot), slot) for slot, p in slots if p.kind == "arena"]),
        pointers=_words([p.where + offset(slot) if p.kind == "address" else 0 for slot, p in slots]),
        size_words=_words(table.size_words), size_names=tuple(table.size_names), room=room,
        params=[_array_type(t) for t in params],
        results=[(_array_type(t)[1], _array_type(t)[0], donor) for t, donor in zip(results, donors, strict=True)],
        threads=table.threads, pool_threads=pool_threads,
        scratch=stride,
        memory=plan, work=sum(work_of(step, sizes) for step in assembly.steps),
        status_words=STATUS_WORDS * (len(table.checked) + 1), checked=table.checked,
        host=table.host, loops=any(has_loops(step) for step in assembly.steps),
        endless=any(has_loops(step, endless=True) for step in assembly.steps), sizes=sizes, of=of, labels=table.labels,
        budget=graph.notes.get(MEMORY_BUDGET))


def _hold_to(budget: int | None, size: int) -> None:
    """Raise where the arena is larger than the user allowed; a budget of 0 asks for as little as can be."""
    if budget and size > budget:
        raise OverBudget(f"what lies between kernels takes {size / 2**20:.4g} MiB, and memory_budget is "
                         f"{budget / 2**20:.4g} MiB",
                         hint="memory_budget=0 takes as little as can be; tn.checkpoint computes a part again")


def plan_memory(table: Table, scratch: int, room_for: Callable[[Dim], int]
                ) -> tuple[dict[Storage, int], ArenaPlan, int]:
    """Offsets in the arena, and from one thread's scratch memory to the next.

    Memory is free after its last use, or (several threads) the barrier after.

    What is used inside of a loop and before or after it too, is kept through all of its iterations.
    """
    bounds: dict[int, tuple[int, int]] = {}
    for k, (_, first, last) in enumerate(table.spans):
        for segment in (first, last):
            low, high = bounds.get(segment, (k, k))
            bounds[segment] = min(low, k), max(high, k)
    lives: dict[Storage, tuple[int, int]] = {}
    for k, (storages, first, last) in enumerate(table.spans):
        begin = bounds[first][0] if first in table.parallel else k
        end = bounds[last][1] if last in table.parallel else k
        for x in storages:
            if x.kind in ("arena", "temporary"):
                low, high = lives.get(x, (begin, end))
                lives[x] = min(low, begin), max(high, end)
    for x, (low, high) in lives.items():
        for first, last in table.loops:
            if low <= last and first <= high and not first <= low <= high <= last:
                low, high = min(low, first), max(high, last)
        lives[x] = low, high
    buffers = [ArenaBuffer(room_for(x.bytes), *life) for x, life in lives.items()]
    plan, stride = spaced(buffers, scratch, table.threads) if guarding() else (plan_arena(buffers), scratch)
    return dict(zip(lives, plan.offsets, strict=True)), plan, stride


def _place(storage: Storage, table: Table, arena: Mapping[Storage, int], arguments: int) -> MemoryPlace:
    match storage.kind:
        case "argument":
            return MemoryPlace("object", storage.index)
        case "result":
            return MemoryPlace("object", arguments + storage.index)
        case "constant":
            assert storage.data is not None
            return MemoryPlace("address", storage.data.ctypes.data)
        case "moving":
            return MemoryPlace("moving", table.slot(storage))
        case "nowhere":
            return MemoryPlace("address", 0)
    return MemoryPlace("arena", arena[storage])


def _array_type(type: TensorType) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    return type.dtype.numpy, tuple(int(n) for n in type.shape)


def _words(values: Sequence[int] | Sequence[Sequence[int]]) -> Array:
    return np.ascontiguousarray(np.array(values, np.int64).reshape(-1))
