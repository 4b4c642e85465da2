"""Graph -> the same graph, where products that a scan makes in every iteration are made for all iterations at once.

    before   a product of slices of a sequence and constants is one product of the whole sequence
    after    a product that nothing carried depends on is one product of what is stacked
    sums     a carried value to which each iteration adds a product is one product, as much longer in depth

So of an LSTM only the product with the state stays in the loop; the gradients of its weights are two products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.dims.symbolic_dim import Dim
from tenon.graph.build import Builder, copy, current_builder, rebuild
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import Op
from tenon.graph.partition import depending, has_effect
from tenon.locks import cached_property
from tenon.ops.arithmetic import add
from tenon.ops.loops import scan
from tenon.ops.matrix_products import matmul_op
from tenon.ops.shape import broadcast_to, cast, permute, reshape_op
from tenon.passes.rewriting.nested import nested

MAX_ELEMENTS = 1 << 27      # of an array that is kept so that products may be made at once


@nested
def batch_scan_products(graph: Graph) -> Graph:
    """Take products out of scans."""
    if not any(node.op is scan and _products(node.attrs["body"]) for node in graph.nodes):
        return graph
    return rebuild(graph, lambda node, inputs: _Scan(node).without_products(inputs) if node.op is scan
                   else copy(node, inputs))


def _products(body: Graph) -> list[Node]:
    return [node for node in body.nodes if node.op is matmul_op and node.output.ndim == 2]


class _Scan:
    """A scan, and what of its body depends on what."""

    def __init__(self, node: Node):
        self.node, attrs = node, node.attrs
        self.body: Graph = attrs["body"]
        self.length: Dim = attrs["length"]
        self.constants, self.carried = attrs["constants"], attrs["carried"]
        params = self.body.params
        first, after = self.constants, self.constants + self.carried
        self.states, self.slices = params[first:after], params[after:]
        self.changing = depending(self.body, self.states)
        self.moving = depending(self.body, self.slices)
        self.users = self.body.users()

    @property
    def stacked(self) -> tuple[Value, ...]:
        return self.body.results[self.carried:]

    def is_fixed(self, x: Input) -> bool:
        """Whether the value is the same in every iteration."""
        return not isinstance(x, Value) or (x not in self.changing and x not in self.moving)

    # ------------------------------------------------------------ what leaves the loop

    @cached_property
    def early(self) -> list[Value]:
        """Products that can be made before the loop."""
        return [node.output for node in _products(self.body)
                if node.output in self.batchable and not self.is_fixed(node.output) and self.fits(node.output)]

    @cached_property
    def batchable(self) -> set[Value]:
        """What is computed from slices and constants by operators that there is a rule for."""
        found = set(self.slices)
        for node in self.body.nodes:
            if node.op is matmul_op:
                left, right = node.inputs
                simple = node.output.ndim == 2 and self.is_fixed(right) and left in found
            else:
                simple = _has_rule(node) and all(self.is_fixed(x) or x in found for x in node.inputs)
            if simple and node.outputs[0] not in self.changing:
                found.update(node.outputs)
        return found

    def fits(self, x: Value) -> bool:
        total = x.size * self.length
        return not isinstance(total, int) or total <= MAX_ELEMENTS

    @cached_property
    def sums(self) -> dict[int, Value]:
        """Carried values that only grow, and by what: a product, perhaps with its axes exchanged."""
        found: dict[int, Value] = {}
        for k, (state, result) in enumerate(zip(self.states, self.body.results, strict=False)):
            node = result.node
            if node is None or node.op is not add or self.body.results.count(result) > 1 or self.users[result]:
                continue
            others = [x for x in node.inputs if x is not state]
            if len(others) == 1 and isinstance(others[0], Value) and self.users[state] == [node] \
                    and state not in self.body.results and self.is_sum_of_products(others[0]):
                found[k] = others[0]
        return found

    def is_sum_of_products(self, x: Value) -> bool:
        node = x.node
        if node is None or x.ndim != 2 or self.is_fixed(x):
            return False
        if node.op is permute:
            inner = node.inputs[0]
            return isinstance(inner, Value) and self.is_sum_of_products(inner)
        return node.op is matmul_op and all(isinstance(y, Value) and self.fits(y) for y in node.inputs)

    @cached_property
    def kept(self) -> set[Node]:
        """What the loop must compute for its own sake."""
        wanted = {r for k, r in enumerate(self.body.results[:self.carried]) if k not in self.sums}
        found: set[Node] = set()
        for node in reversed(self.body.nodes):
            if has_effect(node) or not wanted.isdisjoint(node.outputs):
                found.add(node)
                wanted.update(node.uses())
        return found

    def is_late(self, x: Input) -> bool:
        """Whether the value is, or is simply made of, a product that can be made after the loop."""
        return x in self.late

    @cached_property
    def late(self) -> set[Value]:
        found: set[Value] = set()
        for node in self.body.nodes:
            x = node.outputs[0]
            if node in self.kept or self.is_fixed(x) or x in self.early:
                continue
            if node.op is matmul_op:
                left, right = node.inputs
                simple = x.ndim == 2 and self.is_fixed(right) and isinstance(left, Value) and self.fits(left)
            else:
                simple = _has_rule(node) and any(y in found for y in node.inputs)
            if simple:
                found.add(x)
        return found

    # ------------------------------------------------------------ the new graph

    def without_products(self, inputs: tuple[Input, ...]) -> Any:
        """The outputs of the scan, by a smaller scan and products around it."""
        plain = len(self.node.outputs) == len(self.body.results)
        plain = plain and not any(map(has_effect, self.body.nodes))     # which are something new in every iteration
        if not plain or not (self.early or self.sums or any(map(self.is_late, self.stacked))):
            return copy(self.node, inputs)
        outside = _Outside(self, inputs)
        sequences = {x: outside.batched(x) for x in self.early}
        stay = [k for k in range(self.carried) if k not in self.sums]
        for x in self.stacked:
            outside.note(x)
        for x in self.sums.values():
            outside.note_sum(x)
        made = self.smaller_scan(inputs, sequences, stay, list(outside.wanted))
        outside.values.update(zip(outside.wanted, made[len(stay):], strict=True))
        states = dict(zip(stay, made, strict=False))
        for k, x in self.sums.items():
            states[k] = add(inputs[self.constants + k], outside.total(x))
        out = [*(states[k] for k in range(self.carried)), *(outside.batched(x) for x in self.stacked)]
        return tuple(out) if len(out) > 1 else out[0]

    def smaller_scan(self, inputs: tuple[Input, ...], sequences: Mapping[Value, Value], stay: Sequence[int],
                     stacked: Sequence[Value]) -> tuple[Value, ...]:
        """The scan that still runs: of some carried values, over more sequences, with other results."""
        results = [*(self.body.results[k] for k in stay), *stacked]
        wanted, nodes = set(results), []
        for node in reversed(self.body.nodes):
            if node.outputs[0] not in sequences and (has_effect(node) or not wanted.isdisjoint(node.outputs)):
                nodes.append(node)
                wanted.update(node.uses())
        builder = Builder(self.body.name, rewriting=True)
        values: dict[Value, Any] = {}
        given: list[list[Input]] = [[], [], []]
        place = self.constants
        groups = ([(p, x) for p, x in zip(self.body.params[:place], inputs, strict=False) if p in wanted],
                  [(self.states[k], inputs[place + k]) for k in stay],
                  [*((p, x) for p, x in zip(self.slices, inputs[place + self.carried:], strict=True) if p in wanted),
                   *((p, x) for p, x in sequences.items() if p in wanted)])
        for listed, group in zip(given, groups, strict=True):
            for p, x in group:
                values[p] = builder.parameter(p.type, p.name)
                listed.append(x)
        for node in reversed(nodes):
            out = builder.emit(node.op, tuple(values[x] if isinstance(x, Value) else x for x in node.inputs),
                               node.attrs, node.loc)
            values.update(zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True))
        body = builder.finish([values[r] for r in results])
        attrs = {**self.node.attrs, "constants": len(given[0]), "carried": len(stay), "body": body}
        if not results:
            return ()
        out = current_builder().emit(scan, (*given[0], *given[1], *given[2]), attrs)
        return out if isinstance(out, tuple) else (out,)


class _Outside:
    """Values of a body outside of its loop: for all iterations at once, with the iteration as the first axis."""

    def __init__(self, scan: _Scan, inputs: tuple[Input, ...]):
        self.scan, self.length = scan, scan.length
        self.values: dict[Value, Value] = {}                # with all iterations
        sequences = inputs[scan.constants + scan.carried:]
        self.values.update((p, x) for p, x in zip(scan.slices, sequences, strict=True) if isinstance(x, Value))
        self.fixed_values: dict[Value, Input] = dict(zip(scan.body.params, inputs[:scan.constants], strict=False))
        self.wanted: dict[Value, None] = {}                 # what the loop has to stack

    # ------------------------------------------------------------ what the loop has to stack

    def note(self, x: Input) -> None:
        """Find out what is needed for all iterations of a value."""
        if not isinstance(x, Value) or self.scan.is_fixed(x) or x in self.values:
            return
        if self.scan.is_late(x):
            assert x.node is not None
            for inner in x.node.inputs:
                self.note(inner)
        else:
            self.wanted[x] = None

    def note_sum(self, x: Value) -> None:
        assert x.node is not None
        for inner in x.node.inputs:
            assert isinstance(inner, Value)
            if x.node.op is permute:
                self.note_sum(inner)
            else:
                self.note(self.exchanged(inner) or inner)

    def exchanged(self, x: Value) -> Value | None:
        """What a value is the transpose of."""
        if x.node is not None and x.node.op is permute and isinstance(x.node.inputs[0], Value):
            return x.node.inputs[0]
        return None

    # ------------------------------------------------------------ values

    def fixed(self, x: Input) -> Input:
        """A value that is the same in every iteration."""
        if not isinstance(x, Value):
            return x
        if x not in self.fixed_values:
            assert x.node is not None
            inputs = tuple(map(self.fixed, x.node.inputs))
            out = current_builder().emit(x.node.op, inputs, x.node.attrs, x.node.loc)
            self.fixed_values.update(zip(x.node.outputs, out if isinstance(out, tuple) else (out,), strict=True))
        return self.fixed_values[x]

    def batched(self, x: Input) -> Any:
        """All iterations of a value."""
        if isinstance(x, Literal) or x is None:
            return x
        if x not in self.values:
            if self.scan.is_fixed(x):
                self.values[x] = broadcast_to(self.fixed(x), shape=(self.length, *x.shape))
            else:
                assert x.node is not None
                self.values[x] = self.rule(x.node)
        return self.values[x]

    def rule(self, node: Node) -> Any:
        """The operator for all iterations."""
        op, attrs, x = node.op, node.attrs, node.inputs[0]
        if op.elementwise:
            return current_builder().emit(op, tuple(map(self.batched, node.inputs)), attrs, node.loc)
        first = self.batched(x)
        if op is permute:
            return permute(first, axes=(0, *(axis + 1 for axis in attrs["axes"])))
        if op is reshape_op:
            return reshape_op(first, shape=(self.length, *attrs["shape"]))
        if op is cast:
            return cast(first, dtype=attrs["dtype"])
        if op is broadcast_to:
            ones = (1,) * (len(attrs["shape"]) - (first.ndim - 1))
            wide = reshape_op(first, shape=(self.length, *ones, *first.shape[1:]))
            return broadcast_to(wide, shape=(self.length, *attrs["shape"]))
        assert op is matmul_op, op
        flat = matmul_op(_flat(first), self.fixed(node.inputs[1]))
        return reshape_op(flat, shape=(self.length, first.shape[1], flat.shape[1]))

    def total(self, x: Value) -> Any:
        """The sum of a value, of which there is a product in each iteration, over all iterations."""
        node = x.node
        assert node is not None
        if node.op is permute:
            inner = node.inputs[0]
            assert isinstance(inner, Value)
            return permute(self.total(inner), axes=node.attrs["axes"])
        left, right = node.inputs
        assert isinstance(left, Value) and isinstance(right, Value)
        return matmul_op(self.side_by_side(left, 1), self.side_by_side(right, 0))

    def side_by_side(self, x: Value, axis: int) -> Any:
        """The matrices of all iterations as one, with as many times the size along an axis."""
        if axis == 1:
            inner = self.exchanged(x)
            rows = permute(self.batched(x), axes=(0, 2, 1)) if inner is None else self.batched(inner)
            return permute(_flat(rows), axes=(1, 0))
        return _flat(self.batched(x))


def _flat(x: Any) -> Any:
    return reshape_op(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:]))


def _has_rule(node: Node) -> bool:
    """Whether `_Outside.rule` knows the operator."""
    simple: tuple[Op, ...] = (permute, reshape_op, cast, broadcast_to)
    return not has_effect(node) and len(node.outputs) == 1 and not node.graphs and (
        node.op in simple or (node.op.elementwise and node.op.compute is not None))
