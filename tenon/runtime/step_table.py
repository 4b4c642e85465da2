"""Steps -> rows of the driver's table: jumps for branches and loops, barriers where threads must wait for each other.

A step is run by all threads or by one.  Two steps are separated by a barrier only where one of them touches what the
other wrote and another thread may be at it, or where that makes room (`room`).  A branch or loop in which several
threads save less than it costs them to meet is run by thread 0 alone, as one step; in any other they meet at its
beginning, at its end, and once or twice an iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tenon.graph.interpret import concrete_type
from tenon.program import step_executor
from tenon.program.kernel import CompiledKernel, count
from tenon.program.steps import (
    AllocateStep,
    BranchStep,
    CopyStep,
    FollowStep,
    HostStep,
    KernelStep,
    Leaf,
    LookStep,
    LoopStep,
    MarkStep,
    Move,
    MoveStep,
    ReleaseStep,
    Step,
    Storage,
    homes,
    touched,
)
from tenon.runtime.barrier_placement import Room
from tenon.runtime.failure_points import has_loops, is_checked
from tenon.runtime.inter_op_parallelism import ThreadJob, side_by_side
from tenon.runtime.parallel_profitability import is_parallel, least_claim, saved, work_of
from tenon.runtime.step_table_rows import NOWHERE, StepTableRows
from tenon.types import TensorType, bool_, int64

EVERYONE = -1               # in the place of a thread
STATUS_WORDS = 3            # that a kernel writes: number of the check, index, size

AddressOf = Callable[[CompiledKernel], Sequence[int]]


def unit_for(step: KernelStep, taken: Mapping[Storage, Storage]) -> CompiledKernel:
    """The kernel of the step, for the outputs that have the memory of inputs."""
    outputs = [taken.get(x, x) for x in step.outputs]
    return step.unit.sharing(tuple((k, step.inputs.index(x)) for k, x in enumerate(outputs) if x in step.inputs))


class Table(StepTableRows):
    """The rows of steps, and which of them run between the same two barriers."""

    def __init__(self, address_of: AddressOf, sizes: dict[str, int], taken: dict[Storage, Storage], threads: int,
                 room: Room):
        super().__init__(sizes)
        self.room = room
        self.address_of, self.taken, self.threads = address_of, taken, threads
        self.size_words: list[int] = []
        self.size_names: list[str] = []         # of those that kernels are given
        self.checked: list[KernelStep] = []
        self.host: list[HostStep | AllocateStep | FollowStep | LookStep] = []      # what may call back
        self.cell_kinds: dict[tuple[TensorType, ...], int] = {}
        self.marks: dict[MarkStep, int] = {}            # where their two words are
        self.segment = 0                                # number of barriers so far
        self.parallel: set[int] = set()                 # segments in which several threads work
        self.spans: list[tuple[tuple[Storage, ...], int, int]] = []     # of each step: memory, first and last segment
        self.loops: list[tuple[int, int]] = []          # first and last step of each, those inside first
        self.touched_by: dict[Storage, tuple[bool, int]] = {}    # in this segment: (written, by which thread)
        self.unchecked = False                          # a kernel that can fail ran, and nobody looked yet
        self.alone = threads == 1                       # nobody else is here now
        self.leaving: list[int] = []                    # rows from which thread 0 may leave what it runs alone
        self.writes = False                             # all who come here have said that arguments are written
        self.depth = 0                                  # of branches and loops

    # ------------------------------------------------------------ one step

    def add_all(self, steps: Sequence[Step]) -> None:
        """The rows of steps, one after the other; some of them may be run by different threads at once."""
        regions = [] if self.alone else side_by_side([self.job(step) for step in steps], self.threads)
        starts = {min(region): region for region in regions}
        threads: dict[int, int] = {}
        for k, step in enumerate(steps):
            if k in starts:
                threads |= starts[k]
                self.meet_before({steps[i]: thread for i, thread in starts[k].items()})
            self.add(step, threads.get(k))

    def job(self, step: Step) -> ThreadJob | None:
        """What it takes to run the step beside others; None if it has to be in its place."""
        if not isinstance(step, KernelStep) or step.unit.facts.checks or step.unit.endless:
            return None
        return ThreadJob(self.memory(step.inputs), self.memory(step.outputs + step.temporaries),
                         work_of(step, self.sizes),
                   is_parallel(step, self.sizes), step.unit.repeated(self.sizes))

    def meet_before(self, region: Mapping[Step, int]) -> None:
        """The barrier that any step of the region needs, before all of them."""
        self.before_writing([x for step in region for x in self.memory(step.outputs)])
        for step, thread in region.items():
            self.meet(self.memory(step.inputs), self.memory(step.outputs), thread)

    def add(self, step: Step, thread: int | None = None) -> None:
        """The rows of one step, for one thread, or whoever is of use."""
        match step:
            case BranchStep() | LoopStep():
                self.depth += 1
                with self.structure(step):
                    if isinstance(step, BranchStep):
                        self.branch(step)
                    else:
                        self.loop(step)
                self.depth -= 1
            case _:
                self.leaf(step, thread)

    def leaf(self, step: Leaf, thread: int | None) -> None:
        reads, writes = self.memory(step.inputs), self.memory(step.outputs)
        if thread is None:
            thread = EVERYONE if not self.alone and is_parallel(step, self.sizes) else 0
        self.before_writing(writes)
        self.meet(reads, writes, thread)
        used = self.memory(touched(step))
        if thread == EVERYONE and self.room.is_worth_meeting(used):
            self.barrier()
        first = self.segment
        match step:
            case KernelStep():
                self.kernel(step, thread)
            case CopyStep():
                at = self.place_operands((step.target, step.source))
                self.row("copy", step_executor.COPY, at, count(step.source.bytes, self.sizes))
            case HostStep() | LookStep():
                self.place_operands(touched(step))
                self.row_to_leave(step.node.op.name, step_executor.HOST, len(self.host))
                self.host.append(step)
                self.fence()
            case MoveStep():
                self.move(step.moves)
                return
            case AllocateStep():
                self.row_to_leave("push", step_executor.ALLOCATE, self.place_operands((step.handle,)),
                                  self.slot(step.cell), len(self.host), len(self.size_words))
                self.size_words += [count(step.bytes, self.sizes), self.cell_kind(step.types)]
                self.host.append(step)
                self.fence()
                self.pointed.append((self.row("move", step_executor.MOVE, 0, 0), step.cell))
            case FollowStep():
                self.row_to_leave("pop", step_executor.FOLLOW, self.place_operands((step.handle,)),
                                  self.slot(step.cell), len(self.host), self.cell_kind(step.types))
                self.host.append(step)
                self.fence()
                self.pointed.append((self.row("move", step_executor.MOVE, 0, 0), step.cell))
                writes = (*writes, *self.memory((step.cell,)))
            case MarkStep():
                self.marks[step] = self.place_operands((NOWHERE, NOWHERE))
                self.row("mark", step_executor.MARK, self.marks[step])
            case ReleaseStep():
                self.row("release", step_executor.RELEASE, self.marks[step.mark])
        self.spans.append((used, first, self.segment))
        self.touch(reads, writes, thread)
        self.room.leave(step, used)

    def cell_kind(self, types: tuple[TensorType, ...]) -> int:
        """A number for the cells that hold values of these types, in the sizes of this run."""
        sized = tuple(concrete_type(t, self.sizes) for t in types)
        return self.cell_kinds.setdefault(sized, len(self.cell_kinds) + 1)

    def memory(self, storages: Sequence[Storage]) -> tuple[Storage, ...]:
        """All memory that may be meant, with arguments for the results that take their place."""
        taken = self.taken
        found: dict[Storage, None] = {}
        for x in storages:
            if x.into is None and x.kind != "moving":       # nearly all
                found[taken.get(x, x)] = None
            else:
                found.update((taken.get(y, y), None) for y in homes(x))
        return tuple(found)

    def kernel(self, step: KernelStep, thread: int) -> None:
        at = self.place_operands(touched(step))
        self.offsets.update((at + k, offset) for k, offset in step.pieces.items())
        sizes_at = len(self.size_words)
        self.size_words += [self.sizes[name] for name in step.unit.facts.sizes]
        self.size_names += step.unit.facts.sizes
        status = 0
        if step.unit.facts.checks:
            self.checked.append(step)
            status, self.unchecked = STATUS_WORDS * len(self.checked), True
        self.unchecked = self.unchecked or step.unit.endless        # and so may it have ended
        unit = unit_for(step, self.taken)
        for stage, address in enumerate(self.address_of(unit)):
            if stage and thread == EVERYONE:
                self.barrier()
            if thread:
                self.parallel.add(self.segment)
            words = address, at, status, sizes_at
            if thread == EVERYONE:
                least = least_claim(step, self.sizes, self.threads)
                self.row(unit.functions[stage], step_executor.KERNEL_ALL, *words, least)
            else:
                self.row(unit.functions[stage], step_executor.KERNEL_ONE, *words, thread)

    def before_writing(self, memory: Sequence[Storage]) -> None:
        """Stop here if anything failed, else say so, where memory of arguments is written from now on."""
        if not any(x.kind == "argument" for x in memory):
            return
        if self.unchecked:
            self.check()
        if not self.writes:
            self.row("write", step_executor.WRITE)
            self.writes = not self.depth

    def check(self) -> None:
        """Stop here if a kernel has failed, or a signal ends the program."""
        self.row_to_leave("check", step_executor.HOST, step_executor.CHECK)
        self.fence()
        self.unchecked = False

    # ------------------------------------------------------------ branches and loops

    @contextmanager
    def structure(self, step: BranchStep | LoopStep) -> Iterator[None]:
        """Rows that contain jumps: run by thread 0 alone if nobody else is of use."""
        if self.alone:
            yield
        elif saved([step], self.sizes, self.threads) > 0:
            self.all_meet()
            yield
            self.barrier()
        else:
            if self.unchecked:              # what others have found, they tell where all meet
                self.check()
            reads, writes = self.memory(step.inputs), self.memory(step.outputs)
            self.meet(reads, writes, 0)
            with self.thread_0_alone():
                yield
            self.touch(reads, writes, 0)
            if is_checked(step):
                self.check()
            else:
                self.unchecked = has_loops(step)        # a signal may have ended one

    @contextmanager
    def thread_0_alone(self) -> Iterator[None]:
        """Rows that all others jump over; thread 0 leaves them early where something fails, or a signal ends it."""
        others = self.row("skip", step_executor.SKIP, 0)
        self.alone = True
        yield
        self.alone = False
        self.jump_here(others)
        for row in self.leaving:
            self.rows[row][-1] = len(self.rows)
        self.leaving.clear()

    def branch(self, step: BranchStep) -> None:
        choice = self.memory((step.choice,))
        self.meet(choice, (), self.whoever)
        self.span(choice)
        at = self.place_operands((step.choice,))
        if step.choice.type.dtype is bool_:
            entries = [self.row("jump unless", step_executor.JUMP_UNLESS, 0, at), None]
        else:
            self.row("choose", step_executor.CHOOSE, at, len(step.branches))
            entries = [self.row("jump", step_executor.JUMP, 0) for _ in step.branches]
        ends = []
        for k, entry in reversed(list(enumerate(entries))):
            if entry is not None:
                self.jump_here(entry)
            self.all_wait()
            self.add_all(step.branches[k])
            self.all_meet()
            if k:
                ends.append(self.row("jump", step_executor.JUMP, 0))
        for end in ends:
            self.jump_here(end)

    def loop(self, step: LoopStep) -> None:
        start, advance = step.start, step.advance
        counter = None
        if step.length is not None:
            counter = Storage("moving", TensorType(int64, ()))
            start = (*start, Move(counter, NOWHERE, step.length))
            advance = (*advance, Move(counter, counter, -1))
        self.move(start)
        if step.length is not None and count(step.length, self.sizes) <= 0:
            return
        head, first = len(self.rows), len(self.spans)
        self.add_all(step.condition)
        leave = None
        if step.proceed is not None:
            self.meet(self.memory((step.proceed,)), (), self.whoever)
            self.span(self.memory((step.proceed,)))
            leave = self.row("jump unless", step_executor.JUMP_UNLESS, 0, self.place_operands((step.proceed,)))
            self.all_wait()
        self.add_all(step.body)
        self.all_meet()
        if self.unchecked:
            self.check()
        self.move(advance)
        self.loops.append((first, len(self.spans) - 1))
        if counter is not None:
            self.all_meet()
            self.row_to_leave("jump while", step_executor.JUMP_WHILE, head, self.slot(counter))
        else:
            self.row_to_leave("again", step_executor.AGAIN, head)
        if leave is not None:
            self.jump_here(leave)

    def move(self, moves: tuple[Move, ...]) -> None:
        """Make the moves; the pointers change for all who use them."""
        places = self.memory([x for move in moves for x in (move.target, move.source)])
        self.span(places)
        self.moved.append((self.row("move", step_executor.MOVE, 0, 0), moves))
        self.touch((), places, 0)

    def span(self, storages: tuple[Storage, ...]) -> None:
        self.spans.append((storages, self.segment, self.segment))

    # ------------------------------------------------------------ threads

    def row_to_leave(self, label: str, *words: int) -> None:
        """A row that ends the program where it fails; thread 0, alone, leaves there what it runs alone."""
        row = self.row(label, *words)
        if self.alone and self.threads > 1:
            self.leaving.append(row)

    @property
    def whoever(self) -> int:
        """Who looks at what decides a jump."""
        return 0 if self.alone else EVERYONE

    def meet(self, reads: Sequence[Storage], writes: Sequence[Storage], thread: int) -> None:
        """A barrier if the step must wait for one of this segment; a thread need not wait for itself."""
        for x, writing in [*((x, False) for x in reads), *((x, True) for x in writes)]:
            written, by = self.touched_by.get(x, (False, thread))
            if x in self.touched_by and (written or writing) and (by != thread or by == EVERYONE):
                self.barrier()
                return

    def touch(self, reads: Collection[Storage], writes: Collection[Storage], thread: int) -> None:
        """Note what a step of this segment does."""
        for x in reads:
            written, by = self.touched_by.get(x, (False, thread))
            self.touched_by[x] = written, by if by == thread else EVERYONE
        self.touched_by.update((x, (True, thread)) for x in writes)

    def all_meet(self) -> None:
        """A barrier, if there was anything since the last one."""
        if not self.alone and self.touched_by:
            self.barrier()

    def all_wait(self) -> None:
        """A barrier: what a jump looked at may be written again."""
        if not self.alone:
            self.barrier()

    def barrier(self) -> None:
        self.row("barrier", step_executor.BARRIER)
        self.fence()

    def fence(self) -> None:
        """Nobody is behind any more; in what thread 0 runs alone that is not known of the others."""
        if not self.alone:
            self.segment += 1
            self.touched_by.clear()
            self.room.meet()
