"""A node that made a number which should not be there -> the error: its line, its inputs, and what led to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.debug.array_summary import summary_of
from tenon.errors import Location, TenonError
from tenon.graph.ir import Literal, Node, Value
from tenon.ops.graph_calls import fused

Array = np.ndarray[Any, Any]
LONGEST_CHAIN = 6


class BadNumber(TenonError, ArithmeticError):
    """A value that `tn.debug.check` was told to look for; `operator` made it, in `module` as a path of modules, and
    `place` is the element's index."""

    operator: str = ""
    module: str = ""
    place: tuple[int, ...] = ()

    def made_in(self, module: str) -> BadNumber:
        """The same with the module told."""
        self.module, self.what = module, f"{self.what}, in {module}" if module else self.what
        return self


def bad_number(node: Node, bad: tuple[str, Array], given: Sequence[Any], values: Mapping[Value, Array],
               outside: Around, hint: str | None = None) -> BadNumber:
    """The error of a node that made such a number (what it is, in which elements) of what it was given.

    Of what led to it as much is told as `values` has; `outside` says what parameters of a kernel are around it.
    """
    what, mask = bad
    place = tuple(int(k) for k in np.argwhere(np.atleast_1d(mask))[0])[:mask.ndim]
    where = node.loc
    gradient = where.derives if where is not None else None
    name = f"{node.op.name}: {what}"
    count = f", in {int(mask.sum())} of {mask.size} elements" if mask.ndim else ""
    part = " (in the gradient)" if gradient is not None else ""
    rows = [f"{node.op.name} of {_described(x, a)}" for x, a in zip(node.inputs, given, strict=True) if a is not None]
    rows = [*rows, *_chain(node, values, outside)]
    error = BadNumber(f"{name}{count}{part}", gradient or where, why="\n       ".join(rows) or None,
                      hint=hint or node.op.nan_hint or None)
    error.operator, error.place = node.op.name, place
    return error


def _described(x: Any, array: Any) -> str:
    return repr(x.value) if isinstance(x, Literal) else str(summary_of(np.asarray(array), bins=0))


def _chain(node: Node, values: Mapping[Value, Array], outside: Around) -> Iterator[str]:
    """Where the inputs of an operation come from, operation by operation, back to arguments of the call.

    Of what other kernels made only the place is known; `outside` says what parameters of this one are around it.
    """
    seen: set[Node | Value] = {node}
    pending: list[tuple[Any, Around]] = [(x, outside) for x in node.inputs]
    while pending and len(seen) <= LONGEST_CHAIN:
        first, around = pending.pop(0)
        x, around = _origin(first, around)
        if not isinstance(x, Value) or (x.node or x) in seen:
            continue
        seen.add(x.node or x)
        told = f": {summary_of(np.asarray(values[first]), bins=0)}" if first in values else ""
        if x.node is None:
            yield f"from {x.name or 'an argument'}, which the call is given{told}"
            continue
        if x.node.op.moves not in SILENT and x.node.op.operations != 0:
            yield f"from {x.node.op.name}{_at(x.node.loc)}{told}"
        pending += [(y, around) for y in x.node.inputs]


SILENT = "view", "part", "same"         # which change no number
Around = Mapping[Value, Any]        # parameters of a kernel's body -> what they are around it


def _origin(x: Any, around: Around) -> tuple[Any, Around]:
    """What makes a value: within a kernel, an operation of its body."""
    while isinstance(x, Value):
        if x.node is None and x in around:
            x, around = around[x], {}
        elif x.node is not None and x.node.op is fused:
            body = x.node.attrs["body"]
            x, around = body.results[x.index], dict(zip(body.params, x.node.inputs, strict=True))
        else:
            break
    return x, around


def _at(where: Location | None) -> str:
    return "" if where is None else f" at {where}"


