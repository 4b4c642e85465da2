"""Random graphs with branches and loops inside of each other, whatever is carried, passed through or swapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Value
from tenon.graph.op import OPS, using
from tenon.graph.verify import verify
from tenon.ops import arithmetic, comparison, exponential, shape, trigonometric
from tenon.ops import reduction as r
from tenon.ops.branches import cond, switch
from tenon.ops.define import define
from tenon.ops.loops import scan, while_loop
from tenon.ops.matrix_products import matmul_op
from tenon.types import TensorType, float32, int64

COUNT = TensorType(int64, ())
host_shift = OPS.get("structured_test_shift") or define(        # the search for doctests imports this file once more
    "structured_test_shift", public=False, type=lambda x: x, ref=lambda x: x - np.float32(0.25))

UNARY = (arithmetic.negative, trigonometric.tanh, lambda x: x * 0.5 + 1.0, lambda x: x - 0.25, host_shift,
         lambda x: exponential.exp(trigonometric.tanh(x)), lambda x: comparison.where(x > 0.25, x, 0.0))
BINARY = (arithmetic.add, arithmetic.subtract, comparison.maximum, lambda x, y: trigonometric.tanh(x * y),
          lambda x, y: comparison.where(x < y, y, x * 0.5))


@st.composite
def structured_graphs(draw: Any, symbolic: bool = False, depth: int = 3, wide: int = 3) -> Graph:
    """A graph whose nodes are small operators, branches and loops; `wide` is the longest axis."""
    rows = symbol("B") if symbolic else draw(st.sampled_from((1, 2, 5)))
    types = [TensorType(float32, s) for s in ((), (wide,), (rows, wide), (wide, wide))] + [COUNT]
    given = [types[2], *draw(st.lists(st.sampled_from(types), min_size=1, max_size=4)), COUNT]
    graph = _Maker(draw, types).graph("nested", given, depth, None)
    return verify(graph)


class _Maker:
    def __init__(self, draw: Any, types: Sequence[TensorType]):
        self.draw, self.types = draw, types

    def pick(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def graph(self, name: str, params: Sequence[TensorType], depth: int, results: Sequence[TensorType] | None,
              last: Any = None) -> Graph:
        """A graph of these parameters; it makes results of these types, `last` makes one more of the values."""
        builder = Builder(name)
        values: list[Value] = [builder.parameter(t, f"x{k}") for k, t in enumerate(params)]
        with using(builder):
            for _ in range(self.draw(st.integers(1, 4))):
                values += self.step(values, depth) if values else [self.of_type((), self.pick(self.types))]
            made = [self.of_type(values, t) for t in results] if results is not None else [
                self.pick(values[-4:]) for _ in range(self.draw(st.integers(1, 3)))] + values[-1:]
            if last is not None:
                made = last(values, made)
        return builder.finish(made)

    def of_type(self, values: Sequence[Value], type: TensorType) -> Value:
        found = [x for x in values if x.type == type]
        if found:
            return found[-1] if self.pick((True, True, False)) else self.pick(found)
        one: Value = shape.full_op(1 if type == COUNT else 0.5, shape=type.shape)
        return shape.cast(one, dtype=type.dtype) if one.dtype is not type.dtype else one

    def step(self, values: Sequence[Value], depth: int) -> Sequence[Value]:
        """New values: of an operator, or of a structure."""
        x = self.pick(values[-4:])
        kinds = ["cond", "switch", "while", "scan"] * depth + ["unary", "binary", "reduce", "matmul"]
        kind = self.pick(kinds)
        if kind in ("cond", "switch", "while", "scan"):
            made = getattr(self, kind + "_")(values, depth - 1)
            return made if isinstance(made, tuple) else (made,)
        if x.type == COUNT:
            return (x + self.pick((0, 1, -1)),)
        others = [y for y in values if y.type == x.type]
        if kind == "binary":
            return (self.pick(BINARY)(x, self.pick(others)),)
        if kind == "reduce" and x.ndim:
            return (trigonometric.tanh(shape.broadcast_to(r.sum_(x, axis=0, keepdims=True), shape=x.shape) + x),)
        if kind == "matmul" and x.ndim == 2:
            right = [y for y in values if y.type == self.types[3]]
            if right:
                return (trigonometric.tanh(matmul_op(x, self.pick(right))),)
        return (self.pick(UNARY)(x),)

    def some(self, values: Sequence[Value]) -> list[Value]:
        return self.draw(st.lists(st.sampled_from(values), max_size=4)) if values else []

    def results(self) -> list[TensorType]:
        return self.draw(st.lists(st.sampled_from(self.types), min_size=1, max_size=3))

    def cond_(self, values: Sequence[Value], depth: int) -> Any:
        given, results = self.some(values), self.results()
        types = [x.type for x in given]
        x = self.pick(values)
        pred = r.sum_(x, axis=None, keepdims=False) > 0 if x.ndim else x > 0
        return cond(pred, *given, true=self.graph("yes", types, depth, results),
                    false=self.graph("no", types, depth, results))

    def switch_(self, values: Sequence[Value], depth: int) -> Any:
        given, results = self.some(values), self.results()
        types = [x.type for x in given]
        graphs = tuple(self.graph(f"case{k}", types, depth, results) for k in range(self.draw(st.integers(1, 3))))
        return switch(self.of_type(values, COUNT), *given, branches=graphs)

    def while_(self, values: Sequence[Value], depth: int) -> Any:
        """As often as a counter, which is carried in front, says, or less often."""
        fixed, carried = self.some(values), self.some(values)
        start = shape.cast(shape.full_op(self.draw(st.integers(0, 4)), shape=()), dtype=int64)
        types = [x.type for x in (*fixed, start, *carried)]
        place = len(fixed)

        def condition(inner: Sequence[Value], made: Sequence[Value]) -> list[Value]:
            others = [x for x in inner if not x.ndim and x.type != COUNT]
            more = inner[place] > 0
            return [more & (self.pick(others) < 0.75) if others and self.draw(st.booleans()) else more]

        def count_down(inner: Sequence[Value], made: list[Value]) -> list[Value]:
            return [inner[place] - 1, *made]

        body = self.graph("body", types, depth, [x.type for x in carried], count_down)
        return while_loop(*fixed, start, *carried, constants=place, body=body,
                          condition=self.graph("condition", types, 0, [], condition))

    def scan_(self, values: Sequence[Value], depth: int) -> Any:
        along = [x for x in values if x.ndim and not (isinstance(x.shape[0], int) and x.shape[0] > 10)]    # short
        length = self.pick(along).shape[0] if along else self.draw(st.integers(0, 4))
        fixed, carried = self.some(values), self.some(values)
        sequences = [x for x in self.some(along) if x.shape[0] == length] if along else []
        types = [x.type for x in (*fixed, *carried)] + [x.type.with_shape(x.shape[1:]) for x in sequences]
        stacked = self.results() if self.draw(st.booleans()) or not carried else []
        body = self.graph("body", types, depth, [*(x.type for x in carried), *stacked])
        return scan(*fixed, *carried, *sequences, constants=len(fixed), carried=len(carried), length=length, body=body,
                    reverse=self.draw(st.booleans()))


def arguments_for(graph: Graph, seed: int = 0, **sizes: int) -> list[np.ndarray]:
    """Arrays for the parameters."""
    random = np.random.default_rng(seed)
    made = []
    for p in graph.params:
        shape = [n if isinstance(n, int) else n.evaluate(sizes) if hasattr(n, "evaluate") else sizes["B"]
                 for n in p.shape]
        made.append(np.asarray(random.integers(-1, 4)) if p.dtype is int64
                    else random.normal(size=shape).astype(np.float32))
    return made
