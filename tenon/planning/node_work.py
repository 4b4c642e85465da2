"""A node of an optimised graph -> the work of a device: kernels, and messages to other devices.

    works(fused(matmul + bias + gelu), chip)  ->  (KernelWork(product ...), KernelWork(the rest))

Bytes are those that a kernel must read and write once.  Where a graph computes in a narrow type, as in mixed precision,
wider numbers are taken to live in registers alone: they count as narrow, and a cast costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tenon.debug.node_costs import flops_of
from tenon.errors import ArgumentError
from tenon.graph.ir import Node, Value
from tenon.loops.whole_operators import attended
from tenon.ops.attention import attention, attention_gradient
from tenon.ops.collectives import COLLECTIVES, collective_barrier
from tenon.ops.shape import reshape_op
from tenon.planning.cluster import Chip
from tenon.program.kernel import count, multiply_adds
from tenon.records import dataclass, field
from tenon.types import TOKEN, DType

WHOLE = (attention, attention_gradient)
VIEWS = "view", "part", "same"        # a way to read, inside of a kernel
COMMUNICATION = (*COLLECTIVES, collective_barrier)


def is_free(node: Node) -> bool:
    """Whether nothing is read or written."""
    made = node.op.moves == "source" and not node.inputs
    return made or node.op.moves == "same" or node.op is reshape_op


@dataclass(frozen=True)
class ProductShape:
    """Results of `batch` products of [rows, depth] and [depth, columns]."""

    batch: int
    rows: int
    columns: int
    depth: int


@dataclass(frozen=True)
class KernelWork:
    """What a kernel computes and moves; `product` where it multiplies matrices, of elements `dtype`."""

    name: str
    operations: float
    bytes: float
    dtype: str = "float32"
    product: ProductShape | None = None


@dataclass(frozen=True)
class MessageWork:
    """A collective: its kind, the bytes of a rank's input or, if larger, result, and the mesh axes it goes over."""

    kind: str
    bytes: float
    over: tuple[str, ...]


Work = KernelWork | MessageWork


@dataclass(frozen=True)
class WorkRules:
    """What nodes cost on a chip, where the symbols of their graph have these `sizes`; wide numbers count as `narrow`
    ones, where that is given."""

    chip: Chip
    narrow: DType | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def of(self, node: Node) -> tuple[Work, ...]:
        """What a node has a device do.

        Raises ArgumentError for a loop, whose turns the data decide.
        """
        if node.op in COMMUNICATION:
            sizes = [self.bytes(x) for x in (*node.inputs, *node.outputs) if isinstance(x, Value)]
            return (MessageWork(node.op.name.removeprefix("collective_"), max(sizes, default=0.0), node.attrs["over"]),)
        if node.op.name == "fused":
            return tuple(self._kernels(node.graphs[0].nodes, node.graphs[0].results))
        if node.graphs:
            raise ArgumentError(f"planning: the cost of {node.op.name} depends on the data", where=node.loc,
                                hint="write a loop whose turns are known as a Python loop")
        return () if is_free(node) or node.op.effect else tuple(self._kernels((node,), node.outputs))

    def _kernels(self, nodes: Sequence[Node], results: Sequence[Value]) -> Iterator[KernelWork]:
        """The products among the nodes, each a kernel, and the rest as one; or all as one where the chip fuses them."""
        products = [node for node in nodes if node.op.multiply_adds is not None or node.op in WHOLE]
        rest = [node for node in nodes if node not in products and not is_free(node)
                and (len(nodes) == 1 or not self.is_view(node))]
        if self.chip.fused_products and len(products) == 1:
            moved = self._traffic([*products, *rest], results)
            yield KernelWork(_name(nodes), sum(map(self._operations, nodes)), moved, self._dtype(products[0]),
                             self._shape(products[0]))
            return
        for node in products:
            moved = self._traffic([node], node.outputs)
            yield KernelWork(node.op.name, self._operations(node), moved, self._dtype(node), self._shape(node))
        wanted = {self.root(x) for node in products for x in node.inputs if isinstance(x, Value)}
        moved = self._traffic(rest, (*results, *wanted)) if rest else 0.0
        if moved:
            yield KernelWork(_name(rest), sum(map(self._operations, rest)), moved)

    def _traffic(self, nodes: Sequence[Node], stored: Sequence[Value]) -> float:
        """Bytes that a kernel of these nodes reads from outside of them, and writes for others."""
        made = {x for node in nodes for x in node.outputs}
        read: dict[Value, float] = {}
        for node in nodes:
            for x in node.inputs:
                if isinstance(x, Value) and self.root(x) not in made:
                    source = self.root(x)
                    read[source] = min(read.get(source, 0.0) + self._smallest(x), self.bytes(source))
        kept = set(map(self.root, stored))
        return sum(read.values()) + sum(self.bytes(x) for x in made if x in kept)

    def is_view(self, node: Node) -> bool:
        """Whether nothing is computed, where the node is a part of a kernel."""
        return node.op.moves in VIEWS or (self.narrow is not None and node.op.name == "cast")

    def _ways(self, x: Value) -> Iterator[Value]:
        """A value, what it is a view of, what that is a view of."""
        yield x
        while x.node is not None and self.is_view(x.node) and isinstance(x.node.inputs[0], Value):
            x = x.node.inputs[0]
            yield x

    def root(self, x: Value) -> Value:
        """What a value is a view of in the end."""
        *_, last = self._ways(x)
        return last

    def _smallest(self, x: Value) -> float:
        return min(map(self.bytes, self._ways(x)))

    def bytes(self, x: Value) -> float:
        """The bytes of a value in memory."""
        return 0.0 if x.type == TOKEN else float(count(x.type.size, self.sizes)) * self.type(x.dtype).itemsize

    def type(self, dtype: DType) -> DType:
        """The type that elements are stored in."""
        wide = self.narrow is not None and dtype.is_floating and dtype.bits > self.narrow.bits
        return self.narrow if wide and self.narrow is not None else dtype

    def _dtype(self, node: Node) -> str:
        return self.type(next(x.dtype for x in node.inputs if isinstance(x, Value))).name

    def _operations(self, node: Node) -> float:
        return flops_of(node, self.sizes) * (node.op.operations or 1)

    def _shape(self, node: Node) -> ProductShape:
        """A product as one of matrices; of a convolution, each place of the image is a row."""
        if node.op in WHOLE:
            q, k, *_ = attended(node)
            return ProductShape(prod(self._sizes(q)[:-2]), self._sizes(q)[-2], self._sizes(k)[-2], self._sizes(q)[-1])
        left, right, out = (self._sizes(x) for x in (*node.inputs[:2], node.output) if isinstance(x, Value))
        if node.op.name == "matmul":
            return ProductShape(prod(out[:-2]), out[-2] if len(out) > 1 else 1, out[-1], left[-1])
        largest = max(1, *map(prod, (left, right, out)))
        columns = max(1, min(left[1], right[0], out[1]))
        depth = multiply_adds(node, self.sizes) // largest
        return ProductShape(1, max(1, largest // columns), columns, max(1, depth))

    def _sizes(self, x: Value) -> list[int]:
        return [count(n, self.sizes) for n in x.shape]


def _name(nodes: Sequence[Node]) -> str:
    return "_".join(dict.fromkeys(node.op.name for node in nodes if node.op.moves not in VIEWS))[:60]
