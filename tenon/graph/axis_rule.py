"""Which axes of an operator's inputs and outputs go together: what may be split over devices.

    AxisRule(inputs=(("i", "k"), ("k", "j")), outputs=(("i", "j"),), combined={"k": "add"})     # a matrix product

Axes with one label are cut at the same places; what a device computes from its parts is then its part of the result.
A label that no output has is combined: the results of the parts are added up (or what else is named).  An axis without
a label (None) has to be whole.  Einsum's letters mean the same; Shardy's factors are these labels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from tenon.records import dataclass, field

Label = Hashable
Labels = tuple[Label, ...]                      # one an axis, None for an axis that is whole
Monomial = frozenset[tuple[int, int]]           # (input, its power: 1, or 2 for whatever is not linear)
Terms = frozenset[Monomial]                     # what an output is a sum of


@dataclass(frozen=True)
class AxisRule:
    """How an operator may be computed part by part; see the module's text."""

    inputs: tuple[Labels, ...]
    outputs: tuple[Labels, ...]
    combined: Mapping[Label, str] = field(default_factory=dict)     # a label of inputs alone -> add, max, min ...
    terms: Terms | None = None          # None where the operator is linear in none of its inputs

    def is_linear_in(self, inputs: Collection[int]) -> bool:
        """Whether the results for sums of these inputs, the others fixed, are the sums of the results."""
        return self.terms is not None and all(
            sum(k in inputs for k, _ in term) == 1 and all(power == 1 for k, power in term if k in inputs)
            for term in self.terms)

    def labels(self) -> list[Label]:
        """Every label, in order of first appearance."""
        axes = [label for labels in (*self.inputs, *self.outputs) for label in labels if label is not None]
        return list(dict.fromkeys(axes))


def rows(inputs: Sequence[Any], outputs: Sequence[int], whole: Collection[int] = (), last: int = 0) -> AxisRule:
    """The rule of what is done to every row apart: axes of one number go together but those that are `whole`, and the
    `last` ones.

    `inputs` are types (None for one left out), `outputs` numbers of axes.
    """
    def labels(ndim: int) -> Labels:
        return tuple(None if k in whole or k >= ndim - last else k for k in range(ndim))
    return AxisRule(tuple(() if x is None else labels(x.ndim) for x in inputs), tuple(map(labels, outputs)))


def linear_in(*inputs: int) -> Terms:
    """The terms of an operator that is linear in these inputs together."""
    return frozenset(frozenset([(k, 1)]) for k in inputs)


# ---------------------------------------------------------------- rules of whole families, as fields of `Op`

def beside_axis(outputs: int = 1) -> Callable[..., AxisRule]:
    """Of operators that work along their attribute `axis`: every other axis may be split."""
    def rule(*types: Any, axis: int, **_: Any) -> AxisRule:
        return rows(types, (types[0].ndim,) * outputs, whole=(axis,))
    return rule


def over_batches(*trailing: int) -> Callable[..., AxisRule]:
    """Of operators on stacks of matrices: all axes but the last two; of each output, all but the last so many."""
    def rule(*types: Any, **_: Any) -> AxisRule:
        batch = tuple(range(types[0].ndim - 2))
        return AxisRule(tuple((*batch, *(None,) * (x.ndim - len(batch))) for x in types),
                        tuple((*batch, *(None,) * n) for n in trailing))
    return rule
