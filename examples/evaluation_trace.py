"""The evaluation trace of f(x1, x2) = ln x1 + x1 x2 - sin x2 at (2, 5), as textbooks print it.

    python examples/evaluation_trace.py
"""

import tenon as tn


def f(x1: tn.Tensor, x2: tn.Tensor) -> tn.Tensor:
    return tn.log(x1) + x1 * x2 - tn.sin(x2)


def main() -> tn.debug.EvaluationTrace:
    trace = tn.debug.evaluation_trace(f, 2, 5)
    trace.show()
    print(f"\nf = {trace.result}, df/dx1 = {trace.gradients[0]}, df/dx2 = {trace.gradients[1]}")
    return trace


if __name__ == "__main__":
    main()
