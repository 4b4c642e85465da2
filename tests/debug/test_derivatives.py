"""The three ways to differentiate, looked at: traces, formulas, differences."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.autodiff import gradient_graph
from tenon.debug import evaluation_trace, expression, gradcheck, gradgradcheck
from tenon.errors import ArgumentError, GradientError
from tenon.graph.build import trace
from tenon.types import TensorType, float64

# ---------------------------------------------------------------- the evaluation trace


def textbook(x1: Any, x2: Any) -> Any:
    return tn.log(x1) + x1 * x2 - tn.sin(x2)


def test_requirement_35_has_every_number() -> None:
    found = evaluation_trace(textbook, 2, 5)
    primals = {row.name: row.value for row in found.primals}
    assert list(primals) == ["v-1", "v0", "v1", "v2", "v3", "v4", "v5"]
    assert primals == {"v-1": 2.0, "v0": 5.0, "v1": math.log(2), "v2": 10.0, "v3": math.sin(5), "v4": math.log(2) + 10,
                       "v5": 11.652071455223084}
    assert [round(primals[v], 6) for v in ("v1", "v3", "v4")] == [0.693147, -0.958924, 10.693147]
    adjoints = [(row.name, row.value) for row in found.adjoints]
    assert adjoints[:5] == [("v5'", 1.0), ("v4'", 1.0), ("v3'", -1.0), ("v1'", 1.0), ("v2'", 1.0)]
    assert [value for name, value in adjoints if name == "v0'"] == [-math.cos(5), 1.7163378145367738]
    assert [value for name, value in adjoints if name == "v-1'"] == [5.0, 5.5]
    assert found.gradients == (5.5, 1.7163378145367738)
    assert found.result == 11.652071455223084


def test_the_table_is_that_of_the_textbook() -> None:
    assert str(evaluation_trace(textbook, 2, 5)) == """\
Evaluation trace
     primal    value                adjoint                   value
---  --------  -------------  ----  ----------------  -------------
v-1  x1        2              v5'   1                             1
v0   x2        5              v4'   v5'                           1
v1   log(v-1)  0.6931471806   v3'   -v5'                         -1
v2   v-1 * v0  10             v1'   v4'                           1
v3   sin(v0)   -0.9589242747  v2'   v4'                           1
v4   v1 + v2   10.69314718    v0'   v3' * cos(v0)     -0.2836621855
v5   v4 - v3   11.65207146    v-1'  v2' * v0                      5
                              v0'   v0' + v2' * v-1     1.716337815
                              v-1'  v-1' + v1' / v-1            5.5"""


def test_any_scalar_program_has_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        for _ in range(3):
            x = x * y if float(x) < 10 else tn.relu(x - 2.0)
        return tn.tanh(x / 8.0) + tn.maximum(x, y) ** 2.0
    found = evaluation_trace(program, 1.5, 3.0, 7.0)
    expected = tn.grad(program, argnums=(0, 1, 2))(*(tn.tensor(v, dtype="float64") for v in (1.5, 3.0, 7.0)))
    np.testing.assert_allclose(found.gradients, [float(g) for g in expected])
    found.show()
    assert "relu(v" in capsys.readouterr().out


def test_a_trace_of_a_constant_and_of_an_argument() -> None:
    assert evaluation_trace(lambda x: tn.tensor(2.0), 3.0).gradients == (0.0,)
    assert evaluation_trace(lambda x: x, 3.0).gradients == (1.0,)


def test_traces_of_other_programs_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"scalar functions, and broadcast_to gives or takes f64\[3\]"):
        evaluation_trace(lambda x: tn.exp(tn.broadcast_to(x, shape=(3,))).sum(), 1.0)
    with pytest.raises(ArgumentError, match=r"an input is f64\[2\]"):
        evaluation_trace(lambda x: x.sum(), [1.0, 2.0])


# ---------------------------------------------------------------- formulas

def logistic(n: int) -> Any:
    def iterated(x: Any) -> Any:
        for _ in range(n - 1):
            x = 4 * x * (1 - x)
        return x
    return iterated


def test_requirement_40_the_formula_swells_and_the_graph_does_not() -> None:
    formulas = [expression(logistic(n)) for n in range(1, 6)]
    sizes = [f.derivative("x").size for f in formulas]
    nodes = [len(gradient_graph(trace(logistic(n), TensorType(float64, ()))).nodes) for n in range(1, 6)]
    assert all(b > 2.5 * a for a, b in pairwise(sizes[1:]))
    assert len({b - a for a, b in pairwise(nodes[1:])}) == 1


@pytest.mark.parametrize("x", [0.1, 0.3, 0.77])
def test_the_formula_of_requirement_40_and_its_derivative_have_the_right_values(x: float) -> None:
    l4 = expression(logistic(4))
    assert l4.evaluate(x=x) == pytest.approx(64 * x * (1 - x) * (1 - 2 * x) ** 2 * (1 - 8 * x + 8 * x * x) ** 2)
    expected = float(tn.grad(logistic(4))(tn.tensor(x, dtype="float64")))
    assert l4.derivative("x").evaluate(x=x) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("f", "text"), [
    (lambda x: x, "1"), (lambda x: x * x, "x + x"), (lambda x: 3 * x - 2, "3"), (lambda x: tn.exp(x), "exp(x)"),
    (lambda x: tn.log(x), "1 / x"), (lambda x: tn.cos(x), "-sin(x)"), (lambda x: x ** 3, "3 * x**2"),
    (lambda x: tn.sin(2 * x), "cos(2 * x) * 2"), (lambda x, y: x * y, "y"), (lambda x: 5.0 + 0 * x, "0"),
])
def test_derivatives_as_text(f: Any, text: str) -> None:
    assert str(expression(f).derivative("x")) == text


