"""Steps -> the last of them that may find an error: before it no argument may be overwritten.

A step that looks for what an earlier one would have found does not count: the gradient of an embedding writes at the
very indices at which the embedding was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tenon.backends.cpu.steps import KernelStep, Step, Storage
from tenon.dims import Dim
from tenon.graph.ir import Graph, Value
from tenon.ops.indexing import put, take
from tenon.runtime.table import can_fail, has_loops

AT_PLACES = take, put           # (x, indices, ...), along `axis` of x
WHOLE = "broadcast_to", "reshape", "permute", "cast", "sum", "max", "min", "full_op"


def last_failing(steps: Sequence[Step]) -> int:
    """The place of the last step that may fail where all before it did not, or be interrupted; -1 where none may."""
    last, known = -1, set[tuple[Storage, Dim]]()
    for k, step in enumerate(steps):
        found = _checked(step)
        if has_loops(step) or (can_fail(step) and (found is None or not found <= known)):
            last = k
        if found is not None and isinstance(step, KernelStep) and _is_whole(step.unit.body):
            known |= found
    return last


def _checked(step: Step) -> set[tuple[Storage, Dim]] | None:
    """The arguments whose elements are checked to be indices of so many places; None where it is not as simple."""
    if not isinstance(step, KernelStep):
        return None
    found, body = set(), step.unit.body
    for check in step.unit.facts.checks:
        node = body.nodes[check.node]
        if check.node < 0 or node.op not in AT_PLACES or node.inputs[1] not in body.params:
            return None
        place = step.inputs[body.params.index(cast(Value, node.inputs[1]))]
        if place.kind != "argument" or not isinstance(node.inputs[0], Value):
            return None
        found.add((place, node.inputs[0].shape[node.attrs["axis"]]))
    return found or None


def _is_whole(body: Graph) -> bool:
    """Whether every element of every node is computed: nothing is cut, padded or chosen, and nothing empty."""
    return all(((node.op.elementwise and node.op.name != "where") or node.op in AT_PLACES or node.op.name in WHOLE)
               and all(isinstance(n, int) and n > 0 for x in node.outputs for n in x.shape) for node in body.nodes)
