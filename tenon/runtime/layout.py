"""An assembly, sizes and threads -> a layout: the driver's table of steps, and where in memory everything lies.

Steps run by all threads are separated by a barrier only where one of them touches what the other wrote.  Between two
barriers the threads are not in step, so memory may be used again only after the next barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tenon.backends.base import Array
from tenon.backends.cpu import driver
from tenon.backends.cpu.assemble import Assembly, CopyStep, HostStep, KernelStep, Step, Storage, touched
from tenon.backends.cpu.unit import Unit, count
from tenon.graph.interpret import concrete_type
from tenon.runtime.memory import Buffer, Plan, plan_arena
from tenon.types import TensorType

PARALLEL_WORK = 30_000      # elements below which one thread is done sooner than others are woken
STATUS_WORDS = 3            # that a kernel writes: number of the check, index, size
QUICK_WORK = 30_000         # elements below which it is not worth to let other Python threads run meanwhile

AddressOf = Callable[[Unit], Sequence[int]]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Place:
    """Where a storage is in this layout: an `object` (argument or result), the arena, or an absolute address."""

    kind: str
    where: int


@dataclass(eq=False)
class Layout:
    steps: np.ndarray
    bindings: np.ndarray                        # (object, slot): the slot gets the address of the object's data
    places: np.ndarray                          # (offset, slot): the slot gets an address in the arena
    pointers: np.ndarray                        # as they are before binding: constants
    size_words: np.ndarray                      # the symbolic sizes that kernels are given
    params: list[tuple[np.dtype[np.generic], tuple[int, ...]]]
    results: list[tuple[tuple[int, ...], np.dtype[np.generic], int | None]]   # and the argument whose memory it takes
    threads: int                                # 1, or as many as the pool has
    pool_threads: int                           # when the layout was made
    scratch: int                                # bytes a thread
    memory: Plan
    work: int
    status_words: int
    checked: list[KernelStep]                   # who writes the status words
    host: list[HostStep]
    sizes: Sizes
    of: dict[Storage, Place]
    labels: list[str] = field(default_factory=list)   # every row of the table of steps, to be read


def make_layout(assembly: Assembly, address_of: AddressOf, sizes: Sizes, donated: Collection[int],
                threads: int) -> Layout:
    """The plan of a run with these sizes."""
    work = {step: _work(step, sizes) for step in assembly.steps}
    several = threads > 1 and any(isinstance(s, KernelStep) and work[s] >= PARALLEL_WORK for s in assembly.steps)
    table = _Table(assembly, address_of, dict(sizes), take_donated(assembly, donated), threads if several else 1)
    for k, step in enumerate(assembly.steps):
        table.add(k, step, several and isinstance(step, KernelStep) and work[step] >= PARALLEL_WORK)
    return table.finish(sum(work.values()), threads)


def _work(step: Step, sizes: Sizes) -> int:
    if isinstance(step, KernelStep):
        return step.unit.work(dict(sizes))
    return max((count(x.type.size, dict(sizes)) for x in touched(step)), default=0)


def take_donated(assembly: Assembly, donated: Collection[int]) -> dict[Storage, Storage]:
    """Results that are written into the memory of a donated argument.

    Only when the argument is not read later, and only when nothing after the first write can fail: a program that
    fails leaves its arguments as they were.
    """
    taken: dict[Storage, Storage] = {}
    if not donated:
        return taken
    steps = assembly.steps
    failing = max((k for k, step in enumerate(steps) if can_fail(step)), default=-1)
    last_read = {x: k for k, step in enumerate(steps) for x in step.inputs}
    for result in assembly.results:
        written = min((k for k, step in enumerate(steps) if result in step.outputs), default=-1)
        if written <= failing:
            continue
        for index in donated:
            argument = assembly.arguments[index]
            same_type = assembly.graph.params[index].type == assembly.graph.results[result.index].type
            if argument in taken.values() or not same_type:
                continue
            read = last_read.get(argument, -1)
            if read < written or (read == written and _may_share(steps[written], result, argument)):
                taken[result] = argument
                break
    return taken


def unit_for(step: KernelStep, taken: Mapping[Storage, Storage]) -> Unit:
    """The kernel of the step, for the outputs that have the memory of inputs."""
    outputs = [taken.get(x, x) for x in step.outputs]
    return step.unit.sharing(tuple((k, step.inputs.index(x)) for k, x in enumerate(outputs) if x in step.inputs))


def can_fail(step: Step) -> bool:
    """Whether the step may find an error in the data."""
    return isinstance(step, HostStep) or (isinstance(step, KernelStep) and bool(step.unit.kernel.checks))


def _may_share(step: Step, result: Storage, source: Storage) -> bool:
    """Whether the step may write the result where it reads the source."""
    if isinstance(step, CopyStep):
        return True
    return (isinstance(step, KernelStep) and step.inputs.count(source) == 1
            and (step.outputs.index(result), step.inputs.index(source)) in step.unit.in_place)


class _Table:
    """Rows of the driver's table, and which steps run between the same two barriers."""

    def __init__(self, assembly: Assembly, address_of: AddressOf, sizes: dict[str, int],
                 taken: dict[Storage, Storage], threads: int):
        self.assembly, self.address_of, self.sizes = assembly, address_of, sizes
        self.taken, self.threads = taken, threads
        self.rows: list[list[int]] = []
        self.labels: list[str] = []
        self.operands: list[Storage] = []
        self.size_words: list[int] = []
        self.checked: list[KernelStep] = []
        self.host: list[HostStep] = []
        self.segment = 0                                # number of barriers so far
        self.parallel: set[int] = set()                 # segments in which several threads work
        self.segments: list[tuple[int, int]] = []       # of each step, the first and the last
        self.touched_by: dict[Storage, tuple[bool, bool]] = {}   # in this segment: (written, by all threads)
        self.unchecked = False                          # a kernel that can fail ran, and nobody looked yet

    def add(self, k: int, step: Step, everyone: bool) -> None:
        """The rows of one step."""
        reads = [self.taken.get(x, x) for x in step.inputs]
        writes = [self.taken.get(x, x) for x in step.outputs]
        if self.unchecked and any(x.kind == "argument" for x in writes):
            self.row("check", driver.HOST, driver.CHECK)
            self.fence()
            self.unchecked = False
        if self.conflicts(reads, writes, everyone):
            self.barrier()
        first = self.segment
        match step:
            case KernelStep():
                self.kernel(step, everyone)
            case CopyStep():
                at = self.place_operands((step.target, step.source))
                self.row("copy", driver.COPY, at, count(step.source.bytes, self.sizes))
            case HostStep():
                self.row(step.node.op.name, driver.HOST, len(self.host))
                self.host.append(step)
                self.fence()
        self.segments.append((first, self.segment))
        for x in reads:
            self.touched_by.setdefault(x, (False, everyone))
        self.touched_by.update((x, (True, everyone)) for x in writes)

    def conflicts(self, reads: Sequence[Storage], writes: Sequence[Storage], everyone: bool) -> bool:
        """Whether the step must wait for one of this segment; thread 0 need not wait for itself."""
        for x, writing in [*((x, False) for x in reads), *((x, True) for x in writes)]:
            written, by_all = self.touched_by.get(x, (False, False))
            if x in self.touched_by and (written or writing) and (by_all or everyone):
                return True
        return False

    def kernel(self, step: KernelStep, everyone: bool) -> None:
        at = self.place_operands(touched(step))
        sizes_at = len(self.size_words)
        self.size_words += [self.sizes[name] for name in step.unit.kernel.sizes]
        status = 0
        if step.unit.kernel.checks:
            self.checked.append(step)
            status, self.unchecked = STATUS_WORDS * len(self.checked), True
        unit = unit_for(step, self.taken)
        code = driver.KERNEL_ALL if everyone else driver.KERNEL_ONE
        for stage, address in enumerate(self.address_of(unit)):
            if stage and everyone:
                self.barrier()
            if everyone:
                self.parallel.add(self.segment)
            self.row(unit.functions[stage], code, address, at, status, sizes_at)

    def place_operands(self, storages: Sequence[Storage]) -> int:
        self.operands += storages
        return len(self.operands) - len(storages)

    def row(self, label: str, *words: int) -> None:
        self.rows.append([*words, *[0] * (driver.STEP_WORDS - len(words))])
        self.labels.append(label)

    def barrier(self) -> None:
        self.row("barrier", driver.BARRIER)
        self.fence()

    def fence(self) -> None:
        self.segment += 1
        self.touched_by.clear()

    def finish(self, work: int, pool_threads: int) -> Layout:
        """Memory for everything, and the table as arrays."""
        self.row("end", driver.END)
        arena, plan = self.plan_memory()
        graph, sizes = self.assembly.graph, self.sizes
        of = {x: self.place(x, arena) for x in dict.fromkeys([*self.operands, *self.assembly.storages()])}
        slots = list(enumerate(of[x] for x in self.operands))
        params = [concrete_type(p.type, sizes) for p in graph.params]
        results = [concrete_type(r.type, sizes) for r in graph.results]
        donors = [self.taken[x].index if x in self.taken else None for x in self.assembly.results]
        return Layout(
            steps=_words(self.rows),
            bindings=_words([(p.where, slot) for slot, p in slots if p.kind == "object"]),
            places=_words([(p.where, slot) for slot, p in slots if p.kind == "arena"]),
            pointers=_words([p.where if p.kind == "address" else 0 for _, p in slots]),
            size_words=_words(self.size_words), params=[_array_type(t) for t in params],
            results=[(_array_type(t)[1], _array_type(t)[0], donor) for t, donor in zip(results, donors, strict=True)],
            threads=self.threads, pool_threads=pool_threads,
            scratch=max((count(u.scratch, sizes) for u in self.assembly.units), default=0),
            memory=plan, work=work, status_words=STATUS_WORDS * (len(self.checked) + 1), checked=self.checked,
            host=self.host, sizes=sizes, of=of, labels=self.labels)

    def plan_memory(self) -> tuple[dict[Storage, int], Plan]:
        """Offsets in the arena: memory is free after its last use, or (several threads) the barrier after."""
        bounds: dict[int, tuple[int, int]] = {}
        for k, (first, last) in enumerate(self.segments):
            for segment in (first, last):
                low, high = bounds.get(segment, (k, k))
                bounds[segment] = min(low, k), max(high, k)
        lives: dict[Storage, tuple[int, int]] = {}
        for k, (step, (first, last)) in enumerate(zip(self.assembly.steps, self.segments, strict=True)):
            begin = bounds[first][0] if first in self.parallel else k
            end = bounds[last][1] if last in self.parallel else k
            for x in touched(step):
                if x.kind in ("arena", "temporary"):
                    low, high = lives.get(x, (begin, end))
                    lives[x] = min(low, begin), max(high, end)
        plan = plan_arena([Buffer(count(x.bytes, self.sizes), *life) for x, life in lives.items()])
        return dict(zip(lives, plan.offsets, strict=True)), plan

    def place(self, storage: Storage, arena: Mapping[Storage, int]) -> Place:
        storage = self.taken.get(storage, storage)
        match storage.kind:
            case "argument":
                return Place("object", storage.index)
            case "result":
                return Place("object", len(self.assembly.arguments) + storage.index)
            case "constant":
                assert storage.data is not None
                return Place("address", storage.data.ctypes.data)
        return Place("arena", arena[storage])


def _array_type(type: TensorType) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    return type.dtype.numpy, tuple(int(n) for n in type.shape)


def _words(values: Sequence[int] | Sequence[Sequence[int]]) -> Array:
    return np.ascontiguousarray(np.array(values, np.int64).reshape(-1))
