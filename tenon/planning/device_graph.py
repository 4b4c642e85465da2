"""A function on hollow tensors -> the optimised graph that one device runs, as a planner reads it.

Nothing of its sizes is made: the tensors have no elements, and the graph is captured and optimised, never compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Held
from tenon.errors import ArgumentError
from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node
from tenon.graph.partition import split
from tenon.loops.whole_operators import is_attention
from tenon.ops.barrier import barrier
from tenon.pipeline import OPTIMIZE, passes_for, run_passes
from tenon.planning.cluster import Chip
from tenon.planning.shapes_only import hollow_tensor, shapes_only
from tenon.program.backend_interface import Backend, Executable
from tenon.records import dataclass, replace
from tenon.tensor import Tensor
from tenon.types import TensorType


def device_graph(function: Callable[..., Any], *args: Any, chip: Chip) -> Graph:
    """What a chip runs when it calls the function, forward, backward and update; the arguments may be hollow.

    Raises CaptureError where the function is no one graph.
    """
    return optimized(Jitted(function, fullgraph=True).capture(*args).graph, chip)


def optimized(graph: Graph, chip: Chip) -> Graph:
    """A captured graph after Tenon's own passes; products stay apart where a chip has them from a library."""
    passes = passes_for(OPTIMIZE, _backend(chip))
    if not chip.fused_products:
        passes.insert([name for name, _ in passes].index("fuse"), ("set_products_apart", set_products_apart))
    return run_passes(graph, passes)


def _backend(chip: Chip) -> Backend:
    def refuse(graph: Graph) -> Executable:
        raise ArgumentError(f"planning: {graph.name} is a graph to be read, not to be run")
    return Backend("planning", refuse, lambda node: chip.fused_attention and is_attention(node), fuses=True)


def set_products_apart(graph: Graph) -> Graph:
    """The same graph, with a barrier behind every product: nothing becomes a part of its kernel."""
    return rebuild(graph, _set_apart)


def _set_apart(node: Node, inputs: tuple[Input, ...]) -> Any:
    made = copy(node, inputs)
    return barrier(made) if node.op.multiply_adds is not None else made


@dataclass(frozen=True, eq=False)
class TwoPhases:
    """What a device runs forward, and backward, for a batch of any size, which is the symbol `batch` of the graphs;
    `kept` are the types of what lies in memory from one to the other, beside parameters."""

    forward: Graph
    backward: Graph
    kept: tuple[TensorType, ...]
    batch: str


def two_phases(module: Callable[..., Any], arguments: Callable[[int], Sequence[Tensor]], parameters: Sequence[Tensor],
               chip: Chip) -> TwoPhases:
    """The graphs of `module(*arguments(batch))` and of its gradient, cut where Tenon cuts what it records.

    Gradients are those of the parameters, and of the arguments that require one.
    """
    def both(seed: Tensor, *args: Tensor) -> tuple[Tensor, ...]:
        made = module(*args)
        made.backward(seed)
        leaves = [*(x for x in args if x.requires_grad), *parameters]
        return (made, *(x.grad for x in leaves if x.grad is not None))
    jitted = Jitted(both, fullgraph=True)
    for batch in (2, 3):        # a size that changes becomes a symbol
        args = arguments(batch)
        made = _type_of(module, args)
        captured = jitted.capture(hollow_tensor(made.shape, made.dtype), *args)
    seed, *others = captured.graph.params
    graph = replace(captured.graph, params=(*others, seed))
    parts = split(graph, len(others), graph.results[1:], graph.results[:1])
    early = parts.early
    held = {p for p, source in zip(early.params, captured.sources[1:], strict=True) if isinstance(source, Held)}
    kept = tuple(x.type for x in early.results[1:] if x not in held)
    symbols = captured.graph.symbols()
    return TwoPhases(optimized(early, chip), optimized(parts.late, chip), kept, symbols[0] if symbols else "")


def _type_of(module: Callable[..., Any], args: Sequence[Tensor]) -> TensorType:
    with shapes_only():
        found: TensorType = module(*args).type
    return found
