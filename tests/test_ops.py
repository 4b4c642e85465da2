"""Every operator against its own definition, from the examples beside it: types, text, values, gradients.

Everything here runs by NumPy; test_compiled.py compares machine code with it.
"""

from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest

import tenon as tn
from operator_examples import (
    OPERATORS,
    SWEEP,
    arguments,
    call,
    close,
    differentiable,
    gradient_of,
    graph_of,
    listed,
    many,
    succeeding,
    weighted,
    with_floats,
)
from tenon.errors import DTypeError, TenonError
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_example, parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.records import replace
from tenon.types import TensorType, as_dtype, float64

# ---------------------------------------------------------------- tests made from examples

@pytest.mark.parametrize("text", list(listed()))
def test_the_type_rule_gives_what_the_example_says(text: str) -> None:
    example = parse_example(text)
    if example.outputs is None:
        with pytest.raises(TenonError):
            graph_of(example)
    else:
        graph = verify(graph_of(example))
        assert tuple(r.type for r in graph.results) == example.outputs


@pytest.mark.parametrize("text", succeeding())
def test_the_text_parses_back(text: str) -> None:
    shown = print_graph(graph_of(parse_example(text)), locations=False)
    assert print_graph(verify(parse_graph(shown)), locations=False) == shown


@pytest.mark.parametrize("text", succeeding())
def test_eager_and_reference_agree(text: str) -> None:
    example = parse_example(text)
    arrays = arguments(example)
    eager = [t.numpy() for t in many(call(example, example.inputs, tuple(map(tn.asarray, arrays))))]
    graph = graph_of(example)
    for got, reference, type in zip(eager, interpret(graph, arrays), example.outputs or (), strict=True):
        close(got, reference, type.dtype)
        assert not np.isnan(reference.astype(np.complex128)).any() or not got.size


def with_floats_for_integers(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(with_floats_for_integers, value))
    return float(value) if type(value) is int else value


@pytest.mark.parametrize("text", succeeding())
def test_attributes_of_a_wrong_kind_change_no_later_call(text: str) -> None:
    """1 == 1.0 where they are keys of what is remembered."""
    example = parse_example(text)
    tensors = tuple(map(tn.asarray, arguments(example)))
    wrong = replace(example, attrs={k: with_floats_for_integers(v) for k, v in example.attrs.items()})
    for one in (wrong, wrong, example):
        with nullcontext() if one is example else suppress(TenonError):
            results = many(call(one, one.inputs, tensors))
    assert tuple(r.type for r in results) == example.outputs


@pytest.mark.parametrize("run", [lambda f: f, tn.jit])
@pytest.mark.parametrize("first, then", [(2, 2.0), (2.0, 2), (0, False), (0.0, -0.0), (np.float32(0), 0)])
def test_a_composite_is_remembered_for_its_very_attributes(first: Any, then: Any, run: Any) -> None:
    """1 == 1.0 == True and 0.0 == -0.0, but they are other numbers."""
    x = tn.tensor([3, -2])
    for number in (first, first, then, then):
        found = run(lambda x, number=number: tn.addcmul(x, x, x, value=number))(x)
        assert found.dtype is (x + x * x * number).dtype
        found = run(lambda x, number=number: tn.nn.functional.threshold(x, 5.0, number))(x.astype(tn.float32))
        assert np.signbit(found.numpy()).tolist() == [np.signbit(float(number))] * 2


