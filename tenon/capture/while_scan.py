"""`tn.while_loop`, `tn.scan`, `tn.fori_loop`, `tn.map`: loops of Python eagerly, one node of the graph in a capture.

The body is traced once (`nested_capture`), on tensors of the types that are carried.  Tensors from outside that
it reads are constants of the node; those that it assigns are carried too, and assigned when the loop has run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.cond_switch import TracedFunction, rewritten, type_of
from tenon.capture.loop_carried import Carried
from tenon.capture.nested_capture import Branch
from tenon.capture.pytree import Structure, flatten
from tenon.capture.trace import is_capturing
from tenon.capture.unify_types import as_tensor, condition_of, described, labels, lifted
from tenon.dims.symbolic_dim import Dim
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.ir import Graph, Value
from tenon.graph.op import interpreter
from tenon.ops.branches import as_tuple
from tenon.ops.joining_and_axes import stack
from tenon.ops.loops import scan as scan_op
from tenon.ops.loops import while_loop as while_op
from tenon.ops.placing import on_device
from tenon.ops.recurrent import steps
from tenon.tensor import Tensor, asarray
from tenon.types import TensorType

Function = Callable[..., Any]


def while_loop(cond_fn: Function, body_fn: Function, init: Any) -> Any:
    """`init` after `body_fn` was applied to it as long as `cond_fn` of it holds.

    What is carried is a nest of tensors, whose types and shapes stay the same; numbers in `init` become tensors, of the
    type that the body gives them.  Both functions may read other tensors, and assign them.

    >>> tn.while_loop(lambda x: x < 100, lambda x: x * 2, tn.tensor(3))
    tensor(192)
    """
    carried, cond_fn, body_fn = Carried.of("while_loop", init), rewritten(cond_fn), rewritten(body_fn)
    if not is_capturing():
        while True:
            known = condition_of("while_loop", cond_fn(carried.nest()))
            if not isinstance(known, bool):
                break
            if not known:
                return carried.nest()
            carried = carried.followed_by(body_fn(carried.nest()))
    return traced_while(cond_fn, body_fn, carried)


def scan(f: Function, init: Any, xs: Any = None, length: Any = None, reverse: bool = False) -> Any:
    """`carry, y = f(carry, x)` for every x along the first axis of `xs`: the last carry, and all y stacked.

    `xs` is a nest of tensors with equal first axes, or None with `length` given.  `reverse` goes from the last x to the
    first; y keeps the place of its x.

    >>> tn.scan(lambda total, x: (total + x, total * x), 0.0, tn.tensor([1.0, 2.0, 3.0]))
    (tensor(6.), tensor([0., 2., 9.]))
    """
    f, (leaves, structure) = rewritten(f), flatten(xs)
    sequences = [as_tensor(x) for x in lifted(leaves)]
    length = length_of(sequences, structure, length)
    carried = Carried.of("scan", init)
    if is_capturing() or (isinstance(length, int) and length == 0):
        return traced_scan(f, carried, sequences, structure, length, reverse)
    rows = [steps(x) if isinstance(x, Tensor) else (x,) * int(length) for x in sequences]
    found: list[list[Any]] = []
    form_of_y = structure
    for k in reversed(range(int(length))) if reverse else range(int(length)):
        carry, y = pair("scan", f(carried.nest(), structure.build(row[k] for row in rows)))
        carried = carried.followed_by(carry)
        parts, form_of_y = flatten(y)
        found.append([as_tensor(x) for x in lifted(parts)])
    if reverse:
        found.reverse()
    columns = [stack(list(column)) if isinstance(column[0], Tensor) else column[0]
               for column in zip(*found, strict=True)]
    return carried.nest(), form_of_y.build(columns)


def fori_loop(lower: Any, upper: Any, body_fn: Function, init: Any) -> Any:
    """`init` after `body_fn(i, it)` for every i from `lower` up to (not including) `upper`; they may be tensors.

    >>> tn.fori_loop(1, 5, lambda i, x: x * i, 1)
    tensor(24)
    """
    body_fn = rewritten(body_fn)
    if isinstance(lower, int) and isinstance(upper, int):
        first = asarray(lower, device=device_of_first(init))
        (_, result), _ = scan(lambda carry, _: ((carry[0] + 1, body_fn(*carry)), None), (first, init),
                              length=max(0, upper - lower))
        return result
    there = device_of_first(init)
    start, end = (on_device(as_tensor(interpreter().lift(x)), there) for x in (lower, upper))
    _, result = while_loop(lambda carry: carry[0] < end, lambda carry: (carry[0] + 1, body_fn(*carry)), (start, init))
    return result


def device_of_first(init: Any) -> Any:
    """Where what is carried begins: the device of its first tensor."""
    return next((x.device for x in flatten(init)[0] if isinstance(x, Tensor)), None)


def map(f: Function, xs: Any) -> Any:
    """`f` of every x along the first axis of `xs`, stacked.  `tn.vmap` does all at once, in more memory.

    >>> tn.map(lambda x: x * x, tn.tensor([1, 2, 3]))
    tensor([1, 4, 9])
    """
    each = rewritten(f)
    return scan(lambda _, x: (None, each(x)), None, xs)[1]


def length_of(sequences: Sequence[Any], structure: Structure, length: Any) -> Any:
    """The common size of the first axes."""
    found = None if length is None else length
    for x, label in zip(sequences, labels(structure, "xs"), strict=True):
        if not isinstance(x, Tensor):
            continue
        if not x.shape:
            raise ShapeError(f"scan: {label} is {x.type}, it has no first axis to go along")
        if found is not None and x.shape[0] != found:
            raise ShapeError(f"scan: {label} is {x.type}, and the length is {found}")
        found = x.shape[0]
    if found is None:
        raise ArgumentError("scan: without xs, length= is needed")
    return found


def pair(name: str, result: Any) -> tuple[Any, Any]:
    """What the function of a scan returns."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(f"{name}: the function must return a pair, (carry, y), not {described(result)}")
    return result


