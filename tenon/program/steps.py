"""What a program does, step by step, and the memory that the steps work on.  No sizes yet.

    Leaf    = KernelStep | HostStep | CopyStep | MoveStep | AllocateStep | FollowStep | MarkStep | ReleaseStep
            | LookStep
    Step    = Leaf | BranchStep | LoopStep                                  the last two hold steps
    Storage                             memory that one or several values lie in: views share it, in-place results too

A `moving` storage has no memory of its own: it lies now in one place and now in another, such as the row of an array
that a scan has come to, or one of two buffers that a loop fills by turns.  A `Move` says where it lies from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tenon.dims.symbolic_dim import Dim
from tenon.graph.ir import Literal, Node
from tenon.graph.partition import has_effect
from tenon.program.backend_interface import Array
from tenon.program.kernel import CompiledKernel
from tenon.records import dataclass, field, replace
from tenon.types import TensorType


@dataclass(eq=False)
class Storage:
    """`kind`: argument, constant, result, arena (lives during the run), temporary (during one step), moving; or cells,
    the region of all stacks."""

    kind: str
    type: TensorType
    index: int = -1                     # which argument or result
    data: Array | None = None           # of a constant
    into: Storage | None = None         # what it was made one with
    sources: list[Storage] = field(default_factory=list)    # of a moving one: where its moves take it

    @property
    def bytes(self) -> Dim:
        return self.type.size * self.type.dtype.itemsize


def resolve(storage: Storage) -> Storage:
    """What a storage has become."""
    while storage.into is not None:
        storage = storage.into
    return storage


def homes(storage: Storage) -> tuple[Storage, ...]:
    """The memory that a storage lies in: itself, or all places that it may move to."""
    if storage.into is None and storage.kind != "moving":       # nearly all
        return (storage,)
    seen: dict[Storage, None] = {}
    stack = [resolve(storage)]
    while stack:
        x = stack.pop()
        if x not in seen:
            seen[x] = None
            if x.kind == "moving":
                stack += map(resolve, x.sources)
    return tuple(x for x in seen if x.kind != "moving")


@dataclass(frozen=True, eq=False)
class Move:
    """From now on `target` lies where `source` does, `offset` bytes further."""

    target: Storage
    source: Storage
    offset: Dim = 0

    def __post_init__(self) -> None:
        self.target.sources.append(self.source)


# ---------------------------------------------------------------- the steps

@dataclass(eq=False)
class KernelStep:
    """A kernel on its inputs, outputs and temporaries, in this order.  Of some inputs it reads `pieces`, that begin so
    many bytes further on.  Where it is a whole loop, the inputs of the node lie where `given` says."""

    node: Node
    unit: CompiledKernel
    inputs: tuple[Storage, ...]
    outputs: tuple[Storage, ...]
    temporaries: tuple[Storage, ...] = ()
    pieces: Mapping[int, int] = field(default_factory=dict)
    given: tuple[Storage, ...] = ()


@dataclass(eq=False)
class HostStep:
    """An operator that NumPy does."""

    node: Node
    arguments: tuple[Storage | Literal | None, ...]
    outputs: tuple[Storage, ...]

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return tuple(x for x in self.arguments if isinstance(x, Storage))

    @property
    def is_repeatable(self) -> bool:
        """Whether it is a function of arrays alone, which may be run again where another step has failed."""
        op = self.node.op
        return op.into is None and not op.handles and not self.node.graphs and not has_effect(self.node)


@dataclass(eq=False)
class CopyStep:
    source: Storage
    target: Storage

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[Storage, ...]:
        return (self.target,)


@dataclass(eq=False)
class MoveStep:
    """Moves, one after the other."""

    node: Node
    moves: tuple[Move, ...]
    outputs: tuple[Storage, ...] = ()

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return tuple(x for move in self.moves for x in (move.source, move.target))


@dataclass(eq=False)
class AllocateStep:
    """A new cell of so many bytes in the region of the stacks, for these types; its address is written to `handle`."""

    node: Node
    handle: Storage
    cell: Storage
    bytes: Dim
    types: tuple[TensorType, ...]

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return (self.cell,)

    @property
    def outputs(self) -> tuple[Storage, ...]:
        return (self.handle,)


@dataclass(eq=False)
class FollowStep:
    """From now on `cell` lies at the address that `handle` holds.  Fails where no values of these types are there."""

    node: Node
    handle: Storage
    cell: Storage
    types: tuple[TensorType, ...]
    outputs: tuple[Storage, ...] = ()

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return (self.handle, self.cell)


@dataclass(eq=False)
class MarkStep:
    """Note where the region of the stacks ends now."""

    inputs: tuple[Storage, ...] = ()
    outputs: tuple[Storage, ...] = ()


@dataclass(eq=False)
class ReleaseStep:
    """Let the region of the stacks end where it did at the mark: nobody reaches what was pushed since."""

    mark: MarkStep
    inputs: tuple[Storage, ...] = ()
    outputs: tuple[Storage, ...] = ()


@dataclass(eq=False)
class LookStep:
    """Show memory to a debugging tool, before or after a step: `see(frame, self)`, where `frame` can view it."""

    step: KernelStep | HostStep
    see: Callable[[Any, LookStep], None]
    inputs: tuple[Storage, ...]
    before: bool = False
    outputs: tuple[Storage, ...] = ()

    @property
    def node(self) -> Node:
        return self.step.node


@dataclass(eq=False)
class BranchStep:
    """The steps of one branch: of number 0 or 1 where `choice` is a boolean, else of the nearest number there is."""

    node: Node
    choice: Storage
    branches: tuple[tuple[Step, ...], ...]

    @property
    def parts(self) -> tuple[tuple[Step, ...], ...]:
        return self.branches

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return (self.choice, *_inside(self.parts, "inputs"))

    @property
    def outputs(self) -> tuple[Storage, ...]:
        return _inside(self.parts, "outputs")


@dataclass(eq=False)
class LoopStep:
    """`start`, then again and again: condition, body, `advance` (all moves at once).

    As often as `length` says, or as long as the boolean `proceed` is true, which the condition makes at every
    iteration.
    """

    node: Node
    start: tuple[Move, ...]
    advance: tuple[Move, ...]
    body: tuple[Step, ...]
    length: Dim | None = None
    condition: tuple[Step, ...] = ()
    proceed: Storage | None = None

    @property
    def parts(self) -> tuple[tuple[Step, ...], ...]:
        return self.condition, self.body

    @property
    def inputs(self) -> tuple[Storage, ...]:
        moved = (move.source for move in (*self.start, *self.advance))
        proceed = () if self.proceed is None else (self.proceed,)
        return (*_inside(self.parts, "inputs"), *proceed, *moved)

    @property
    def outputs(self) -> tuple[Storage, ...]:
        return _inside(self.parts, "outputs")


Leaf = KernelStep | HostStep | CopyStep | MoveStep | AllocateStep | FollowStep | MarkStep | ReleaseStep | LookStep
Step = Leaf | BranchStep | LoopStep


def _inside(parts: Iterable[Iterable[Step]], name: str) -> tuple[Storage, ...]:
    return tuple(x for part in parts for step in part for x in getattr(step, name))


def touched(step: Step) -> tuple[Storage, ...]:
    """All memory that a step uses, in the order of a kernel's parameters."""
    return step.inputs + step.outputs + (step.temporaries if isinstance(step, KernelStep) else ())


