"""Machine code against the reference interpreter: every operator, from the examples beside it.

Compiling is the slow part, so the graphs of many examples are one program.  Where it fails, each example is compiled
alone, and those that fail are named.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from operator_examples import arguments, close, differentiable, gradient_of, graph_of, succeeding, with_floats
from tenon.errors import TenonError
from tenon.graph.build import Builder, call_graph
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.op import using
from tenon.graph.text import parse_example
from tenon.observe import subscribe
from tenon.pipeline import compile
from tenon.types import TensorType, as_dtype, float64

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
            yield from _in_first_type(text, kinds[number % len(kinds):] + kinds[:number % len(kinds)])


def _in_first_type(text: str, shorts: Sequence[str]) -> Iterator[Case]:
    """The example in the first of the types that the operator takes."""
    example = parse_example(text)
    for short in shorts:
        try:
            inputs = with_floats(example, as_dtype(short))
            yield Case(f"{text} in {short}", graph_of(example, inputs), arguments(example, inputs))
        except TenonError:
            continue
        return


def gradients(text: str, number: int) -> Iterator[Case]:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = arguments(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]
    yield Case(f"gradient of {text}", gradient_of(example, inputs, chosen), arrays)


def groups() -> Iterator[Any]:
    for make, texts in ((as_written, succeeding()), (with_other_types, succeeding()), (gradients, differentiable())):
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
    for got, expected, result in zip(found, interpret(case.graph, case.arrays), case.graph.results, strict=True):
        close(got, expected, result.dtype)


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