# ---------------------------------------------------------------- in a graph

def traced_while(cond_fn: Function, body_fn: Function, carried: Carried) -> Any:
    """The loop as one node."""
    body, settled = traced_body(carried, (), body_fn)
    condition = Branch("condition")
    given = [condition.parameter(x.type, f"c{k}") for k, x in enumerate(settled.tensors)]
    with condition.tracing(cond_fn):
        holds = as_tensor(condition_of("while_loop", cond_fn(settled.nest(given))))
    if condition.assigned:
        return with_condition_carried(cond_fn, body_fn, carried)
    carried, verdict = settled, condition.value(holds)
    loop = TracedLoop(carried, body, [condition])
    out = as_tuple(while_op(*loop.inputs, constants=len(loop.constants), body=loop.body(),
                          condition=condition.graph(loop.params(condition), [verdict])))
    return loop.finish(out)


def with_condition_carried(cond_fn: Function, body_fn: Function, carried: Carried) -> Any:
    """The loop whose condition assigns tensors: it is evaluated before the loop and at the end of the body."""
    def body(state: Any) -> Any:
        after = body_fn(state[0])
        return after, as_tensor(condition_of("while_loop", cond_fn(after)))
    first = as_tensor(condition_of("while_loop", cond_fn(carried.nest())))
    return traced_while(lambda state: state[1], body, Carried.of("while_loop", (carried.nest(), first)))[0]


