"""Body of a kernel -> machine code to be: its functions as LLVM IR text, one for each stage between two barriers.

    void stage(ptr buffers, ptr sizes, i32 thread, i32 threads, ptr scratch, ptr status)
"""

from __future__ import annotations

from dataclasses import dataclass

from tenon.dims import Dim, evaluate
from tenon.errors import Location
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.text import print_graph
from tenon.types import TensorType


@dataclass(eq=False)
class Unit:
    """A kernel: equal bodies share one."""

    name: str
    body: Graph
    functions: tuple[str, ...]          # the stages, in order
    ir: str                             # a module that defines them
    loops: str                          # its loops as text, to be read
    temporaries: tuple[TensorType, ...] = ()
    sizes: tuple[str, ...] = ()         # the symbols that it is given
    checks: tuple[tuple[str, Location | None], ...] = ()    # what status k + 1 means
    scratch: int = 0                    # bytes for each thread
    in_place: tuple[int, ...] = ()      # inputs whose place the only output may take

    def work(self, sizes: dict[str, int]) -> int:
        """About how many elements are computed or read."""
        return sum(node_work(node, sizes) for node in self.body.nodes)


def node_work(node: Node, sizes: dict[str, int]) -> int:
    """Elements written or read, whichever is more; for a product of matrices, multiplications."""
    values = [*node.outputs, *(x for x in node.inputs if isinstance(x, Value))]
    most = max(count(x.size, sizes) for x in values)
    if node.op.name == "matmul":
        return count(node.output.size, sizes) * count(values[1].shape[-1], sizes) // 8
    return most


def count(dim: Dim, sizes: dict[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)


def key_of(body: Graph) -> str:
    """Equal for bodies that are one kernel."""
    anonymous = Graph("kernel", body.params, body.nodes, body.results)
    return print_graph(anonymous, locations=False)


def in_place_inputs(body: Graph) -> tuple[int, ...]:
    """Parameters that are read only at the element that is written: everything after them is elementwise."""
    if len(body.results) != 1:
        return ()
    users = body.users()
    return tuple(k for k, p in enumerate(body.params) if p is not body.results[0] and _only_elementwise(p, users, body))


def _only_elementwise(value: Value, users: dict[Value, list[Node]], body: Graph) -> bool:
    return value.shape == body.results[0].shape and all(
        node.op.elementwise and (node.output in body.results or _only_elementwise(node.output, users, body))
        for node in users[value])
