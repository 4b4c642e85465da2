"""A composite with a number that changes from call to call among its attributes -> what it is made of.

An attribute stands in the graph as it is, so that each number would be a capture of its own.  What a composite is made
of does arithmetic on the number instead, which is an argument of the graph; its gradient stays the composite's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from tenon.autocast import autocasting
from tenon.autodiff import pullback
from tenon.capture.custom_rules import CustomRule, Tensors, call_rule
from tenon.capture.symbolic_numbers import SymNumber, nest_known, value_of
from tenon.capture.trace import Capture
from tenon.eager.dispatch import agree_recast
from tenon.errors import Location
from tenon.graph.attributes import kinds_of
from tenon.graph.build import canonical_attrs
from tenon.graph.op import Op
from tenon.records import dataclass
from tenon.tensor import Tensor


def by_definition(capture: Capture, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of a composite; None where a number has to be known, such as one that may be an axis."""
    assert op.expand is not None
    kinds = kinds_of(op)
    counts = any(x.kind is int and not is_float(kinds[name]) for name, x in attrs.items() if type(x) is SymNumber)
    if op.vjp is not None and (counts or autocasting() is not None):    # within which others might be cast
        return None
    lifted = tuple(map(capture.lift, inputs))
    given = tuple([capture.cast(x, dtype) for x, dtype in agree_recast(op, lifted)]) if op.promote else lifted
    if (canonical := canonical_with_numbers(op, given, attrs)) is None:
        return None
    if op.vjp is None:
        return op.expand(*given, **canonical)
    rule = CompositeRule(op, given, canonical).rule()
    results = call_rule(rule, [x for x in given if isinstance(x, Tensor)], capture)
    return results[0] if len(results) == 1 else tuple(results)


def is_float(kind: Any) -> bool:
    """Whether an attribute of this kind is a float, for which an integer may be given."""
    return kind is float or (float in get_args(kind) and int not in get_args(kind))


def canonical_with_numbers(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The attributes in their one form; None where that is another number than the one given."""
    numbers = {name: x for name, x in attrs.items() if type(x) is SymNumber}
    plain = {name: value_of(x) if name in numbers else nest_known(x) for name, x in attrs.items()}
    found = dict(canonical_attrs(op, [x.type if isinstance(x, Tensor) else None for x in inputs], plain))
    return None if any(found.get(name) != plain[name] for name in numbers) else found | numbers


@dataclass(frozen=True, eq=False)
class Opened:
    """A composite that was opened, as the loop over a tape looks at it."""

    op: Op
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[Any, ...]
    loc: Location | None = None
    slots: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class CompositeRule:
    """A composite on these inputs, some of which are tensors."""

    op: Op
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]

    def rule(self) -> CustomRule:
        """The same as a function of the tensors, with the composite's gradient."""
        return CustomRule(self.primal, self.forward, self.backward, self.op.name)

    def primal(self, tensors: Tensors) -> Tensors:
        expand: Callable[..., Any] = self.op.expand     # type: ignore[assignment]
        found = expand(*self.filled(tensors), **self.attrs)
        return list(found) if isinstance(found, tuple) else [found]

    def forward(self, tensors: Tensors) -> tuple[Tensors, list[Any]]:
        results = self.primal(tensors)
        return results, [*tensors, *results]

    def backward(self, kept: list[Any], seeds: list[Tensor | None]) -> list[Tensor | None]:
        count = sum(isinstance(x, Tensor) for x in self.inputs)
        node = Opened(self.op, self.filled(kept[:count]), self.attrs, tuple(kept[count:]))
        found = [g() if callable(g) and not isinstance(g, Tensor) else g for g in pullback(node, seeds)]
        return [g for g, x in zip(found, self.inputs, strict=True) if isinstance(x, Tensor)]

    def filled(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs, with these tensors in the place of those."""
        given = iter(tensors)
        return tuple([next(given) if isinstance(x, Tensor) else x for x in self.inputs])
