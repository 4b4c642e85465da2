"""Rewrite rules written as algebra: `rule(before, after)` -> something that matches a node and rewrites it.

    rule(lambda x: x * 1, lambda x: x)
    rule(lambda x, *, dtype: cast(x, dtype=dtype), lambda x, *, dtype: x, when=lambda x, *, dtype: x.dtype is dtype)

Both sides are called: `before` once, with holes for arguments, which makes the pattern; `after` with what the holes
matched, in the builder.  Positional parameters match values, literals included; keyword-only ones match attributes;
a number matches a literal of any type with that value.  `examples` are what a generated test runs both sides on.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import permutations
from typing import Any

from tenon.errors import Location
from tenon.graph.build import PYTHON_SCALARS
from tenon.graph.ir import Literal, Node, Value
from tenon.graph.op import Op, using
from tenon.graph.operators import Traced
from tenon.records import dataclass, field


@dataclass(eq=False)
class Hole(Traced):
    """Matches anything, and the same thing everywhere."""

    name: str


@dataclass(eq=False)
class Pattern(Traced):
    """Matches a node of this operator whose inputs and attributes match."""

    op: Op
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]


class PatternMaker:
    """The interpreter under which a call of an operator makes a pattern."""

    records = True

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Pattern:
        return Pattern(op, inputs, attrs)

    def lift(self, x: Any) -> Any:
        return x


Found = dict[str, Any]


@dataclass(eq=False)
class RewriteRule:
    """One line of the table."""

    before: Callable[..., Any]
    after: Callable[..., Any]
    when: Callable[..., bool] | None = None
    examples: Sequence[Mapping[str, Any]] = ({},)
    pattern: Pattern = field(init=False)
    inner: frozenset[Op] = field(init=False)            # operators that make inputs of the node
    literal: bool = field(init=False)                   # whether one of the inputs is a number
    values: tuple[str, ...] = field(init=False)         # names of the holes for values
    attributes: tuple[str, ...] = field(init=False)     # and for attributes

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.before).parameters.values()
        self.values = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        self.attributes = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        with using(PatternMaker()):
            self.pattern = self.before(*map(Hole, self.values), **{name: Hole(name) for name in self.attributes})
        self.inner = frozenset(x.op for x in self.pattern.inputs if isinstance(x, Pattern))
        self.literal = any(isinstance(x, PYTHON_SCALARS) for x in self.pattern.inputs)

    @property
    def where(self) -> Location:
        """Where the rule is written."""
        code = self.before.__code__
        return Location(code.co_filename, code.co_firstlineno, function=code.co_name)

    @property
    def op(self) -> Op:
        """The operator that the rule is tried on."""
        return self.pattern.op

    def may_match(self, inner: Set[Op], literal: bool) -> bool:
        """Whether it is worth a look at a node some of whose inputs are made by these operators, or are numbers."""
        return self.inner <= inner and literal >= self.literal

    def rewrite(self, node: Node) -> Any:
        """What to use instead of the output of `node`; None where the rule does not apply."""
        for found in match_node(self.pattern, node, {}):
            args, attrs = [found[name] for name in self.values], {name: found[name] for name in self.attributes}
            if self.when is None or self.when(*args, **attrs):
                return self.after(*args, **attrs)
        return None


def match_node(pattern: Pattern, node: Node, found: Found) -> Iterator[Found]:
    """Every way in which the node matches, as what each hole stands for."""
    if node.op is not pattern.op or len(node.inputs) != len(pattern.inputs) or len(node.outputs) != 1:
        return
    for name, wanted in pattern.attrs.items():
        if isinstance(wanted, Hole):
            found = {**found, wanted.name: node.attrs[name]}
        elif wanted != node.attrs[name]:
            return
    orders = permutations(node.inputs) if node.op.commutative else [node.inputs]
    for inputs in orders:
        yield from _match_all(pattern.inputs, inputs, found)


def _match_all(patterns: Sequence[Any], inputs: Sequence[Any], found: Found) -> Iterator[Found]:
    if not patterns:
        yield found
        return
    for first in _match(patterns[0], inputs[0], found):
        yield from _match_all(patterns[1:], inputs[1:], first)


def _match(pattern: Any, x: Any, found: Found) -> Iterator[Found]:
    match pattern:
        case Hole(name=name):
            if name not in found:
                yield {**found, name: x}
            elif found[name] is x or (isinstance(x, Literal) and found[name] == x):
                yield found
        case Pattern():
            if isinstance(x, Value) and x.node is not None:
                yield from match_node(pattern, x.node, found)
        case None:
            if x is None:
                yield found
        case _ if isinstance(pattern, PYTHON_SCALARS):
            if isinstance(x, Literal) and same_number(pattern, x):
                yield found


def same_number(number: Any, literal: Literal) -> bool:
    """Whether the literal has this value; 0.0 and -0.0 differ for floating literals, an integer 0 has no sign."""
    if literal.value != number:
        return False
    return not isinstance(literal.value, float) or math.copysign(1.0, literal.value) == math.copysign(1.0, number)
