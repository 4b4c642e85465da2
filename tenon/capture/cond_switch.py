"""`tn.cond` and `tn.switch`: a choice among functions, in Python where it is known, else a node of the graph.

Eagerly the function chosen runs, and nothing else.  In a captured program, and where the examples of `tn.vmap` differ
in the choice, every function is traced (`nested_capture`).  The tensors that any of them reads are its operands.
The tensors that any of them assigns are among its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.convert_function import convert
from tenon.capture.convert.converting_capture import ConvertingCapture
from tenon.capture.nested_capture import Branch
from tenon.capture.pytree import Structure, flatten, form
from tenon.capture.trace import capturing
from tenon.capture.unify_types import agreed_type, as_tensor, condition_of, is_known, is_number, labels, lifted
from tenon.eager.grad_mode import recorded_like
from tenon.errors import ArgumentError, DTypeError, ShapeError, TenonError
from tenon.graph.ir import Graph, Value
from tenon.graph.op import interpreter
from tenon.ops.branches import as_tuple
from tenon.ops.branches import cond as cond_op
from tenon.ops.branches import recomputed as recomputed_op
from tenon.ops.branches import switch as switch_op
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.tensor_state import recorder

Function = Callable[..., Any]


def cond(pred: Any, true_fn: Function, false_fn: Function, *operands: Any) -> Any:
    """What `true_fn(*operands)` returns where `pred` holds, else what `false_fn(*operands)` returns.

    Only the function taken is run, and only it gets a gradient.  Both return nests of one form, with tensors of the
    same types.  A number becomes a tensor, of the type of what the other function returns there; so where one is
    returned, the other function is traced, eagerly too.  They may read and assign any tensors.

    >>> tn.cond(tn.tensor(True), lambda x: x + 1, lambda x: x - 1, tn.tensor(3))
    tensor(4)
    """
    known = condition_of("cond", pred)
    sides = {"the true branch": rewritten(true_fn), "the false branch": rewritten(false_fn)}
    if isinstance(known, bool):
        return taken("cond", sides, 0 if known else 1, operands, isinstance(interpreter().lift(pred), Tensor))
    return choice("cond", sides, operands,
                  lambda graphs: cond_op(known, *graphs.operands, true=graphs.graphs[0], false=graphs.graphs[1]))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """What `branches[index](*operands)` returns; an index too small or too large is the first or the last.

    Otherwise as `tn.cond`.

    >>> tn.switch(tn.tensor(1), [tn.sin, tn.square, tn.exp], tn.tensor(3.0))
    tensor(9.)
    """
    if not branches:
        raise ArgumentError("switch: there are no branches")
    sides = {f"branch {k}": rewritten(f) for k, f in enumerate(branches)}
    chosen = interpreter().lift(index)
    if isinstance(chosen, Tensor) and (chosen.shape != () or chosen.dtype.kind not in "iu"):
        error = ShapeError if chosen.shape else DTypeError
        raise error(f"switch: the index must be one integer, it is {chosen.type}")
    if not isinstance(chosen, Tensor) or is_known(chosen):
        return taken("switch", sides, min(max(int(chosen), 0), len(branches) - 1), operands, isinstance(chosen, Tensor))
    return choice("switch", sides, operands,
                  lambda graphs: switch_op(chosen, *graphs.operands, branches=graphs.graphs))


def rewritten(function: Function) -> Function:
    """The function, with its own control flow on tensors recorded where that around it is."""
    capture = recorder.get()
    return convert(function) if isinstance(capture, ConvertingCapture) and capture.converting else function


# ---------------------------------------------------------------- running one of them

def taken(name: str, functions: Mapping[str, Function], place: int, operands: Sequence[Any], by_data: bool) -> Any:
    """What one of the functions returns, with its numbers as tensors: of the types that the choice has where `by_data`
    decide, and a captured program would trace all functions."""
    leaves, structure = flatten(list(functions.values())[place](*operands))
    if by_data and any(map(is_number, leaves)):
        leaves = beside_others(name, functions, place, operands, leaves, structure)
    return structure.build(map(as_tensor, leaves))


def beside_others(name: str, functions: Mapping[str, Function], place: int, operands: Sequence[Any],
                  leaves: Sequence[Any], structure: Structure) -> list[Any]:
    """The leaves that one function returned, with each number as a tensor of the type that all functions agree on.

    Numbers stay what they are where another function cannot be traced, or returns another form.
    """
    try:
        traced = [leaves if k == place else trace_branch("another_branch", f, *operands)
                  for k, f in enumerate(functions.values())]
    except (Exception, UnsafeCall):     # of any kind: no captured program would have this choice
        return list(leaves)
    if any(isinstance(t, TracedFunction) and t.structure != structure for t in traced):
        return list(leaves)
    columns = zip(*(t.leaves if isinstance(t, TracedFunction) else t for t in traced), strict=True)
    return [as_tensor(x, agreed_type(name, list(functions), column, path)) if is_number(x) else x
            for x, column, path in zip(leaves, columns, labels(structure, "the result"), strict=True)]


# ---------------------------------------------------------------- tracing all of them

@dataclass(frozen=True)
class Graphs:
    """Graphs on the same operands, which are tensors of the program around."""

    graphs: tuple[Graph, ...]
    operands: list[Tensor]


@dataclass
class TracedFunction:
    """One function, traced: the leaves of what it returned are tensors of the branch, numbers, and others."""

    branch: Branch
    leaves: list[Any]
    structure: Structure


def trace_branch(name: str, function: Function, *args: Any) -> TracedFunction:
    """What the function returns for these arguments, as a graph of its own.

    Tensors of the program around may be among the arguments; they are read like those that the function closes over.
    """
    branch = Branch(name)
    with branch.tracing(function):
        leaves, structure = flatten(function(*args))
        return TracedFunction(branch, lifted(leaves), structure)


def recomputed(function: Function, *args: Any) -> Any:
    """What the function returns; in a graph, its gradient computes it again (`tenon.transforms.checkpoint`)."""
    return choice("checkpoint", {"recomputed": rewritten(function)}, args,
                  lambda graphs: recomputed_op(*graphs.operands, body=graphs.graphs[0]))


def choice(name: str, functions: dict[str, Function], operands: Sequence[Any], emit: Callable[[Graphs], Any]) -> Any:
    """The result of one of the functions, chosen when the program runs."""
    sides = list(functions)
    traced = [_traced(name, side, f, operands) for side, f in functions.items()]
    for side, other in zip(sides, traced, strict=True):
        if other.structure != traced[0].structure:
            raise ArgumentError(f"{name}: {sides[0]} returns {form(traced[0].structure)} and {side} returns "
                                f"{form(other.structure)}", hint="both must return the same form")
    columns = list(zip(*(t.leaves for t in traced), strict=True))
    paths = labels(traced[0].structure, "the result")
    types = [agreed_type(name, sides, column, path) if len(sides) > 1 else getattr(column[0], "dtype", None)
             for column, path in zip(columns, paths, strict=True)]
    assigned = list({id(seen.tensor): seen.tensor for t in traced for seen in t.branch.assigned}.values())
    results = []
    for t in traced:
        with capturing(t.branch):
            found = [as_tensor(x, dtype) for x, dtype in zip(t.leaves, types, strict=True) if dtype]
        results.append([t.branch.value(x) for x in (*found, *assigned)])
    if not results[0]:
        return traced[0].structure.build(traced[0].leaves)
    with recorded_like(chain.from_iterable(columns)):
        outputs = list(as_tuple(emit(together([t.branch for t in traced], results))))
    count = len(outputs) - len(assigned)
    requiring = {id(seen.tensor) for t in traced for seen in t.branch.assigned if seen.state.requires_grad}
    for tensor, new in zip(assigned, outputs[count:], strict=True):
        tensor._rebind(new if id(tensor) in requiring or len(traced) == 1 else new.detach())
    flags = [any(getattr(x, "requires_grad", False) for x in column) for column, d in zip(columns, types, strict=True)
             if d]
    given = iter([x if flag else x.detach() for x, flag in zip(outputs[:count], flags, strict=True)])
    return traced[0].structure.build(next(given) if dtype else x
                                     for x, dtype in zip(traced[0].leaves, types, strict=True))


def _traced(name: str, side: str, function: Function, operands: Sequence[Any]) -> TracedFunction:
    """One of several functions; what it raises is no error where another is taken, as it is for no rows."""
    try:
        return trace_branch(side.replace("the ", "").replace(" ", "_"), function, *operands)
    except TenonError as error:
        if recorder.get() is None:
            raise
        raise UnsafeCall(f"{side} of tn.{name} raises {type(error).__name__}: {error}") from error


def together(branches: Sequence[Branch], results: Sequence[Sequence[Value]]) -> Graphs:
    """The branches as graphs on everything that any of them reads."""
    read = [{id(holder): (param, holder) for param, holder in branch.read} for branch in branches]
    holders = {key: holder for group in read for key, (_, holder) in group.items()}
    graphs = []
    for branch, group, out in zip(branches, read, results, strict=True):
        params = [group[key][0] if key in group else Value(type_of(holder)) for key, holder in holders.items()]
        graphs.append(branch.graph(params, out))
    return Graphs(tuple(graphs), [interpreter().lift(x) for x in holders.values()])


def type_of(holder: Any) -> Any:
    """The type of a tensor or an array, as the program around a branch sees it."""
    return interpreter().lift(holder).type


