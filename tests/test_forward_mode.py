"""Products with Jacobians and Hessians of every operator, eager and compiled, against central differences in float64.

Made from the examples beside the operators.  A product with a Jacobian is the pullback's own pullback at zero, so a
gradient rule that is no linear function of the gradient it is given, as a graph, shows here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from operator_examples import arguments, call, differentiable, many, succeeding, with_floats
from tenon.errors import GradientError
from tenon.graph.text import parse_example
from tenon.types import float64

STEP = 1e-6
Arrays = list[np.ndarray]


class Case:
    """An example in float64: a function of its floating arguments, a place, a direction."""

    def __init__(self, text: str) -> None:
        self.example = parse_example(text)
        self.inputs = with_floats(self.example, float64)
        self.arrays = arguments(self.example, self.inputs)
        self.chosen = [k for k, a in enumerate(self.arrays) if a.dtype == np.float64]
        self.place = [self.arrays[k] for k in self.chosen]
        self.direction = [np.random.default_rng(7 + k).uniform(-1.5, 1.5, a.shape) for k, a in enumerate(self.place)]

    def outputs(self, *floating: Any) -> tuple[Any, ...]:
        given: list[Any] = [tn.asarray(a) for a in self.arrays]
        for k, x in zip(self.chosen, floating, strict=True):
            given[k] = x
        return tuple(y for y in many(call(self.example, self.inputs, tuple(given))) if y.dtype.is_floating)

    def scalar(self, *floating: Any) -> Any:
        """All outputs, bent and weighted: gradients of both signs that change with the place."""
        total: Any = 0.0
        for k, y in enumerate(self.outputs(*floating)):
            weights = np.random.default_rng(99 + k).uniform(-1.5, 1.5, [int(n) for n in y.shape])
            total = total + ((y + 0.1 * y * y) * weights).sum()
        return total

    def gradients(self, *floating: Any) -> Any:
        return many(tn.grad(self.scalar, argnums=tuple(range(len(floating))))(*floating))

    def along(self, f: Callable[..., Any]) -> Arrays:
        """How the results of f change along the direction, found by moving."""
        ends = [[np.asarray(y.numpy()) for y in many(f(*(tn.tensor(a + sign * STEP * u) for a, u in
                                                         zip(self.place, self.direction, strict=True))))]
                for sign in (1, -1)]
        with np.errstate(invalid="ignore"):     # beside infinite outputs
            return [(after - before) / (2 * STEP) for after, before in zip(*ends, strict=True)]

    def products(self, *tensors: Any) -> tuple[Any, Any]:
        """The same of the outputs, and of the gradients, found by rules."""
        half = len(tensors) // 2
        place, direction = tensors[:half], tensors[half:]
        return (tn.jvp(self.outputs, place, direction)[1],
                tn.jvp(self.gradients, place, direction)[1])


def check(case: Case, products: Callable[..., Any]) -> None:
    found = products(*map(tn.tensor, case.place), *map(tn.tensor, case.direction))
    for tangents, f in zip(found, (case.outputs, case.gradients), strict=True):
        for tangent, expected in zip(many(tangents), case.along(f), strict=True):
            moves = np.isfinite(expected)       # not where the output is infinite, whichever way one goes
            scale = max(1.0, np.abs(expected[moves]).max(initial=0.0))
            np.testing.assert_allclose(tangent.numpy()[moves], expected[moves], rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("text", differentiable())
def test_products_with_the_jacobian_and_the_hessian(text: str) -> None:
    case = Case(text)
    check(case, case.products)


ONE_OF_EACH = list({parse_example(p.id).op: p for p in differentiable()}.values())


@pytest.mark.parametrize("text", ONE_OF_EACH)
def test_compiled_products_with_the_jacobian_and_the_hessian(text: str) -> None:
    case = Case(text)
    check(case, tn.jit(case.products))


WITHOUT_RULE = [p for p in succeeding() if (op := parse_example(p.id).op).vjp is None and op.expand is None]


def test_what_has_no_rule_raises() -> None:
    """An operator from floating to floating elements is differentiated by a rule, or not at all."""
    silent = []
    for text in (p.id for p in WITHOUT_RULE):
        case = Case(text)
        if not case.chosen or not any(t.dtype.is_floating for t in case.example.outputs or ()):
            continue
        try:
            tn.jvp(case.outputs, tuple(map(tn.tensor, case.place)), tuple(map(tn.tensor, case.direction)))
        except GradientError:
            continue
        silent.append(text)
    assert not silent