def traced_scan(f: Function, carried: Carried, sequences: Sequence[Any], structure: Structure, length: Dim,
                reverse: bool) -> Any:
    """The scan as one node."""
    tensors = [x for x in sequences if isinstance(x, Tensor)]
    ys: list[Any] = []

    def function(nest: Any, *slices: Tensor) -> Any:
        given = iter(slices)
        carry, y = pair("scan", f(nest, structure.build(next(given) if isinstance(x, Tensor) else x
                                                         for x in sequences)))
        leaves, form_of_y = flatten(y)
        ys[:] = [[as_tensor(x) for x in lifted(leaves)], form_of_y]
        return carry
    types = [x.type.with_shape(x.shape[1:]) for x in tensors]
    body, carried = traced_body(carried, types, function)
    leaves, form_of_y = ys
    stacked = [body.branch.value(y) for y in leaves if isinstance(y, Tensor)]
    loop = TracedLoop(carried, body)
    graph = loop.body(stacked)
    count = len(carried.tensors) + len(loop.assigned)
    out = as_tuple(scan_op(*loop.inputs, *tensors, constants=len(loop.constants), carried=count, length=length,
                         body=graph, reverse=reverse)) if graph.results else ()
    found = iter(out[count:])
    return loop.finish(out[:count]), form_of_y.build(next(found) if isinstance(y, Tensor) else y for y in leaves)


def traced_body(carried: Carried, more: Sequence[TensorType], function: Function) -> tuple[TracedFunction, Carried]:
    """The body of a loop, and what is carried, with weak types settled."""
    while True:
        branch = Branch("body")
        given = [branch.parameter(x.type, f"c{k}") for k, x in enumerate(carried.tensors)]
        slices = [branch.parameter(type, f"x{k}") for k, type in enumerate(more)]
        with branch.tracing(function):
            leaves, structure = flatten(function(carried.nest(given), *slices))
            leaves = lifted(leaves)
        types = carried.types_after(leaves, structure)
        settled = carried.with_types(types)
        if [x.type for x in settled.tensors] == [x.type for x in carried.tensors]:
            with branch.tracing():
                leaves = [as_tensor(x, t) for x, t in zip(leaves, types, strict=True)]
            return TracedFunction(branch, leaves, structure), carried
        carried = settled


class TracedLoop:
    """The inputs of a loop's node: constants that its graphs read, what is carried, and outside tensors assigned."""

    def __init__(self, carried: Carried, body: TracedFunction, others: Sequence[Branch] = ()):
        self.carried, self.branch = carried, body.branch
        self.assigned = {id(seen.tensor): seen.tensor for seen in body.branch.assigned}
        self.leaves: set[int] = {id(seen.tensor) for seen in body.branch.assigned if seen.state.node is None}
        results = [x for x in body.leaves if isinstance(x, Tensor)]
        self.results = [body.branch.value(x) for x in (*results, *self.assigned.values())]
        read = {id(holder): holder for branch in (*others, body.branch) for _, holder in branch.read}
        self.constants = {key: x for key, x in read.items() if key not in self.assigned}

    @property
    def inputs(self) -> list[Any]:
        """What the node is called with, but for sequences."""
        return [interpreter().lift(x) for x in (*self.constants.values(), *self.carried.tensors,
                                                *self.assigned.values())]

    def params(self, branch: Branch) -> list[Value]:
        """The parameters of a graph of this loop, read or not."""
        own = {id(holder): param for param, holder in branch.read}

        def of(holders: dict[int, Any]) -> list[Value]:
            return [own[key] if key in own else Value(type_of(x)) for key, x in holders.items()]
        count = len(self.carried.tensors)
        return [*of(self.constants), *branch.given[:count], *of(self.assigned), *branch.given[count:]]

    def body(self, stacked: Sequence[Value] = ()) -> Graph:
        """The graph of the body."""
        return self.branch.graph(self.params(self.branch), [*self.results, *stacked])

    def finish(self, outputs: Sequence[Tensor]) -> Any:
        """Assign what the loop assigned; the nest that it carried."""
        count = len(self.carried.tensors)
        for tensor, new in zip(self.assigned.values(), outputs[count:], strict=True):
            tensor._rebind(new.detach() if id(tensor) in self.leaves else new)
        return self.carried.nest(outputs[:count])

