"""A node or a step -> what it costs: floating-point operations, and which part of a kernel's time each node has.

A kernel's time is measured as a whole; what its nodes have of it is shared out by their work, as the compiler counts
it, so it is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenon.graph.ir import Node, Value
from tenon.graph.partition import innermost
from tenon.loops.whole_operators import attended
from tenon.ops.attention import attention, attention_gradient
from tenon.program.kernel import count, multiply_adds, node_work
from tenon.program.steps import HostStep, KernelStep, Leaf

Sizes = Mapping[str, int]


def flops_of(node: Node, sizes: Sizes) -> float:
    """Floating-point operations: two for a multiply-add, one for an element of other arithmetic."""
    if products := multiply_adds(node, sizes):
        return 2.0 * products
    if node.op is attention or node.op is attention_gradient:
        q, k, *_ = attended(node)
        pairs = count(q.size, sizes) * count(k.shape[-2], sizes) * (0.5 if node.attrs.get("is_causal") else 1.0)
        return (2 if node.op is attention else 5) * 2.0 * pairs
    if node.op.operations == 0:
        return 0.0
    if node.op.elementwise:
        return float(count(node.outputs[0].type.size, sizes))
    if node.op.operations is not None:
        return float(max(count(x.type.size, sizes) for x in node.inputs if isinstance(x, Value)))
    return 0.0


def nodes_of(step: Leaf | None) -> tuple[Node, ...]:
    """The nodes that a step computes: of a whole loop those of its condition and its body, each once."""
    if isinstance(step, KernelStep):
        return tuple(innermost(step.node)) if step.node.graphs else step.unit.body.nodes
    return (step.node,) if isinstance(step, HostStep) else ()


def shares_of(step: Leaf | None, sizes: Sizes) -> list[tuple[Node, float]]:
    """The nodes of a step with the part of its time that each has; the parts add up to one."""
    nodes = nodes_of(step)
    work = [0 if node.op.moves == "view" else _work(node, sizes) for node in nodes]
    if not sum(work):
        work = [1] * len(nodes)
    return [(node, part / sum(work)) for node, part in zip(nodes, work, strict=True)]


def _work(node: Node, sizes: Sizes) -> int:
    """A constant or a barrier has none."""
    return node_work(node, sizes) if any(isinstance(x, Value) for x in node.inputs) else 0