def test_parentheses_stand_where_they_are_needed() -> None:
    f = expression(lambda a, b, c: a - (b - c) + (a + b) * c / (a * b) - (-a) ** 2.0)
    text = str(f)
    assert text == "a - (b - c) + (a + b) * c / (a * b) - (-a)**2"
    values = {"a": 2.0, "b": 3.0, "c": 5.0}
    assert eval(text, values) == pytest.approx(f.evaluate(a=2.0, b=3.0, c=5.0))


def two_arms(x: Any) -> Any:
    if x > 0:
        return x * x
    return tn.sin(x)


@pytest.mark.parametrize("f", [two_arms, tn.jit(two_arms), lambda x: x * x if x > 0 else tn.sin(x),
                               lambda x: tn.cond(x > 0, lambda v: v * v, tn.sin, x)])
def test_a_branch_is_a_choice_between_its_arms(f: Any) -> None:
    formula = expression(f)
    for x in (1.5, -1.5):
        assert formula.evaluate(x=x) == pytest.approx(float(two_arms(tn.tensor(x, dtype="float64"))))
        assert formula.derivative("x").evaluate(x=x) == pytest.approx(2 * x if x > 0 else np.cos(x))


def test_what_is_returned_may_be_a_parameter_or_a_number() -> None:
    k = tn.tensor(3.0, dtype="float64")
    for f, text in ((lambda x: x, "x"), (lambda x: 5.0, "5"), (lambda x: k, "3"), (lambda x: x * k, "x * 3"),
                    (lambda x: x if x > 0 else 5.0, "where(greater(x, 0), x, 5)")):
        assert str(expression(f)) == text
    with pytest.raises(ArgumentError, match="a number, not 2 things"):
        expression(lambda x: (x, x))


def doubled(x: Any) -> Any:
    while x < 10:
        x = x * 2
    return x


def test_formulas_of_other_programs_are_refused() -> None:
    for f in (doubled, tn.jit(doubled)):
        with pytest.raises(ArgumentError, match="not while_loop"):
            expression(f)
    counts: list[int] = []
    with pytest.raises(ArgumentError, match="does nothing else"):
        expression(lambda x: counts.append(1) or x)
    with pytest.raises(ArgumentError, match="a formula has scalars"):
        expression(lambda x: tn.broadcast_to(x, shape=(3,)).sum())
    with pytest.raises(ArgumentError, match="the symbol y has no value"):
        expression(lambda x, y: x * y).evaluate(x=1.0)


def test_the_trace_of_a_jitted_function_is_that_of_the_function() -> None:
    assert str(evaluation_trace(tn.jit(two_arms), 2.0)) == str(evaluation_trace(two_arms, 2.0))
    inner = tn.jit(two_arms)
    with pytest.raises(ArgumentError, match="one step of many"):
        evaluation_trace(lambda x: inner(x) + x, 2.0)


# ---------------------------------------------------------------- differences

def test_gradients_that_are_right() -> None:
    x = tn.tensor([[0.5, -1.0], [2.0, 0.3]])
    assert gradcheck(lambda x: tn.tanh(x @ x), x)
    assert gradcheck(lambda d, k: (d["a"] * k, d["a"].sum(), "text"), ({"a": x, "n": 3}, 2.0))
    assert gradgradcheck(lambda x: tn.tanh(x @ x), (x,))
    assert gradcheck(tn.jit(lambda x: tn.softmax(x, axis=0) * x), (x,))


def test_complex_gradients() -> None:
    z = tn.tensor([1 + 2j, -0.5 + 0.1j])
    assert gradcheck(lambda z: z * z * tn.conj(z), z)
    assert gradcheck(lambda z: tn.exp(z) / z, z)
    assert gradcheck(lambda z: tn.abs(z), z)
    assert gradgradcheck(lambda z: z * z * z, z)


@pytest.fixture
def wrong() -> Any:
    return tn.op("test_wrong", type=lambda x: x, ref=lambda x: x ** 2, vjp=lambda g, y, x: (2.5 * g * x,),
                 elementwise=True, replace=True)


def test_a_wrong_gradient_is_named(wrong: Any) -> None:
    with pytest.raises(GradientError) as caught:
        gradcheck(lambda k, d: (k * 1.0, wrong(d["a"])), (1.0, {"a": tn.tensor([[1.0, 2.0, -4.0]])}))
    assert "3 of 16 derivatives are wrong; the worst, of result 1[0, 2] with respect to input 1[0, 2], is -10, and " \
           "the central difference is -8" in str(caught.value)


def test_a_wrong_second_gradient_is_found() -> None:
    f = tn.custom_vjp(lambda x: x ** 3)
    f.defvjp(lambda x: (x ** 3, x.detach()), lambda x, g: (3 * x * x * g,))
    x = tn.tensor([1.0, 2.0])
    assert gradcheck(f, x)
    with pytest.raises(GradientError, match="derivatives are wrong"):
        gradgradcheck(f, x)


def test_nan_is_wrong() -> None:
    f = tn.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda kept, g: (g * math.nan,))
    with pytest.raises(GradientError, match="is nan"):
        gradcheck(f, tn.tensor([1.0]))


def test_nothing_to_check_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="no input has floating elements"):
        gradcheck(lambda x: x, tn.tensor([1]))
    with pytest.raises(ArgumentError, match="returned nothing with floating elements"):
        gradcheck(lambda x: x > 0, tn.tensor([1.0]))
