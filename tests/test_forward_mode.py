"""Products with Jacobians and Hessians of every operator, eager and compiled, against central differences in float64.

Made from the examples beside the operators, in float64 and, where they take them, of complex numbers.  A product with a
Jacobian is the pullback's own pullback at zero, so a gradient rule that is no linear function of the gradient it is
given, as a graph, shows here.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tenon as tn
from operator_examples import arguments, call, graph_of, many, succeeding, with_floats
from tenon.errors import GradientError, TenonError
from tenon.graph.op import OPS, Op
from tenon.graph.text import parse_example
from tenon.types import DType, TensorType, complex128, float64

STEP = 1e-6
Arrays = list[np.ndarray]


def fractional(type: Any) -> bool:
    """Of real or complex numbers."""
    return isinstance(type, TensorType) and type.dtype.kind in "fc"


def drawn(seed: int, like: np.ndarray | Any) -> np.ndarray:
    """Numbers of the same kind."""
    data, shape = np.random.default_rng(seed), [int(n) for n in like.shape]
    real = data.uniform(-1.5, 1.5, shape)
    return real + 1j * data.uniform(-1.5, 1.5, shape) if like.dtype.kind == "c" else real


class Case:
    """An example in float64, or of complex numbers: a function of its fractional arguments, a place, a direction."""

    def __init__(self, text: str, dtype: DType = float64) -> None:
        self.example = parse_example(text)
        self.inputs = tuple(t.with_dtype(complex128) if fractional(t) and t.dtype.kind == "c" else t
                            for t in with_floats(self.example, dtype))
        self.arrays = arguments(self.example, self.inputs)
        self.chosen = [k for k, a in enumerate(self.arrays) if a.dtype.kind in "fc"]
        self.place = [self.arrays[k] for k in self.chosen]
        self.direction = [drawn(7 + k, a) for k, a in enumerate(self.place)]

    def outputs(self, *floating: Any) -> tuple[Any, ...]:
        given: list[Any] = [tn.asarray(a) for a in self.arrays]
        for k, x in zip(self.chosen, floating, strict=True):
            given[k] = x
        return tuple(y for y in many(call(self.example, self.inputs, tuple(given))) if y.dtype.kind in "fc")

    def scalar(self, *floating: Any) -> Any:
        """All outputs, bent and weighted: gradients of both signs that change with the place."""
        total: Any = 0.0
        for k, y in enumerate(self.outputs(*floating)):
            total = total + tn.real((y + 0.1 * y * y) * drawn(99 + k, y)).sum()
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


BY_DESIGN = {"stop_gradient": "is said to have none",
             "as_leaf": "has that of what it stands for",
             "svd": "vectors of complex matrices are given up to a factor, which LAPACK draws"}


def smooth() -> list[str]:
    """Examples with a rule or a definition, and fractions on both sides; those that are not public as well."""
    found = []
    for op in OPS.values():
        texts = [] if op.effect or op.name in ("stop_gradient", "as_leaf") or not (op.vjp or op.expand) else op.examples
        for text in (t for t in texts if not t.endswith("-> error")):
            example = parse_example(text)
            if any(map(fractional, example.inputs)) and any(map(fractional, example.outputs or ())):
                found.append(text)
    return found


def of_complex() -> list[str]:
    """Those whose real numbers may be complex."""
    found = []
    for text in smooth():
        example = parse_example(text)
        inputs = with_floats(example, complex128)
        with suppress(TenonError):
            graph_of(example, inputs)
            found += [text] if inputs != example.inputs and example.op.name not in BY_DESIGN else []
    return found


SMOOTH, COMPLEX = smooth(), of_complex()
ALL = bool(os.environ.get("TENON_EXPLORE"))         # compiled too, which takes minutes
COMPILED = SMOOTH if ALL else list({parse_example(text).op: text for text in SMOOTH}.values())


@pytest.mark.parametrize("text", SMOOTH, ids=str)
def test_products_with_the_jacobian_and_the_hessian(text: str) -> None:
    case = Case(text)
    check(case, case.products)


@pytest.mark.parametrize("text", COMPLEX, ids=str)
def test_products_of_complex_numbers(text: str) -> None:
    case = Case(text, complex128)
    check(case, tn.jit(case.products) if ALL else case.products)


@pytest.mark.parametrize("text", COMPILED, ids=str)
def test_compiled_products_with_the_jacobian_and_the_hessian(text: str) -> None:
    case = Case(text)
    check(case, tn.jit(case.products))


def without_product(op: Op) -> str:
    """Why an operator has no product above, or nothing."""
    examples = [parse_example(text) for text in op.examples if not text.endswith("-> error")]
    between = [e for e in examples if any(map(fractional, e.inputs)) and any(map(fractional, e.outputs or ()))]
    if op.effect:
        return "between devices: tests/sharding, tests/distributed"
    if examples and not between:
        return "no fractions go in, or none come out"
    if op.name in BY_DESIGN:
        return BY_DESIGN[op.name]
    if not examples:
        return "holds graphs or stacks, so it has no text: tests/test_control.py, tests/test_transforms.py"
    return "" if op.vjp or op.expand else "has no rule, which is said: test_what_has_no_rule_raises"


def test_every_operator_has_products_or_a_reason() -> None:
    tested = {parse_example(text).op for text in SMOOTH}
    assert [op.name for op in OPS.values() if (op in tested) == bool(without_product(op)) and op.name != "svd"] == []


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
