"""Expression swell: the symbolic derivative of a formula grows much faster than the gradient of a graph.

The logistic map l1 = x, l(n+1) = 4 l(n) (1 - l(n)), from Baydin et al., "Automatic differentiation in machine
learning: a survey", 2018.

    python examples/expression_swell.py
"""

from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon.autodiff import gradient_graph
from tenon.debug.console import table
from tenon.graph.build import trace
from tenon.types import TensorType, float64


def logistic(n: int) -> Callable[[Any], Any]:
    """The function l(n)."""
    def iterated(x: Any) -> Any:
        for _ in range(n - 1):
            x = 4 * x * (1 - x)
        return x
    return iterated


def measure(n: int, x: float = 0.3) -> tuple[float, ...]:
    """Sizes of both derivatives of l(n), and their values at x."""
    formula = tn.debug.expression(logistic(n))
    derivative = formula.derivative("x")
    graph = gradient_graph(trace(logistic(n), TensorType(float64, ())))
    automatic = tn.grad(logistic(n))(tn.tensor(x, dtype=float64)).item()
    return n, formula.size, derivative.size, len(graph.nodes), derivative.evaluate(x=x), automatic


def main(largest: int = 6) -> list[tuple[float, ...]]:
    rows = [measure(n) for n in range(1, largest + 1)]
    columns = ["n", "formula", "symbolic", "nodes of the graph", "symbolic value", "automatic value"]
    table("Size of the derivative of l(n)", columns, rows)
    print("\nl2' =", tn.debug.expression(logistic(2)).derivative("x"))
    print("l3' =", tn.debug.expression(logistic(3)).derivative("x"))
    return rows


if __name__ == "__main__":
    main()
