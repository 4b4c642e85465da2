"""Conditions on sizes under which a function was captured -> those that matter, and captures for the others.

Where a batch `f32[B, 8]` meets a bias `f32[8]`, a rule asks whether B is 8, and the capture holds where it is not.  The
graph is mostly right for 8 too: a capture of that size is the same graph, with numbers in it.  Then the condition is
dropped.  Where it is another graph, since the function asked itself, that becomes a variant of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tenon.dims.size_assumptions import Assumptions, solution, told_by
from tenon.dims.symbolic_dim import SMALLEST_SYMBOLIC_SIZE, Dim, evaluate, symbols
from tenon.errors import TenonError
from tenon.graph.text import print_graph
from tenon.graph.verify import sized
from tenon.records import replace
from tenon.serialization.input_types import Sample
from tenon.serialization.saved_function import Variant

Capturing = Callable[[Sample, Mapping[str, int]], list[Variant]]
Asked = tuple[Dim, str, Dim]
MAX_ASKED = 32          # conditions of one function that are looked at: each is a capture


def without_conditions(variants: Sequence[Variant], sample: Sample, capturing: Capturing) -> list[Variant]:
    """These variants, all for the same types, with fewer conditions, and those for sizes that need their own."""
    if any(variant.types != variants[0].types for variant in variants):
        return [*variants]
    sample = replace(sample, types=dict(zip(sample.types, variants[0].types, strict=True)))
    sizes = {name: variants[0].assumptions.sizes[name] for name in sample.symbols}
    asked = dict.fromkeys(x for variant in variants for x, answer in variant.assumptions.recorded.items()
                          if x[1] == "==" and not answer)
    dropped: set[Asked] = set()
    more: list[Variant] = []
    for left, relation, right in list(asked)[:MAX_ASKED]:
        solved = _solved(left - right, sizes)
        if solved is None or not symbols(solved[1]) <= sizes.keys():
            continue
        name, value = solved
        numbers = {**sizes, name: evaluate(value, sizes)}
        try:
            if numbers[name] < SMALLEST_SYMBOLIC_SIZE or _same(variants, sample, numbers, capturing):
                dropped.add((left, relation, right))
            else:
                more += capturing(sample.with_sizes({name: value}), sizes)
        except TenonError:
            continue        # the function takes no such sizes
    return [*(_without(variant, dropped) for variant in variants), *more]


def _solved(difference: Dim, sizes: Mapping[str, int]) -> tuple[str, Dim] | None:
    """A symbol, and what it is where the difference is 0."""
    name = told_by(difference)
    if name is None:
        return solution(difference, sizes)
    low = evaluate(difference, {name: 0})
    size, rest = divmod(-low, evaluate(difference, {name: 1}) - low)
    return None if rest else (name, size)


def _same(variants: Sequence[Variant], sample: Sample, numbers: Mapping[str, int], capturing: Capturing) -> bool:
    """Whether captures for these numbers give the same graphs."""
    others = capturing(sample.with_sizes(numbers), numbers)
    return len(others) == len(variants) and all(
        print_graph(sized(variant.graph, numbers), locations=False) == print_graph(other.graph, locations=False)
        for variant, other in zip(variants, others, strict=True))


def _without(variant: Variant, dropped: set[Asked]) -> Variant:
    kept = {asked: answer for asked, answer in variant.assumptions.recorded.items() if asked not in dropped}
    return replace(variant, assumptions=Assumptions(variant.assumptions.sizes, kept))
