"""One capture of a call: its graph, what it needs to hold, and what is done with its results.

`tenon.capture.finish_capture` makes it when the function has returned; `tenon.capture.replay` compares it with a call
and runs it, `tenon.capture.store_results` does with the results what is to be done.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from types import CodeType
from typing import Any

import numpy as np

from tenon.capture.code_monitor import Callers
from tenon.capture.constant_weights import WithConstants, array_of
from tenon.capture.effects import Effect
from tenon.capture.frame_locals import FrameLocals
from tenon.capture.guard_places import Key
from tenon.capture.guards import Guards
from tenon.capture.leaf_keys import aliases, leaf_key
from tenon.capture.output_effects import OutputEffects
from tenon.capture.parameter_sources import Argument, Held, Source
from tenon.capture.prologue import Further, Prologue
from tenon.capture.pytree import Structure, unfold
from tenon.capture.residuals import Halves, halves
from tenon.capture.result_leaves import (
    FromContainers,
    OneOf,
    ResultNest,
    all_leaves,
    is_decided_by_data,
    results_in,
)
from tenon.devices import Device
from tenon.dims.size_assumptions import Assumptions
from tenon.eager.dispatch import program_of
from tenon.graph.ir import MESH, Graph, Value
from tenon.graph.size_stages import is_sized_by_data
from tenon.graph.value_devices import result_devices
from tenon.locks import Lock, cached_property
from tenon.observe import timed
from tenon.program.backend_interface import Executable
from tenon.records import dataclass, field
from tenon.tensor import Tensor, asarray
from tenon.types import TensorType

SHARED = (type, types.ModuleType, types.BuiltinFunctionType)


KEPT: Any = object()        # a gradient that stays


@dataclass(frozen=True)
class Change:
    """What a call changes of one tensor from outside."""

    source: Source
    result: int | None = None       # that it is assigned; None: it keeps its elements
    carries: bool = False           # whether it takes the place of the result on the tape, too
    gradient: int | OneOf | None = KEPT     # the result that becomes its `.grad`, or None
    flag: bool | None = None        # its `requires_grad`, where that is set
    updated: bool = False           # whether its elements are updated in their memory, by the run itself

    @cached_property
    def marks(self) -> bool:
        """Whether more is changed than elements."""
        return self.gradient is not KEPT or self.flag is not None


@dataclass(eq=False)
class Captured:
    """One capture: the graph, what it needs to hold, and what to do with its results."""

    graph: Graph
    sources: list[Source]
    types: list[TensorType]                     # of the leaves of the arguments that are tensors
    guards: Guards
    assumptions: Assumptions
    # what is returned; where there are effects, what they store behind it
    output: ResultNest
    assigned: list[tuple[Source, int, bool]]    # tensor <- result, and whether it then carries a gradient
    gradients: list[tuple[Source, int | OneOf | None]]  # tensor.grad <- result, or None
    effects: list[tuple[Effect, int | None]]    # a store, and the container that it is made into; -1 - k: a leaf
    flags: list[tuple[Source, bool]]            # tensor.requires_grad <- flag
    differentiable: bool
    wanted: tuple[int, ...]                     # the inputs that require a gradient
    # tensors from outside: requires_grad, .grad is None (None: either), type, device
    held: list[tuple[Tensor, bool, bool | None, TensorType, Device | None]]
    same: list[tuple[int, Tensor]]              # arguments that are such a tensor too: the leaf, and which tensor
    inputs: Inputs                              # the sources, as a call wants them
    outside: frozenset[int]                     # identities of the other tensors that can be reached from outside
    apart: frozenset[int]                       # identities of what must not be a container among the arguments
    codes: frozenset[CodeType]                  # that ran
    constants: tuple[int, ...] = ()             # the inputs of which something may be made before a call
    by_data: tuple[tuple[int, int], ...] = ()   # inputs that get a gradient where a result of the graph says so
    output_effects: OutputEffects | None = None              # what it prints, logs and warns of
    failed: int | None = None                   # the result that says that the call has to run eagerly after all
    values: tuple[tuple[int, Any], ...] = ()    # the arguments that are numbers, and the same in every call
    prologue: Prologue | None = None            # gives the arguments that are read anew, behind those of a call
    further: Further | None = None              # which these are
    found: tuple[Any, ...] = ()                 # the classes and keys of the tensors among them
    opened: Set[type] = frozenset()             # the classes of the containers among the arguments
    aliases: tuple[int, ...] = ()               # which tensors among these and the call's own are one object
    why: str = ""                               # there was none before that was right
    calls: int = 0                              # that went the slow path
    failures: int = 0                           # calls in which the graph failed
    counted: frozenset[Any] = frozenset()       # lines where it counts iterations, or has sizes, in the graph
    succeeded: bool = False                     # whether there was another one
    fast_call: Any = None                       # the fast path of calls like an earlier one (`tenon.capture.fast_call`)
    sized: bool = False                         # whether that is one for calls with other sizes, too
    grows: bool = False                         # and the next one, where sizes are too large for it, has room to grow
    checked: object = None                      # the last change of a tensor when the held tensors were right
    making: Any = None                      # its code, where another thread makes it (`background_compile`)
    seconds: dict[str, float] = field(default_factory=dict)     # that capturing and compiling took
    sightings: FrameLocals = field(default_factory=FrameLocals)     # what its functions held when they returned
    callers: Callers = field(default_factory=dict)      # what called the users' code that ran, each time first
    derived: Mapping[Value, Value] = field(default_factory=dict)    # gradients of values, of backward passes within it
    chosen: bool = False                    # whether a result may be another tensor, as the data decide
    raising: tuple[BaseException | str, ...] = ()       # what calls raise that run eagerly, or words for it
    compiling: Lock = field(default_factory=Lock)

    @property
    def moved(self) -> frozenset[Key]:
        """The places whose tensors, and what holds some, are read anew in every call."""
        further = self.further
        return frozenset() if further is None else frozenset(
            place.name for place in [*further.tensors, *(place for place, _ in further.nests)])

    @cached_property
    def program(self) -> Executable:
        """What a call runs, compiled when it is first wanted, by one of the threads that want it."""
        with self.compiling, timed(self.seconds, "compile"):
            if self.halves is not None:
                return program_of(self.halves.forward)
            holders = self.constant_holders
            return WithConstants(self.graph, holders, self.constants_changed) if holders else program_of(self.graph)

    @cached_property
    def places(self) -> tuple[Device, ...] | None:
        """The devices of the results; None where all is on the first."""
        return result_devices(self.graph)

    @property
    def constant_holders(self) -> dict[int, Any]:
        """The tensors from outside of which something may be made before a call, by input."""
        return {k: source.holder for k in self.constants if isinstance(source := self.sources[k], Held)
                and isinstance(array_of(source.holder), np.ndarray)}

    def changed_array(self, leaves: Sequence[Any]) -> int | None:
        """Which array among the leaves of the arguments the program would assign, if any."""
        positions = [source.position for source, *_ in self.assigned if isinstance(source, Argument)]
        return next((k for k in positions if k < len(leaves) and isinstance(leaves[k], np.ndarray)), None)

    def constants_changed(self) -> None:
        """The fast path does not hold any more, and a new one is wanted soon."""
        self.calls = 0

    def outgrown(self) -> None:
        """The fast path has too little memory for the sizes of this call, which makes another one, unless all would."""
        if self.grows:
            self.calls = 1

    def meets(self, containers: Sequence[Any]) -> bool:
        """Whether a container among the arguments is one that is read anew from its place, too."""
        copied = () if self.further is None or not containers else self.further.copied
        return not {id(place.read()) for place in copied}.isdisjoint(map(id, containers))

    def leaves_of(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call, arrays of NumPy as tensors."""
        leaves = unfold((tuple(args), dict(keywords)), classes=self.opened)[0]
        return [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves]

    def arguments(self, leaves: Sequence[Any]) -> Sequence[Any] | None:
        """The leaves of a call, and what this capture reads anew; None where that does not fit."""
        if self.prologue is None:
            return leaves
        further = self.prologue(leaves)
        if further is None:
            return None
        tensors = further[:len(self.found)]
        if tuple([(type(x), leaf_key(x)) for x in tensors]) != self.found:
            return None
        if aliases([*leaves, *tensors]) != self.aliases:
            return None
        return [*leaves, *(asarray(x) if isinstance(x, np.ndarray) else x for x in further)]

    @cached_property
    def halves(self) -> Halves | None:
        """The programs for the results and for the gradients, of a capture that is recorded on the tape."""
        return halves(self.graph, self.wanted) if self.differentiable else None

    @cached_property
    def leaves_of_tape(self) -> tuple[int, ...]:
        """The arguments that get a gradient: one that was computed would hand it on."""
        return tuple(source.position for source, _ in self.gradients if isinstance(source, Argument))

    @cached_property
    def uses_containers(self) -> bool:
        """Whether a call stores to a container among its arguments, or hands one on."""
        return any(number is not None and number >= 0 for _, number in self.effects) or any(
            isinstance(x, FromContainers) for leaf in self.output.leaves for x in all_leaves(leaf))

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """All that is done to tensors from outside, one by one."""
        found: dict[int, dict[str, Any]] = {}
        for source, k, carries in self.assigned:
            found[id(source)] = {"source": source, "result": k, "carries": carries}
        for source, position in self.gradients:
            found.setdefault(id(source), {"source": source})["gradient"] = position
        for source, flag in self.flags:
            found.setdefault(id(source), {"source": source})["flag"] = flag
        return tuple(Change(**fields) for fields in found.values())

    @cached_property
    def split(self) -> tuple[ResultNest, ResultNest] | None:
        """What is returned, and what effects store; None where one has a container that the other made."""
        whole = self.output
        first, *others = whole.structure.children
        if any(x.repeats for x in others):
            return None
        count = first.leaves
        stored = Structure(whole.structure.kind, (len(others),), tuple(others))
        return ResultNest(first, whole.leaves[:count]), ResultNest(stored, whole.leaves[count:], apart=True)

    @cached_property
    def mesh(self) -> Any:
        """The devices that it runs on, where they are a mesh."""
        return self.graph.notes.get(MESH)

    @cached_property
    def donations(self) -> tuple[int, ...]:
        """The inputs that the program assigns: they may give their memory to the results.

        Only where all that is stored is known before a run, since a run that has begun to write must not be seen; and
        none where a run is several stages.
        """
        if is_sized_by_data(self.graph) or self.places is not None or self.mesh is not None:
            return ()
        if self.failed is not None or (self.effects and not self._known_before) or any(
                isinstance(position, OneOf) for _, position in self.gradients):
            return ()
        return tuple(k for k, _ in self.updates)

    @property
    def updates(self) -> tuple[tuple[int, int], ...]:
        """The inputs that the program assigns, and the results that it assigns to them and stores nowhere else."""
        position = {id(source): k for k, source in enumerate(self.sources)}
        leaves = (*self.output.leaves[self._first_stored:], *(position for _, position in self.gradients))
        stored = Counter(result for leaf in leaves for result in results_in(leaf))
        stored.update(result for _, result, _ in self.assigned)
        if self.output_effects is not None:
            stored.update(k for _, effect in self.output_effects.always for x in effect.leaves for k in results_in(x))
        return tuple((position[id(source)], result) for source, result, carries in self.assigned
                     if not carries and id(source) in position and stored[result] == 1)

    @property
    def _first_stored(self) -> int:
        """The first leaf that effects store: behind what is returned, which is made when a run is over."""
        if not self.effects or self.split is None:
            return 0 if self.effects else len(self.output.leaves)
        return len(self.split[0].leaves)

    @property
    def _known_before(self) -> bool:
        """Whether what effects store, but for the elements of results, does not depend on a run."""
        return not any(map(is_decided_by_data, self.output.leaves[self._first_stored:]))


