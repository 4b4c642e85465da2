"""A function of one example -> its graph, run on the whole batch: for what decides by the elements of an example.

    if x.sum() > 0: ...         # in a function under tn.vmap

The function is captured for one example as `tn.jit` captures it, control flow on tensors included, and what it did is
run on the batch (`tenon.transforms.vmap_control_flow`), at once and in every call. Python runs once: what it changes or
prints stays, but not where examples differ in whether it happens.  Where an example goes a way that the graph does not
hold, an exception among them, the function is called for that example alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tenon.capture.code_monitor import CodeWatch, UnsafeCall, unwatched
from tenon.capture.convert.convert_function import convert
from tenon.capture.convert.reachable import reachable
from tenon.capture.convert.state_snapshot import World
from tenon.capture.convert.tensor_list import FirstRows, TensorList
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.effects import MISSING, Effect, Snapshot
from tenon.capture.nested_capture import Branch
from tenon.capture.python_state import described
from tenon.capture.pytree import Structure, flatten
from tenon.capture.runtime_numbers import RuntimeNumber, strong
from tenon.capture.subgraph import InnerBuilder
from tenon.capture.trace import capturing
from tenon.capture.unify_types import agreed_type, as_tensor, labels, lifted
from tenon.errors import CaptureError, user_location
from tenon.graph.ir import Graph
from tenon.graph.op import interpreter, using
from tenon.ops.custom import apply_graph_by
from tenon.ops.joining_and_axes import stack
from tenon.ops.shape import cast
from tenon.records import dataclass
from tenon.tensor import Tensor, asarray
from tenon.tensor_state import Deferred, Elsewhere, recorder, unnoted

Function = Callable[..., Any]


class OneExample(Branch):
    """The capture of a function for one example."""

    def __init__(self) -> None:
        super().__init__("example")
        self.converting, self.where = True, user_location()

    # ------------------------------------------------------------ what Python may know

    def known(self, tensor: Tensor) -> np.ndarray | None:
        """All examples share what is outside, and a capture that is run at once may look at it."""
        if self.owns(tensor.own.payload) or ((seen := self.seen.get(id(tensor))) is not None and seen.assigned):
            return None
        if self.around is not None:
            return self.around.known(tensor)
        payload = tensor.own.payload
        if isinstance(payload, (Deferred, Elsewhere)):
            elements: np.ndarray = payload.elements()
            return elements
        return payload if isinstance(payload, np.ndarray) else None

    def is_data(self, x: Any) -> bool:
        return super().is_data(x) and not (isinstance(x, Tensor) and self.known(x) is not None)

    def number(self, tensor: Tensor) -> Any:
        return None if self.known(tensor) is not None else super().number(tensor)

    def needs_value(self, tensor: Tensor, what: str) -> UnsafeCall:
        return UnsafeCall(f"{what} needs the elements of one example", where=user_location(),
                          hint="use tn.where(condition, a, b), or a Python loop over the examples")

    def shown(self) -> str:
        return "one of a batch"

    # ------------------------------------------------------------ what the function does to Python

    @contextmanager
    def recording(self, roots: Sequence[Any]) -> Iterator[Effects]:
        """Record what is done in this block.  What it changes in Python stays, unless it is refused."""
        with unwatched():
            snapshot = self.python_state.before(roots)
            if self.around is None:
                reach = self.python_state.reach
                self.world = World(list(reach.holders.values()), reach.cells, snapshot)
        effects = Effects(snapshot, [])
        try:
            with self.watched(), unnoted(), capturing(self):
                yield effects
            with unwatched():
                effects.changes.extend(snapshot.changes())
                self.refuse_leaks(effects.changes)
        except UnsafeCall as unsafe:
            with unwatched():
                snapshot.restore()
            raise self.refusal(unsafe) from None

    def watched(self) -> Any:
        """Stops what acts where examples differ; a capture around this one has a watch of its own."""
        return nullcontext() if self.around is not None else CodeWatch(rests=is_for_all).stopping()

    def refuse_leaks(self, changes: Sequence[Effect]) -> None:
        """What one example is must not be found outside."""
        for effect in changes:
            found = reachable([effect.value], ())
            own = [x.own.payload for x in found.tensors.values() if self.owns(x.own.payload)]
            if own:
                node = getattr(own[0], "node", None)
                raise UnsafeCall(f"the function changes {described(effect)}, and what it is then differs between the "
                                 "examples", where=node and node.loc, hint="return it, and assign outside tn.vmap")

    def refusal(self, unsafe: UnsafeCall) -> BaseException:
        if self.around is not None:
            return unsafe
        return CaptureError(f"vmap: {unsafe.what}", where=unsafe.where or self.where, hint=unsafe.hint,
                            why="the function runs once, for all examples, which may go different ways")


@dataclass(frozen=True)
class Effects:
    """How Python was before, and what the function changed."""

    snapshot: Snapshot
    changes: list[Effect]


def is_for_all() -> bool:
    """Whether what runs now is run once, and not in an arm or a loop, which some examples may take."""
    capture: Any = recorder.get()
    while isinstance(capture, OneExample) and not isinstance(capture.builder, InnerBuilder):
        capture = capture.around
    return capture is None


# ---------------------------------------------------------------- the graph of one example

@dataclass(frozen=True)
class CapturedExample:
    """What the function did for one example."""

    graph: Graph
    read: list[Any]                 # tensors and arrays from outside, the last parameters of the graph
    assigned: list[Tensor]          # tensors from outside, and there are as many results
    leaves: list[Any]               # what it returned
    structure: Structure
    may_fail: Any                   # False, True, or whether the last result says so
    effects: Effects


def capture_one(function: Function, leaves: Sequence[Any], structure: Structure, level: Any) -> CapturedExample:
    """Call the function with stand-ins for the tensors that are batches of this level."""
    branch = OneExample()
    given = [branch.parameter(x.type) if level.holds(x) else x for x in leaves]
    roots = [getattr(function, "__func__", function), *(x for x in leaves if not isinstance(x, Tensor))]
    with branch.recording(roots) as effects:
        args, keywords = structure.build(given)
        returned, form = flatten(convert(function)(*args, **keywords))
        found = [result_of(branch, x) for x in lifted(returned)]
        failed = branch.failed if isinstance(branch.failed, bool) else strong(branch.failed)
    assigned = [seen.tensor for seen in branch.assigned]
    results = [branch.value(x) for x in (*found, *assigned, failed) if isinstance(x, Tensor)]
    read = branch.read
    graph = branch.graph([*branch.given, *(param for param, _ in read)], results)
    return CapturedExample(graph, [holder for _, holder in read], assigned, found, form, failed, effects)


def result_of(branch: OneExample, x: Any) -> Any:
    """A leaf of what the function returned: data as a tensor, of the type that it has outside of a capture."""
    x = branch.resolve(x) if type(x) is UnionValue else x
    if type(x) in (TensorList, FirstRows) or x is MISSING:
        raise UnsafeCall("the function returns as many elements as each example decides",
                         hint="return their number, and a tensor of one size for all")
    if type(x) is RuntimeNumber:
        return cast(strong(x), dtype=asarray(x.weak(0)).dtype)
    return as_tensor(x)


# ---------------------------------------------------------------- on the batch

def run_by_graph(function: Function, leaves: Sequence[Any], structure: Structure, level: Any) -> Any:
    """What the function returns for a batch, whose leaves are examples of this level."""
    captured = capture_one(function, leaves, structure, level)
    with using(level):
        read = [interpreter().lift(x) for x in captured.read]
    results = list(apply_graph_by(captured.graph, [*filter(level.holds, leaves), *read], level))
    if captured.may_fail is not False:
        failed = level.leave(results.pop() if isinstance(captured.may_fail, Tensor) else asarray(True), 0)
        if is_any(failed):
            return one_by_one(function, leaves, structure, level, failed.numpy(), captured)
    count = len(results) - len(captured.assigned)
    for tensor, new in zip(captured.assigned, results[count:], strict=True):
        tensor._rebind(new)
    found = iter(results[:count])
    return captured.structure.build(cut_off(next(found), x) if isinstance(x, Tensor) else x for x in captured.leaves)


def cut_off(result: Tensor, one: Tensor) -> Tensor:
    """The result for the batch, which carries a gradient where that for one example did."""
    return result if one.requires_grad else result.detach()


def is_any(failed: Tensor) -> bool:
    """Whether some example left the graph; a program around this one finds out when it runs."""
    some = failed.any()
    if (capture := recorder.get()) is None:
        return bool(some)
    capture.fail_if(some)
    return False


def one_by_one(function: Function, leaves: Sequence[Any], structure: Structure, level: Any, failed: np.ndarray,
               captured: CapturedExample) -> Any:
    """The function on the first example that left the graph, which may raise; then on all of them in turn."""
    captured.effects.snapshot.restore()

    def call(k: int) -> Any:
        args, keywords = structure.build([x.payload.inner[k] if level.holds(x) else x for x in leaves])
        with using(level.outer):
            return function(*args, **keywords)
    first = int(failed.argmax())
    call(first)
    if captured.effects.changes or captured.assigned:
        captured.effects.snapshot.restore()
        raise CaptureError(f"vmap: example {first} takes a way that one graph for all does not hold, and the function "
                           "changes what is outside", hint="use a Python loop over the examples")
    return all_of([flatten(call(k)) for k in range(len(failed))], level)


def all_of(examples: Sequence[tuple[list[Any], Structure]], level: Any) -> Any:
    """What all examples returned, as one batch."""
    names, form = [f"example {k}" for k in range(len(examples))], examples[0][1]
    if any(other != form for _, other in examples):
        raise CaptureError("vmap: the function returns nests of different forms for different examples",
                           hint="return one form, with numbers in the place of what is not there")
    leaves = []
    for column, label in zip(zip(*(lifted(found) for found, _ in examples), strict=True), labels(form, "the result"),
                             strict=True):
        dtype = agreed_type("vmap", names, column, label)
        leaves.append(column[0] if dtype is None else level.enter(stack([as_tensor(x, dtype) for x in column]), 0))
    return form.build(leaves)
