"""A node -> its axis rule: as its operator states it, read off its compute rule, or off its definition.

The rule of a composite follows from those of the operators that it is made of: axes that go together in any of them go
together, and one that has to be whole, or is combined, inside is whole outside.  Split it all the same, and propagation
opens the composite.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tenon.graph.axis_rule import AxisRule, Labels
from tenon.graph.build import expansion, types_of
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.graph.op import Op
from tenon.graph.structural_key import Exact
from tenon.graph.union_find import UnionFind
from tenon.sharding.compute_probe import probed
from tenon.types import TensorType


def rule_of(node: Node) -> AxisRule:
    """Which axes of a node may be split; none of them where nothing is known."""
    key = tuple(ground(x) for x in node.inputs)
    rule = _rule(node.op, key, Exact(node.attrs), tuple(x.type for x in node.outputs)) if not node.graphs else None
    return whole_rule(node) if rule is None else rule


def whole_rule(node: Node) -> AxisRule:
    """Every axis is whole."""
    return AxisRule(tuple((None,) * (0 if x is None else x.ndim) for x in node.inputs),
                    tuple((None,) * x.ndim for x in node.outputs))


def ground(x: Any) -> Any:
    """What a rule may depend on of an input: its type; of a number, whether it is 0, too."""
    return Literal(int(x.value != 0), x.type) if isinstance(x, Literal) else None if x is None else x.type


@lru_cache(maxsize=8192)
def _rule(op: Op, inputs: tuple[Any, ...], attrs: Exact, outputs: tuple[TensorType, ...]) -> AxisRule | None:
    node = Node(op, tuple(Value(x) if isinstance(x, TensorType) else x for x in inputs), attrs.values)
    node.outputs = tuple(Value(type, node, k) for k, type in enumerate(outputs))
    if op.axis_rule is not None:
        found: AxisRule = op.axis_rule(*types_of(node.inputs), **node.attrs)
        return found
    rule = probed(node) if op.compute is not None else None
    if rule is None and op.elementwise:
        return _elementwise(node)
    return rule if rule is not None or op.expand is None else _composite(node)


def _elementwise(node: Node) -> AxisRule:
    """Element by element, of tensors of one shape and numbers."""
    axes = tuple(range(node.output.ndim))
    return AxisRule(tuple(axes if isinstance(x, Value) and x.ndim else () for x in node.inputs),
                    (axes,) * len(node.outputs))


def _composite(node: Node) -> AxisRule:
    """The rule of a composite operator, from its definition."""
    body = expansion(node.op, types_of(node.inputs), node.attrs)
    classes = _Classes(body)
    params = iter(body.params)
    inputs = tuple(() if x is None else classes.labels(next(params)) for x in node.inputs)
    return AxisRule(inputs, tuple(map(classes.labels, body.results)))


class _Classes:
    """The axes of all values of a graph, in classes that are split together; some have to be whole."""

    def __init__(self, graph: Graph) -> None:
        self.together: UnionFind[Any] = UnionFind()
        self.whole: set[Any] = set()
        for node in graph.nodes:
            self._add(node)

    def labels(self, value: Value) -> Labels:
        """The classes of the axes of a value; None for those that are whole."""
        roots = [self.together.find((value, k)) for k in range(value.ndim)]
        closed = {self.together.find(x) for x in self.whole}
        return tuple(None if root in closed or roots.count(root) > 1 else root for root in roots)

    def _add(self, node: Node) -> None:
        rule = rule_of(node)
        seen: dict[Any, Any] = {}
        pairs = zip((*node.inputs, *node.outputs), (*rule.inputs, *rule.outputs), strict=True)
        for value, labels in pairs:
            for k, label in enumerate(labels if isinstance(value, Value) else ()):
                axis = self.together.find((value, k))
                if label is None or label in rule.combined:
                    self.whole.add(axis)
                else:
                    self.together.union(axis, seen.setdefault(label, axis))