def holder_of(source: Source, leaves: Sequence[Any]) -> Any:
    """The tensor (or array) that a source stands for in a call with these leaves."""
    if isinstance(source, Argument):
        return leaves[source.position]
    if isinstance(source, Held):
        return source.holder
    return holder_of(source.source, leaves).own.grad


class Inputs:
    """Where the inputs of a program come from, sorted once, so that a call need not look at every one."""

    def __init__(self, sources: Sequence[Source]):
        self.fixed: list[Any] = [None] * len(sources)
        self.moving: list[tuple[int, Source]] = []      # which are gradients
        self.arguments: list[tuple[int, int]] = []
        for k, source in enumerate(sources):
            if isinstance(source, Argument):
                self.arguments.append((k, source.position))
            elif isinstance(source, Held):
                # A tensor around an array shares its memory: what is written there is read.
                self.fixed[k] = source.holder if isinstance(source.holder, Tensor) else Tensor(source.holder)
            else:
                self.moving.append((k, source))

    def holders(self, leaves: Sequence[Any]) -> list[Tensor]:
        """The tensor of every input, in a call with these leaves."""
        holders = self.fixed.copy()
        for k, position in self.arguments:
            holders[k] = leaves[position]
        for k, source in self.moving:
            holders[k] = holder_of(source, leaves)
        return holders
