"""Graph -> the same graph with every scan as a while_loop that counts, reads its sequences by index and writes rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.dims.symbolic_dim import Dim
from tenon.graph.build import call_graph, copy, rebuild, trace, types_of
from tenon.graph.ir import Graph, Input
from tenon.ops.comparison import less
from tenon.ops.creation import zeros
from tenon.ops.indexing import put, take
from tenon.ops.loops import scan, while_loop
from tenon.ops.shape import dimension
from tenon.passes.rewriting.nested import nested
from tenon.types import int64


@nested
def lower_scan(graph: Graph) -> Graph:
    """For executors that know one kind of loop."""
    return rebuild(graph, lambda node, inputs: (
        as_while(inputs, **node.attrs) if node.op is scan else copy(node, inputs)))


def as_while(inputs: Sequence[Input], constants: int, carried: int, length: Dim, body: Graph, reverse: bool) -> Any:
    """The results of a scan with these inputs and attributes."""
    sequences = inputs[constants + carried:]
    buffers = [zeros((length, *r.shape), dtype=r.dtype) for r in body.results[carried:]]
    fixed = (*inputs[:constants], *sequences)
    state = (zeros((), dtype=int64), *inputs[constants:constants + carried], *buffers)

    def unfinished(*xs: Any) -> Any:
        return less(xs[len(fixed)], dimension(size=length, dtype=int64))

    def step(*xs: Any) -> Any:
        index, *rest = xs[len(fixed):]
        at = dimension(size=length, dtype=int64) - 1 - index if reverse else index
        rows = [take(sequence, at, axis=0) for sequence in xs[constants:len(fixed)]]
        results = call_graph(body, [*xs[:constants], *rest[:carried], *rows])
        written = [put(buffer, at, row, axis=0, reduce="set")
                   for buffer, row in zip(rest[carried:], results[carried:], strict=True)]
        return (index + 1, *results[:carried], *written)
    types = types_of((*fixed, *state))
    _, *results = while_loop(*fixed, *state, constants=len(fixed), condition=trace(unfinished, *types),
                             body=trace(step, *types))
    return tuple(results) if len(results) > 1 else results[0]