def test_counts_of_places_are_integers() -> None:
    """True is remembered as 1, and a call that failed leaves nothing behind."""
    x = tn.tensor([[1.0, 4.0], [3.0, 2.0]])
    for count in (1.0, True, 1, 1.0, True, 1, True, 1):
        if type(count) is float:
            with pytest.raises(TenonError, match="a size must be an integer"):
                tn.topk(x, count)
        else:
            assert tn.topk(x, count)[0].tolist() == [[4.0], [3.0]]
            assert tn.kthvalue(x, count)[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("short", SWEEP)
@pytest.mark.parametrize("text", succeeding())
def test_element_types(text: str, short: str) -> None:
    example = parse_example(text)
    dtype = as_dtype(short)
    floats = [t for t in example.inputs if isinstance(t, TensorType) and t.dtype.is_floating]
    if not floats or "dtype" in example.attrs:
        return
    inputs = with_floats(example, dtype)
    try:
        graph = graph_of(example, inputs)
    except DTypeError:
        return      # the operator does not take this type, and says so
    arrays = arguments(example, inputs)
    eager = [t.numpy() for t in many(call(example, inputs, tuple(map(tn.asarray, arrays))))]
    types = [r.type for r in graph.results]
    for got, reference, type in zip(eager, interpret(graph, arrays), types, strict=True):
        close(got, reference, type.dtype)


# ---------------------------------------------------------------- gradients

def central_differences(fn: Any, arrays: list[np.ndarray], which: int, step: float = 1e-6) -> np.ndarray:
    out = np.zeros(arrays[which].shape)
    for index in np.ndindex(*out.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[which][index] += sign * step
            ends.append(fn(moved))
        out[index] = (ends[0] - ends[1]) / (2 * step)
    return out


@pytest.mark.parametrize("text", differentiable())
def test_gradient_is_the_central_difference(text: str) -> None:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = arguments(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]

    def value(moved: list[np.ndarray]) -> float:
        return float(weighted(example, inputs, tuple(map(tn.asarray, moved))).item())

    tensors = [tn.tensor(a, requires_grad=k in chosen) for k, a in enumerate(arrays)]
    loss = weighted(example, inputs, tuple(tensors))
    if loss.requires_grad:
        loss.backward()
    by_graph = interpret(verify(gradient_of(example, inputs, chosen)), arrays)[1:]
    for k, from_graph in zip(chosen, by_graph, strict=True):
        expected = central_differences(value, arrays, k)
        grad = tensors[k].grad
        on_tape = np.zeros(arrays[k].shape) if grad is None else grad.numpy()
        np.testing.assert_allclose(on_tape, expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(from_graph, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("text", differentiable())
def test_second_derivative_is_the_central_difference_of_the_first(text: str) -> None:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = arguments(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]
    directions = [np.random.default_rng(7 + k).uniform(0.5, 1.5, arrays[k].shape) for k in chosen]

    def slope(moved: list[np.ndarray]) -> tuple[Any, list[Any]]:
        """The derivative along the directions, and the tensors it was taken at."""
        tensors = [tn.tensor(a, requires_grad=k in chosen) for k, a in enumerate(moved)]
        loss = weighted(example, inputs, tuple(tensors))
        if not loss.requires_grad:
            return tn.zeros((), dtype=float64), tensors
        loss.backward(create_graph=True)
        total: Any = tn.zeros((), dtype=float64)
        for k, u in zip(chosen, directions, strict=True):
            grad, tensors[k].grad = tensors[k].grad, None
            total = total if grad is None else total + (grad * u).sum()
        return total, tensors

    total, tensors = slope(arrays)
    if total.requires_grad:
        total.backward()
    along = sum(float((t.grad.numpy() * u).sum()) for t, u in
                ((tensors[k], u) for k, u in zip(chosen, directions, strict=True)) if t.grad is not None)
    ends = [float(slope([a + sign * 1e-6 * directions[chosen.index(k)] if k in chosen else a
                         for k, a in enumerate(arrays)])[0].item()) for sign in (1, -1)]
    np.testing.assert_allclose(along, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-6)


def test_every_operator_has_an_example_and_a_text() -> None:
    graphs = {"body", "true", "branches"}       # attributes that a line of text cannot hold
    assert not [op.name for op in OPERATORS
                if not op.doc or (not op.examples and graphs.isdisjoint(op.signature.attrs))]
