"""The evaluation trace of a scalar function: the table in which textbooks explain automatic differentiation.

    from tenon.debug import evaluation_trace
    print(evaluation_trace(lambda x1, x2: tn.log(x1) + x1 * x2 - tn.sin(x2), 2, 5))

The primal column computes the intermediate values v1, v2 ... from the inputs (v0 is the last of them, v-1 the one
before); the adjoint column goes back and computes the derivative of the result with respect to each.  A. Griewank and
A. Walther, "Evaluating Derivatives", 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.autodiff import pullback
from tenon.capture.jitted import Jitted
from tenon.debug.console import plain_table, table
from tenon.debug.symbolic_derivative import Expression, number, pulled, simplified
from tenon.eager.grad_mode import no_grad
from tenon.eager.tape import TapeNode
from tenon.errors import ArgumentError
from tenon.graph.ir import Literal
from tenon.graph.op import Op
from tenon.ops.creation import ones_like
from tenon.records import dataclass
from tenon.tensor import Tensor, asarray
from tenon.transforms.differentiate import Followed
from tenon.types import float64

COLUMNS = ("", "primal", "value", "", "adjoint", "value")


@dataclass(frozen=True)
class TraceRow:
    """One line of a column: a variable, the formula it is computed by, and its value."""

    name: str
    formula: str
    value: float


@dataclass(frozen=True)
class EvaluationTrace:
    """Both columns, in the order in which they are computed."""

    primals: tuple[TraceRow, ...]
    adjoints: tuple[TraceRow, ...]
    inputs: tuple[str, ...]

    @property
    def result(self) -> float:
        """The value of the function."""
        return self.primals[-1].value

    @property
    def gradients(self) -> tuple[float, ...]:
        """The derivative with respect to each input."""
        last = {row.name: row.value for row in self.adjoints}
        return tuple(last.get(name + "'", 0.0) for name in self.inputs)

    def rows(self) -> list[tuple[str, ...]]:
        """The lines of the table: primals on the left, adjoints on the right."""
        count = max(len(self.primals), len(self.adjoints))
        sides = [[(row.name, row.formula, f"{row.value:.10g}") for row in column]
                 + [("", "", "")] * (count - len(column)) for column in (self.primals, self.adjoints)]
        return [(*left, *right) for left, right in zip(*sides, strict=True)]

    def show(self) -> None:
        """Print the table."""
        table("Evaluation trace", COLUMNS, self.rows())

    def __str__(self) -> str:
        return plain_table("Evaluation trace", COLUMNS, self.rows())


def evaluation_trace(f: Callable[..., Any], *inputs: Any) -> EvaluationTrace:
    """Both columns of the trace of `f` at these numbers, in float64.

    Any scalar program will do, with Python's own branches and loops, jitted or not.  Raises ArgumentError where it
    computes anything but scalars, or calls another jitted function, which is one step.

    >>> from tenon.debug import evaluation_trace
    >>> print(evaluation_trace(lambda x: x * tn.sin(x), 2.0))
    Evaluation trace
        primal   value              adjoint                      value
    --  -------  ------------  ---  -------------------  -------------
    v0  x1       2             v2'  1                                1
    v1  sin(v0)  0.9092974268  v0'  v2' * v1              0.9092974268
    v2  v0 * v1  1.818594854   v1'  v2' * v0                         2
                               v0'  v0' + v1' * cos(v0)  0.07700375373
    """
    leaves = [asarray(x, dtype=float64) for x in inputs]
    f = f.function if isinstance(f, Jitted) else f
    run = Followed(lambda forks: f(*forks), leaves)
    if not isinstance(run.result, Tensor):
        raise ArgumentError(f"evaluation_trace: the function returned {type(run.result).__name__}, not a tensor")
    forks = [node for node, _ in run.slots]
    nodes = by_depth([check_operator(node) for node in run.tape([run.result]) if node not in forks])
    names = {slot: f"v{k + 1 - len(leaves)}" for k, slot in enumerate(run.slots)}
    primals = [TraceRow(names[slot], f"x{k + 1}", check_scalar(x))
               for k, (slot, x) in enumerate(zip(run.slots, leaves, strict=True))]
    for k, node in enumerate(nodes):
        names[node.slots[0]] = f"v{k + 1}"
        formula = simplified_text(node, names)
        primals.append(TraceRow(f"v{k + 1}", formula, check_scalar(node.outputs[0], node)))
    result_name = names.get(run.result.slot)
    adjoints = adjoint_rows(nodes, names, run.result) if result_name else []
    return EvaluationTrace(tuple(primals), tuple(adjoints), tuple(names[slot] for slot in run.slots))


def by_depth(nodes: list[TapeNode]) -> list[TapeNode]:
    """The nodes, those first that need fewer steps before them: the order of the textbook, not of Python."""
    depth: dict[TapeNode, int] = {}
    for node in nodes:
        made_by = [x.node for x in node.inputs if isinstance(x, Tensor) and x.node is not None]
        depth[node] = 1 + max((depth.get(earlier, 0) for earlier in made_by), default=0)
    return sorted(nodes, key=lambda node: (depth[node], node.number))


def adjoint_rows(nodes: list[TapeNode], names: dict[Any, str], result: Tensor) -> list[TraceRow]:
    """The reverse column: each line adds what one use of a variable gives to its adjoint."""
    adjoints: dict[Any, Tensor] = {result.slot: ones_like(result)}
    rows = [TraceRow(names[result.slot] + "'", "1", 1.0)]
    with no_grad():
        for node in reversed(nodes):
            slot = node.slots[0]
            if slot not in adjoints:
                continue
            gradients = pullback(node, [adjoints[slot]])
            formulas = pulled_texts(node, names)
            for x, gradient, formula in zip(node.inputs, gradients, formulas, strict=True):
                if not isinstance(x, Tensor) or x.slot not in names or gradient is None:
                    continue
                gradient = gradient if isinstance(gradient, Tensor) else gradient()
                name, before = names[x.slot] + "'", adjoints.get(x.slot)
                adjoints[x.slot] = gradient if before is None else before + gradient
                rows.append(TraceRow(name, formula if before is None else joined(name, formula),
                                     float(adjoints[x.slot])))
    return rows


def joined(name: str, formula: str) -> str:
    """The sum of an adjoint so far and what is added to it."""
    return f"{name} - {formula[1:]}" if formula.startswith("-") else f"{name} + {formula}"


def simplified_text(node: TapeNode, names: dict[Any, str]) -> str:
    """The formula of a node in the names of its inputs."""
    return str(simplified(node.op, operands(node, names))) if not node.attrs else node.op.name  # type: ignore[arg-type]


def pulled_texts(node: TapeNode, names: dict[Any, str]) -> list[str]:
    """The formulas of what a node adds to the adjoint of each input."""
    name = names[node.slots[0]]
    return [str(e) for e in pulled(node.op, Expression(name + "'"), Expression(name), operands(node, names))]  # type: ignore[arg-type]


def operands(node: TapeNode, names: dict[Any, str]) -> tuple[Expression, ...]:
    """The inputs of a node: by name, or a number where they do not depend on the inputs of the function."""
    found = []
    for x in node.inputs:
        if isinstance(x, Literal):
            found.append(number(x))
        elif isinstance(x, Tensor):
            found.append(Expression(names[x.slot]) if x.slot in names else Expression(check_scalar(x, node)))
    return tuple(found)


def check_operator(node: TapeNode) -> TapeNode:
    """The node; raises ArgumentError where it is the call of a whole function."""
    if not isinstance(node.op, Op):
        raise ArgumentError(f"evaluation_trace shows operators, and {node.op.name} is one step of many",
                            hint="call the function without its decorator: f.function")
    return node


def check_scalar(x: Tensor, node: TapeNode | None = None) -> float:
    """The value of a scalar; raises ArgumentError for anything else."""
    if x.shape != ():
        what = f"{node.op.name} gives or takes" if node else "an input is"
        raise ArgumentError(f"evaluation_trace shows scalar functions, and {what} {x.type}")
    return float(x)
