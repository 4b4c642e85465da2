"""A native call that runs a program -> what a fast path makes of its new arrays: a result, stores, a node of the tape.

Five kinds of calls, simplest first.  A tensor that the program assigns and that nobody else holds is updated in its
own memory: nobody else can have its state or its array, which their reference counts tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import not_
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.atomic import at_once, later
from tenon.capture.captured import Captured
from tenon.capture.donated_results import DonatedResults, DonatedRunResults
from tenon.capture.epilogue import Epilogue, epilogue
from tenon.capture.guarded_inputs import GuardedInputs, as_tensors
from tenon.capture.match_arguments import MISS, Call, Run
from tenon.capture.pytree import LEAF
from tenon.capture.residuals import recorded
from tenon.capture.result_leaves import FromGraph
from tenon.capture.size_reader import NewArray, SizeReader
from tenon.capture.store_results import OnTape, ResultStores, RunResults, Stopped
from tenon.tensor import Tensor, fresh
from tenon.tensor_state import TensorState

if TYPE_CHECKING:
    from tenon.cpython.jit_fast_call import FastCalls


class OffTheGraph(Exception):
    """The graph of a call like earlier ones does not hold its way, such as one that raises; nothing was changed."""


def off_the_graph(captured: Captured) -> Any:
    """The slow path learns of failures where the capture may be a wrong one; else it would only fail once more."""
    if not captured.succeeded or captured.counted:
        return MISS
    raise OffTheGraph


class FastCallResults:
    """Makes functions of a call's leaves, of native `calls`; `donors` says which input's memory each result takes."""

    def __init__(self, inputs: GuardedInputs, calls: FastCalls, new_arrays: SizeReader, donors: Sequence[int | None]):
        self.captured, self.inputs, self.calls, self.new_arrays = inputs.captured, inputs, calls, new_arrays
        self.donors, self.rest, self.containers_at = donors, inputs.guards.rest, inputs.containers_at
        self.builtin: Call | None = None        # the call that is one native function, if there is one

    def run(self, new: Sequence[int], made: Sequence[NewArray]) -> Run:
        """What makes calls; `made` are the new arrays, in the places `new` of those that the program is given."""
        if self.captured.differentiable:
            return self._on_tape()
        donated = DonatedResults(self.captured, self.donors)
        if self._is_new_tensor() and len(made) == 1 and not (
                donated.changes or self.captured.effects or self.captured.output_effects):
            return self._new_tensor(new[0], made[0])
        return self._by_epilogue(donated) or (
            self._in_place(donated) if any(donated.lenders) else self._in_new_arrays())

    def _is_new_tensor(self) -> bool:
        """Whether the function returns a result of the graph, and nothing has to be known of it."""
        output = self.captured.output
        leaf = output.leaves[0] if output.structure is LEAF else None
        return isinstance(leaf, FromGraph) and self.donors[leaf.index] is None and not (
            leaf.requires_grad or leaf.number or leaf.grad or leaf.kind)

    def _arrays(self) -> bool:
        """Whether some arguments are arrays, in the places of tensors."""
        return any(isinstance(x, np.ndarray) for x in self.inputs.leaves[:self.inputs.own])

    def _new_tensor(self, place: int, made: NewArray) -> Run:
        """The call of which one tensor is left."""
        rest, new_arrays, call = self.rest, self.new_arrays, self.calls.call
        if rest is None and self.inputs.max_sizes is None:
            self.builtin = self.calls.answer(self.inputs.calls.Answer(
                len(self.inputs.leaves), made.empty, made.shape, made.dtype, place, Tensor, TensorState, MISS))

        def new_tensor(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            if new is not None and (rest is None or rest.hold()) and call(leaves, new):
                return fresh(new[0])
            return MISS
        return new_tensor

    def _by_epilogue(self, donated: DonatedResults) -> Run | None:
        """The call, where what it leaves is simple enough for source text made for it."""
        if donated.changes or self.captured.failed is not None:
            return None
        rest, new_arrays = self.rest, self.new_arrays
        places = [-1 if lender else place for lender, place in zip(donated.lenders, donated.new, strict=True)]
        end: Epilogue | None = epilogue(self.captured, places, any(donated.lenders), self.calls.call, MISS,
                                        self._arrays(), self.containers_at)
        if end is None:
            return None

        def by_epilogue(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            return end(leaves, new) if new is not None and (rest is None or rest.hold()) else MISS
        return by_epilogue

    def _in_new_arrays(self) -> Run:
        """The program writes in new memory: what is stored is looked for behind it."""
        captured, rest, new_arrays, call = self.captured, self.rest, self.new_arrays, self.calls.call
        arrays, at = self._arrays(), self.containers_at

        def in_new_arrays(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            if new is None or not ((rest is None or rest.hold()) and call(leaves, new)):
                return MISS
            result_stores = ResultStores(captured, as_tensors(leaves) if arrays else leaves, captured.changes,
                                         leaves[at:])
            try:
                at_once(result_stores.stores(RunResults(new)) or ())
            except Stopped:
                return off_the_graph(captured)
            return result_stores.value()
        return in_new_arrays

    def _in_place(self, donated: DonatedResults) -> Run:
        """It writes in that of tensors too: what is stored is known before, and done where it ends."""
        captured, rest, new_arrays, call = self.captured, self.rest, self.new_arrays, self.calls.call
        arrays, at = self._arrays(), self.containers_at

        def in_place(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            if new is None or (rest is not None and not rest.hold()):
                return MISS
            tensors = as_tensors(leaves) if arrays else leaves
            result_stores = ResultStores(captured, tensors, donated.changes, leaves[at:])
            results = DonatedRunResults(donated, new, tensors)
            try:
                stores = result_stores.stores(results)
            except Stopped:
                return MISS
            unless = chain(map(not_, later(call, leaves, new)), results.marks())
            return result_stores.value() if at_once(stores or (), unless) else MISS
        return in_place

    def _on_tape(self) -> Run:
        """The call that is recorded: the program gives what the gradient needs, too."""
        captured, rest, new_arrays, call = self.captured, self.rest, self.new_arrays, self.calls.call
        arrays, at = any(isinstance(x, np.ndarray) for x in self.inputs.leaves), self.containers_at
        parts, graph, holders = captured.halves, captured.graph, captured.inputs.holders
        build, places = captured.output.structure.build, _places_on_tape(captured)
        assert parts is not None

        def on_tape(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            if new is None or not ((rest is None or rest.hold()) and call(leaves, new)):
                return MISS
            tensors = as_tensors(leaves) if arrays else leaves
            made = recorded(graph, parts, holders(tensors), new, captured.by_data)
            if places:
                return build([made[k] for k in places])
            result_stores = ResultStores(captured, tensors, captured.changes, leaves[at:])
            try:
                at_once(result_stores.stores(OnTape(made)) or ())
            except Stopped:
                return off_the_graph(captured)
            return result_stores.value()
        return on_tape


def _places_on_tape(captured: Captured) -> list[int]:
    """Which results are returned, where a call does nothing but to return results that are on the tape; else none."""
    leaves = captured.output.leaves
    acts = captured.changes, captured.effects, captured.gradients, captured.flags, captured.output_effects
    if any(acts) or captured.by_data or captured.failed is not None or captured.output.undecided:
        return []
    usual = all(isinstance(x, FromGraph) and x == FromGraph(x.index, True, released=False) for x in leaves)
    return [x.index for x in leaves] if usual else []
