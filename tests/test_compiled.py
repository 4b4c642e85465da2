"""Machine code against the reference interpreter: every operator, from the examples beside it.

Compiling is the slow part, so the graphs of many examples are one program.  Where it fails, each example is compiled
alone, and those that fail are named.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings

import tenon as tn
from graphs import arrays_for, assert_close, mixed_graphs
from operator_examples import (
    TOLERANCE,
    arguments,
    close,
    differentiable,
    first_examples,
    gradient_of,
    graph_of,
    succeeding,
    with_floats,
)
from tenon.errors import OutOfRange, TenonError
from tenon.graph.build import Builder, call_graph
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.op import using
from tenon.graph.text import parse_example, print_graph
from tenon.observe import subscribe
from tenon.pipeline import compile
from tenon.types import DType, TensorType, as_dtype, float64

IN_ONE_PROGRAM = 40
WHOLE, FLOATS = ("i8", "bool", "i64", "u8", "i16", "u64", "i32", "u16", "u32"), ("f64", "f16", "bf16")


@dataclass(frozen=True)
class Case:
    """A graph, and arguments for it."""

    name: str
    graph: Graph
    arrays: list[np.ndarray]


# ---------------------------------------------------------------- which graphs

def as_written(text: str, number: int) -> Iterator[Case]:
    example = parse_example(text)
    yield Case(text, graph_of(example), arguments(example))


def with_other_types(text: str, number: int) -> Iterator[Case]:
    """The example in one type of whole numbers and one of floats, which differ from example to example."""
    example = parse_example(text)
    floats = [t for t in example.inputs if isinstance(t, TensorType) and t.dtype.is_floating]
    if floats and "dtype" not in example.attrs:
        for kinds in (WHOLE, FLOATS):
            for short in turned(kinds, number):
                try:
                    inputs = with_floats(example, as_dtype(short))
                    yield Case(f"{text} in {short}", graph_of(example, inputs), arguments(example, inputs))
                except TenonError:
                    continue        # the operator does not take this type, and says so
                break


def turned(listed: Sequence[str], number: int) -> Sequence[str]:
    """The same, starting from another one."""
    start = number % len(listed)
    return [*listed[start:], *listed[:start]]


def gradients(text: str, number: int) -> Iterator[Case]:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = arguments(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]
    yield Case(f"gradient of {text}", gradient_of(example, inputs, chosen), arrays)


def at_the_edges(text: str, number: int) -> Iterator[Case]:
    """An elementwise operator on every combination of the numbers at which something special may happen."""
    example = parse_example(text)
    for shorts in (WHOLE, (*FLOATS, "f32")):
        for short in turned(shorts, number):
            try:
                inputs = with_floats(example, as_dtype(short))
                arrays = combined([special(t.dtype) for t in inputs if isinstance(t, TensorType)])
                given = iter(arrays)
                shaped = tuple(t.with_shape(next(given).shape) if isinstance(t, TensorType) else t for t in inputs)
                yield Case(f"{text} at the edges of {short}", graph_of(example, shaped), arrays)
            except TenonError:
                continue
            break


def special(dtype: DType) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        ends, bits = np.iinfo(dtype.numpy), dtype.bits
        listed = [ends.min, ends.min + 1, 0, 1, 2, 3, bits - 1, bits, bits + 1, ends.max - 1, ends.max]
        return np.array(listed + [-1, -2, -bits] * (dtype.kind == "i"), dtype.numpy)
    positive = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.5, np.inf]
    if dtype.bits > 16:
        ends = np.finfo(dtype.numpy)
        positive += [ends.max, ends.tiny, ends.smallest_subnormal, 1e-20, 1e20, 1e5, 2.0**31, 2.0**62]
    return np.array([*positive, *(-x for x in positive), np.nan]).astype(dtype.numpy)


def combined(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """All pairs; of three or more operands some combinations."""
    if len(values) <= 2:
        return [np.ascontiguousarray(grid.ravel()) for grid in np.meshgrid(*values, indexing="ij")]
    return [np.resize(x, 997) for x in values]


def groups() -> Iterator[Any]:
    elementwise = [p for p in first_examples() if parse_example(p.id).op.elementwise]
    for make, texts in ((as_written, succeeding()), (with_other_types, succeeding()), (gradients, differentiable()),
                        (at_the_edges, elementwise)):
        for first in range(0, len(texts), IN_ONE_PROGRAM):
            listed = [p.id for p in texts[first:first + IN_ONE_PROGRAM]]
            yield pytest.param(make, first, listed, id=f"{make.__name__}-{first}")


# ---------------------------------------------------------------- one program of many

def together(cases: Sequence[Case]) -> Graph:
    """One graph with the nodes of all, side by side."""
    builder, results = Builder("together"), []
    for number, case in enumerate(cases):
        params = [builder.parameter(p.type, f"x{number}_{k}") for k, p in enumerate(case.graph.params)]
        with using(builder):
            results += call_graph(case.graph, params)
    return builder.finish(results)


def run(cases: Sequence[Case]) -> Iterator[list[np.ndarray]]:
    """The results of each case."""
    found = iter(compile(together(cases), backend="cpu").run([a for case in cases for a in case.arrays]))
    for case in cases:
        yield [next(found) for _ in case.graph.results]


def compare(case: Case, found: Sequence[np.ndarray]) -> None:
    """Up to the rounding of the narrowest floats in the graph: a kernel does not round what it does not store."""
    values = [*case.graph.params, *(v for node in case.graph.nodes for v in node.outputs)]
    tolerance = max((TOLERANCE[v.dtype.short] for v in values if v.dtype.bits == 16 and v.dtype.kind == "f"), default=0.0)
    for got, expected, result in zip(found, interpret(case.graph, case.arrays), case.graph.results, strict=True):
        close(got, expected, result.dtype, tolerance)


def problem(case: Case, found: Callable[[], Sequence[np.ndarray]]) -> str | None:
    """What is wrong with a case, if anything."""
    try:
        compare(case, found())
    except Exception as error:      # whatever it is, with the name of the example
        return f"{case.name}\n{type(error).__name__}: {error}"
    return None


def check(cases: Sequence[Case]) -> None:
    """All cases as one program; each alone where that cannot even be run."""
    try:
        problems = [problem(case, lambda found=found: found) for case, found in zip(cases, run(cases), strict=True)]
    except Exception as error:
        problems = [problem(case, lambda case=case: next(run([case]))) for case in cases]
        if not any(problems):
            raise AssertionError("each alone is right, all in one program are not") from error
    wrong = [text for text in problems if text]
    assert not wrong, "\n\n".join([f"{len(wrong)} of {len(cases)} examples", *wrong])


@pytest.mark.parametrize(("make", "first", "texts"), list(groups()))
def test_machine_code_computes_what_the_reference_computes(make: Any, first: int, texts: list[str]) -> None:
    fallen_back = []
    stop = subscribe(lambda event: fallen_back.append(event.fields) if event.name == "no_kernel" else None)
    try:
        check([case for number, text in enumerate(texts, first) for case in make(text, number)])
    finally:
        stop()
    assert not fallen_back, "operators with a compute rule that no kernel was made for"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mixed_graphs(most_nodes=15))
def test_random_programs_compute_what_the_reference_computes(graph: Graph) -> None:
    note(print_graph(graph, locations=False))
    arrays, program = arrays_for(graph), compile(graph, backend="cpu")
    try:
        expected = interpret(graph, arrays)
    except OutOfRange:
        with suppress(OutOfRange):      # a program does not compute what nobody reads, and then finds nothing wrong
            program.run(arrays)
        return
    assert_close(list(program.run(arrays)), expected)


@pytest.mark.parametrize("shape,axis", [((1,), None), ((1, 3), 0), ((3, 1), 1), ((1, 1), None), ((2, 3), 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sum_of_negative_zeros_is_zero_however_few_they_are(shape: tuple[int, ...], axis: int | None, dtype: str) -> None:
    x = tn.full(shape, -0.0, dtype=dtype)
    found = tn.jit(lambda x: (x.sum(axis), tn.mean(x, axis, True)), fullgraph=True)(x)
    assert not any(np.signbit(np.asarray(y.numpy(), np.float64)).any() for y in (*found, x.sum(axis)))