def leaves(steps: Iterable[Step]) -> Iterator[Leaf]:
    """The steps that hold no others, those inside of branches and loops too."""
    for step in steps:
        if isinstance(step, (BranchStep, LoopStep)):
            for part in step.parts:
                yield from leaves(part)
        else:
            yield step


# ---------------------------------------------------------------- results in the place of inputs

def share(steps: Iterable[Step], own: Iterable[Storage] = (), kept: Iterable[Storage] = ()) -> None:
    """Make outputs one with inputs that are read for the last time at the same index; copies with their sources.

    Only what the steps make, or what is their `own`, may be written again; what is `kept` is read after the last step.
    """
    steps = tuple(steps)
    last_read: dict[Storage, int] = {}
    for k, step in enumerate(steps):
        last_read.update((x, k) for y in step.inputs for x in (resolve(y), *homes(y)))
    last_read.update((x, len(steps)) for y in kept for x in (resolve(y), *homes(y)))
    made = {resolve(x) for step in steps for x in step.outputs} | {resolve(x) for x in own}
    for k, step in enumerate(steps):
        placed: set[Storage] = set()        # outputs that have the place of an input: one input each
        for source, output in _candidates(step):
            source, target = resolve(source), resolve(output)
            outputs = [resolve(x) for x in step.outputs]
            unused = source not in outputs and target in outputs and source in made
            if unused and output not in placed and source.kind == target.kind == "arena" and last_read[source] == k \
                    and source.bytes == target.bytes:
                target.into = source
                placed.add(output)
                last_read[source] = last_read.get(target, k)


def _candidates(step: Step) -> Iterator[tuple[Storage, Storage]]:
    """(input, output) pairs where the step reads the input only at the element that it writes.

    Not results: the longer theirs are unwritten, the longer a donated argument may be read in the same place.
    """
    if isinstance(step, KernelStep):
        for output, source in sorted(step.unit.facts.in_place):
            if source not in step.pieces and [resolve(x) for x in step.inputs].count(resolve(step.inputs[source])) == 1:
                yield step.inputs[source], step.outputs[output]
    if isinstance(step, CopyStep):
        yield step.source, step.target


def resolved(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps on what their storages have become."""
    return tuple(_resolved(step) for step in steps
                 if not isinstance(step, CopyStep) or resolve(step.source) is not resolve(step.target))


def _resolved(step: Step) -> Step:
    def new(places: Iterable[Storage]) -> tuple[Storage, ...]:
        return tuple(map(resolve, places))
    match step:
        case KernelStep():
            return replace(step, inputs=new(step.inputs), outputs=new(step.outputs))
        case CopyStep():
            return CopyStep(*new((step.source, step.target)))
        case HostStep():
            return HostStep(step.node, tuple(resolve(x) if isinstance(x, Storage) else x for x in step.arguments),
                            new(step.outputs))
        case MoveStep():
            return MoveStep(step.node, tuple(map(_resolved_move, step.moves)))
        case AllocateStep():
            return replace(step, handle=resolve(step.handle), cell=resolve(step.cell))
        case FollowStep():
            return replace(step, handle=resolve(step.handle), cell=resolve(step.cell))
        case MarkStep() | ReleaseStep() | LookStep():       # the last is put between steps that are resolved
            return step
        case BranchStep():
            return BranchStep(step.node, resolve(step.choice), tuple(map(resolved, step.branches)))
        case LoopStep():
            start, advance = (tuple(map(_resolved_move, part)) for part in (step.start, step.advance))
            return LoopStep(step.node, start, advance, resolved(step.body), step.length, resolved(step.condition),
                            None if step.proceed is None else resolve(step.proceed))


def _resolved_move(move: Move) -> Move:
    return Move(resolve(move.target), resolve(move.source), move.offset)
