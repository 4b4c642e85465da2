"""A node that holds graphs, taken apart and put together again: the same parts for branches and loops.

    choice                                  of a cond or switch
    constants, carried, sequences           what each graph takes, in this order; branches have constants only
    graphs                                  the branches; or the body, and the condition before it
    body results                            carried, then stacked; what a branch returns counts as stacked
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.graph.build import Builder, current_builder
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import Op, using
from tenon.graph.partition import copy_nodes
from tenon.ops.branches import cond, switch
from tenon.ops.loops import scan, while_loop
from tenon.ops.shape import full_op
from tenon.records import dataclass, replace

BRANCHES, LOOPS = (cond, switch), (scan, while_loop)


@dataclass(frozen=True)
class Control:
    """The parts of one node."""

    op: Op
    choice: tuple[Input, ...]
    constants: tuple[Input, ...]
    carried: tuple[Input, ...]
    sequences: tuple[Input, ...]
    graphs: tuple[Graph, ...]
    rest: Mapping[str, Any]         # attributes that are neither graphs nor counts

    @staticmethod
    def of(node: Node, inputs: Sequence[Input] | None = None) -> Control:
        """The parts of a node on these inputs, its own by default."""
        attrs, given = node.attrs, tuple(node.inputs if inputs is None else inputs)
        if node.op is cond:
            return Control(cond, given[:1], given[1:], (), (), (attrs["true"], attrs["false"]), {})
        if node.op is switch:
            return Control(switch, given[:1], given[1:], (), (), attrs["branches"], {})
        k = attrs["constants"]
        if node.op is while_loop:
            return Control(while_loop, (), given[:k], given[k:], (), (attrs["condition"], attrs["body"]), {})
        n = k + attrs["carried"]
        return Control(scan, (), given[:k], given[k:n], given[n:], (attrs["body"],),
                       {"length": attrs["length"], "reverse": attrs["reverse"]})

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """The graphs whose results are those of the node."""
        return self.graphs[-1:] if self.op in LOOPS else self.graphs

    def params(self, graph: Graph) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
        """The parameters of one of the graphs: for constants, carried, sequences."""
        k, n = len(self.constants), len(self.constants) + len(self.carried)
        return graph.params[:k], graph.params[k:n], graph.params[n:]

    def emit(self) -> tuple[Value, ...]:
        """The node, in the current builder; its outputs."""
        attrs: dict[str, Any] = {"constants": len(self.constants)}
        if self.op is cond:
            attrs = {"true": self.graphs[0], "false": self.graphs[1]}
        elif self.op is switch:
            attrs = {"branches": self.graphs}
        elif self.op is while_loop:
            attrs |= {"condition": self.graphs[0], "body": self.graphs[1]}
        else:
            attrs |= {"carried": len(self.carried), "length": self.rest["length"], "body": self.graphs[0],
                      "reverse": self.rest["reverse"]}
        out = current_builder().emit(self.op, self.inputs, attrs)
        return out if isinstance(out, tuple) else (out,)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What the node reads, in order."""
        return (*self.choice, *self.constants, *self.carried, *self.sequences)

    def on(self, values: Mapping[Value, Value]) -> Control:
        """The same with other values for its inputs."""
        def now(inputs: tuple[Input, ...]) -> tuple[Input, ...]:
            return tuple(values[x] if isinstance(x, Value) else x for x in inputs)
        return replace(self, choice=now(self.choice), constants=now(self.constants), carried=now(self.carried),
                       sequences=now(self.sequences))


def is_control(node: Node) -> bool:
    """Whether a node is a branch or a loop."""
    return node.op in BRANCHES or node.op in LOOPS


def as_values(inputs: Sequence[Input]) -> tuple[Value, ...]:
    """Inputs with literals as nodes of the current builder, where a value is needed."""
    return tuple(x if isinstance(x, Value) else full_op(x, shape=()) for x in inputs)


def substituted(graph: Graph, params: Sequence[Value], values: Mapping[Value, Value | Literal]) -> Graph:
    """The graph with these parameters, where other parameters or literals stand for some of its values.

    Nodes all of whose outputs are replaced are left out.
    """
    builder = Builder(graph.name, [Value(p.type, name=p.name) for p in params], rewriting=True)
    known: dict[Value, Any] = dict(zip(params, builder.params, strict=True))
    known.update({x: known[y] if isinstance(y, Value) else y for x, y in values.items()})
    with using(builder):
        copy_nodes((n for n in graph.nodes if not n.outputs or not known.keys() >= set(n.outputs)), builder, known)
        return builder.finish(as_values([known[r] for r in graph.results]))
