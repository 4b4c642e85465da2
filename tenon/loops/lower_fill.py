"""Fill rules -> nests: running totals, scattered writes, orders of rows, places in what is ordered: what takes turns.

    fill=lambda s, x, *, axis, reverse: s.scan((x,), axis, reverse, [0], lambda state, x, k: (state[0] + x[0],))

A rule reads its inputs as a compute rule does, so that views are read through; its loops run over places that do not
depend on one another in parallel, and over the others in order, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenon.dims.symbolic_dim import Dim, product
from tenon.graph.ir import Graph, Node, Value
from tenon.loops.cost import FUNCTION, operations
from tenon.loops.expression_builder import GraphExpressions, InputRead, Scalars, is_empty, offset
from tenon.loops.expressions import OPERATION, Binary, Buffer, Expr, Index, Load, Local, Select, identity, lift, size
from tenon.loops.loop_ir import Block, Let, Loop, Nest, Stmt, Store
from tenon.loops.loop_pipeline import schedule
from tenon.loops.rfactor import accumulated
from tenon.loops.simplify_expressions import simplify
from tenon.loops.sorting import Ordering
from tenon.loops.store_target import GRAIN_ELEMENTS, StoreTarget
from tenon.loops.traversal import walk
from tenon.ops.shape import reshape_op
from tenon.types import DType, Shape, TensorType, float32, float64, int64

TILE_LANES = 256        # neighbours that are computed together
TOTALS = 1 << 13    # bytes of running totals that are: of shorter pieces of rows, each in another page, memory is slow
MAX_AXIS_SIZE = 1 << 31  # the first step of a search in an axis whose size is a symbol
COLUMN_LANES = 16       # columns that are ordered together: a cache line or two
MAX_COPIED_BYTES = 1 << 19  # columns of more bytes are not copied together
SEARCHED_PLACES = 512   # places that are searched as vectors, before anything is written there
TOGETHER, QUICK = 8, 4      # rows that take turns, so that no step waits for the last one, and of quick steps
Step = Callable[[Sequence[Expr], Sequence[Expr], Expr], Sequence[Expr]]


def fill_node(graph: Graph) -> Node | None:
    """The node of a body that is filled in an order; it is the last."""
    return next((node for node in graph.nodes if node.op.fill is not None), None)


def is_filled_by(graph: Graph, node: Node) -> bool:
    """Whether the results are the node's outputs and nothing else; other shapes leave them where they are in memory."""
    origin: dict[Any, Value] = dict(zip(node.outputs, node.outputs, strict=True))
    for other in graph.nodes:
        if other.op is reshape_op and other.inputs[0] in origin:
            origin[other.output] = origin[other.inputs[0]]
    return [origin.get(result) for result in graph.results] == list(node.outputs)


class Filling(Scalars):
    """What a fill rule is written against: it adds nests that store the outputs."""

    def __init__(self, build: GraphExpressions, node: Node, outputs: Sequence[Buffer]):
        super().__init__()
        self.build, self.outputs, self.value = build, outputs, node.output
        # Results may be reshaped: rules fill what the node makes.
        self.shape_of = {out: x.shape for out, x in zip(outputs, node.outputs, strict=True)}
        self.nests: list[Nest] = []
        build.scalars = self
        rule = node.op.fill
        assert rule is not None
        if not any(is_empty(buffer.type) for buffer in outputs):
            rule(self, *map(build.read, node.inputs), **node.attrs)

    # ------------------------------------------------------------ running totals

    def least(self, dtype: DType) -> Expr:
        """What no element is below."""
        return identity("max", dtype)

    def most(self, dtype: DType) -> Expr:
        """What no element is above."""
        return identity("min", dtype)

    def scan(self, xs: Sequence[InputRead], axis: int, reverse: bool, start: Sequence[Any], step: Step,
             wide: bool = False) -> None:
        """Along an axis: state = step(state, elements, place); the outputs hold the state after each place.

        All that is read is of one shape.  A `wide` state is one of float64 where its output is of float32.
        """
        inner = product(xs[0].shape[axis + 1:])
        along = self._scan_neighbours if not isinstance(inner, int) or inner >= TOGETHER else self._scan_rows
        types = [float64 if wide and b.type.dtype is float32 else b.type.dtype for b in self.outputs]
        along(xs, axis, reverse, [lift(s, dtype) for s, dtype in zip(start, types, strict=True)], step)

    def _scan_rows(self, xs: Sequence[InputRead], axis: int, reverse: bool, start: Sequence[Expr], step: Step) -> None:
        """Several rows at a time, element after element.

        Where rows lie one behind the other, those that take turns are far apart, each in a part of memory that is gone
        through from row to row: short neighbours are more streams within a page than a processor follows.
        """
        x = xs[0]
        rest = (*x.shape[:axis], *x.shape[axis + 1:])
        rows, last = product(rest), axis == x.ndim - 1
        together = QUICK if self._is_quick(xs, start, step) else TOGETHER
        together = min(rows, together) if isinstance(rows, int) else together
        states = self._states(start, together)
        iteration, k = Index("rows", (rows + (together - 1)) // together), Index("k", x.shape[axis])
        clear: list[Stmt] = []
        body: list[Stmt] = []
        for r in range(together):
            row: Expr = iteration + size(r) * size(iteration.extent) if last else iteration * size(together) + size(r)
            if not isinstance(rows, int) or rows % together:
                row = Binary("min", row, size(rows) - size(1))      # the last row may be computed again
            clear += [Store(b, size(r), s) for b, s in zip(states, start, strict=True)]
            body += self._stepped(xs, axis, _index(rest, row), k, reverse, states, size(r), step)
        loops = (*clear, Loop(k, size(k.extent), tuple(body)))
        self._parallel(iteration, loops, together * _work(x.shape[axis]), states)

    def _is_quick(self, xs: Sequence[InputRead], start: Sequence[Expr], step: Step) -> bool:
        """Whether a state follows from the one before by a few operations."""
        states = [Local(f"state{n}", accumulated(s.dtype)) for n, s in enumerate(start)]
        elements = [Local(f"element{n}", accumulated(x.dtype)) for n, x in enumerate(xs)]
        found = step(states, elements, Local("place", int64))
        return sum(map(operations, walk(*found))) < FUNCTION

    def _scan_neighbours(self, xs: Sequence[InputRead], axis: int, reverse: bool, start: Sequence[Expr],
                         step: Step) -> None:
        """Rows of neighbours, row after row."""
        x = xs[0]
        outer, inner = x.shape[:axis], x.shape[axis + 1:]
        width = TOTALS // sum(accumulated(s.dtype).itemsize for s in start) // TILE_LANES * TILE_LANES
        tiles, lanes, lane = _tiles(product(inner), width)
        both, k = Index("tile", product(outer) * tiles.extent), Index("k", x.shape[axis])
        states = self._states(start, lane.extent)
        tile = both % size(tiles.extent)
        count = lanes(tile)
        place = _index(outer, both // size(tiles.extent)) + _index(inner, tile * size(width) + lane)
        clear = Loop(lane, count, tuple(Store(b, lane, s) for b, s in zip(states, start, strict=True)), "vector")
        body = self._stepped(xs, axis, place, k, reverse, states, lane, step)
        row = Loop(k, size(k.extent), (Loop(lane, count, tuple(body), "vector"),))
        self._parallel(both, (clear, row), width * _work(x.shape[axis]), states)

    def _states(self, start: Sequence[Expr], count: Dim) -> list[Buffer]:
        return [Buffer(f"state{n}", TensorType(accumulated(s.dtype), (count,)), "local") for n, s in enumerate(start)]

    def _stepped(self, xs: Sequence[InputRead], axis: int, others: Sequence[Expr], k: Index, reverse: bool,
                 states: Sequence[Buffer], at: Expr, step: Step) -> list[Stmt]:
        """One place of a row: the new state, stored in both places."""
        position = size(k.extent) - size(1) - k if reverse else k
        index = tuple(map(simplify, (*others[:axis], position, *others[axis:])))
        elements = [self.cast(x(index), accumulated(x.dtype)) for x in xs]
        found = step([Load(b, at, None) for b in states], elements, position)
        names = [Local(f"v{b.name}_{at}".replace(" ", ""), b.type.dtype) for b in states]
        body: list[Stmt] = [Let(name, self.cast(value, name.dtype)) for name, value in zip(names, found, strict=True)]
        for name, state, out in zip(names, states, self.outputs, strict=True):
            where = offset(self.shape_of[out], index)
            body += [Store(state, at, name), Store(out, where, self.cast(name, out.type.dtype))]
        return body

    # ------------------------------------------------------------ order

    def order(self, x: InputRead, axis: int, descending: bool, first: Dim) -> None:
        """The places of the `first` elements along an axis, in order; equal ones as they come, NaN as the largest."""
        inner, count = product(x.shape[axis + 1:]), x.shape[axis]
        if isinstance(inner, int) and isinstance(count, int) and isinstance(first, int) and inner >= TOGETHER \
                and COLUMN_LANES * count * x.dtype.itemsize <= MAX_COPIED_BYTES:
            self._order_beside(x, axis, descending, first)
            return
        (out,) = self.outputs
        rest = (*x.shape[:axis], *x.shape[axis + 1:])
        row, j = Index("row", product(rest)), Index("n", first)
        others = _index(rest, row)

        def at(place: Expr) -> tuple[Expr, ...]:
            return tuple(map(simplify, (*others[:axis], place, *others[axis:])))
        ordering = Ordering(x.dtype, x.shape[axis], first)
        body = ordering.statements(lambda place: x(at(place)), descending)
        stored = Loop(j, size(first), (Store(out, offset(self.shape_of[out], at(j)), ordering.place(j)),), "vector")
        self._parallel(row, (*body, stored), _work(ordering.work), ordering.buffers)

    def _order_beside(self, x: InputRead, axis: int, descending: bool, first: int) -> None:
        """The same for columns: so many at a time are copied to rows, which are ordered."""
        (out,) = self.outputs
        outer, inner, count = x.shape[:axis], x.shape[axis + 1:], x.shape[axis]
        columns = product(inner)
        tiles = Index("tiles", (columns + (COLUMN_LANES - 1)) // COLUMN_LANES)
        both, lane = Index("tile", product(outer) * tiles.extent), Index("lane", COLUMN_LANES)
        k, j = Index("k", count), Index("n", first)
        tile = both % size(tiles.extent)
        lanes = Binary("min", size(COLUMN_LANES), size(columns) - tile * size(COLUMN_LANES))
        others = _index(outer, both // size(tiles.extent)) + _index(inner, simplify(tile * size(COLUMN_LANES) + lane))

        def at(place: Expr) -> tuple[Expr, ...]:
            return (*others[:axis], place, *others[axis:])
        rows = Buffer("rows", TensorType(x.dtype, (COLUMN_LANES, count)), "local")
        places = Buffer("ordered", TensorType(int64, (COLUMN_LANES, first)), "local")
        ordering = Ordering(x.dtype, count, first)
        copied = Store(rows, lane * count + k, x(at(k)))
        body = ordering.statements(lambda place: Load(rows, lane * count + place, None), descending)
        kept = Loop(j, size(first), (Store(places, lane * first + j, ordering.place(j)),), "vector")
        stored = Store(out, offset(self.shape_of[out], at(j)), Load(places, lane * first + j, None))
        self._parallel(both, (Loop(k, size(count), (Loop(lane, lanes, (copied,), "vector"),)),
                              Loop(lane, lanes, (*body, kept)),
                              Loop(j, size(first), (Loop(lane, lanes, (stored,), "vector"),))),
                       COLUMN_LANES * _work(ordering.work), [rows, places, *ordering.buffers])

    def deal(self, chances: InputRead) -> None:
        """Number k to place chances[k] * (k + 1) of the last axis, what was there to place k, one after the other."""
        (out,) = self.outputs
        *lead, count = self.shape_of[out]
        row, k, chosen = Index("row", product(lead)), Index("k", count), Local("chosen", int64)
        first = _index(tuple(lead), row)
        chance = chances((*first, k))
        place = Binary("min", chance * self.cast(k + 1, float64), self.cast(k, float64))

        def at(place: Expr) -> Expr:
            return offset(self.shape_of[out], (*first, place))
        body = (Let(chosen, Select(chance > 0, self.cast(place, int64), size(0))),
                Store(out, at(k), Load(out, at(chosen), None)), Store(out, at(chosen), k))
        self._parallel(row, (Loop(k, size(count), body),), 4 * _work(count))

    def search(self, x: InputRead, values: InputRead, right: bool) -> None:
        """How many elements of the ordered last axis of x come before each value: each step takes half as many."""
        (out,) = self.outputs
        n, shape = x.shape[-1], values.shape
        by_rows = x.ndim > 1 and not isinstance(product(shape), int)    # no position is divided by a size that changes
        if by_rows:
            outer, lane = Index("row", product(shape[:-1])), Index("lane", shape[-1])
            at, width, work = (*_index(shape[:-1], outer), lane), size(shape[-1]), _work(shape[-1])
        else:
            outer, lanes, lane = _tiles(product(shape))
            at, width, work = _index(shape, outer * size(TILE_LANES) + lane), lanes(outer), TILE_LANES
        row = at[:-1] if x.ndim > 1 else ()
        value, element, found = Local("value", values.dtype), Local("element", x.dtype), Local("found", int64)
        body: list[Stmt] = [Let(value, values(at)), Let(found, size(0))]
        step = 1 << n.bit_length() >> 1 if isinstance(n, int) else MAX_AXIS_SIZE
        while step:
            further = found + step
            before = ~self._less(value, element) if right else self._less(element, value)
            body += [Let(element, x((*row, Binary("min", further, size(n)) - 1))),
                     Let(found, Select((further <= size(n)) & before, further, found))]
            step //= 2
        body.append(Store(out, offset(shape, at), found))
        self._parallel(outer, (Loop(lane, width, tuple(body), "vector"),), work * len(body))

    def _less(self, x: Expr, y: Expr) -> Expr:
        """Whether x comes before y; NaN is the largest."""
        return (x < y) | (self.isnan(y) & ~self.isnan(x)) if x.dtype.kind == "f" else x < y

    # ------------------------------------------------------------ small matrices

    def each(self, lead: Shape, elements: Callable[..., Sequence[Any]]) -> None:
        """For every place of the leading axes: `elements(place, keep)` says the matrix of each output, row by row.

        `keep` computes a number once, in the order of its calls, and gives its name.
        """
        flat, body = Index("each", product(lead)), list[Stmt]()
        place = _index(lead, flat)

        def keep(value: Expr) -> Expr:
            name = Local(f"v{len(body)}", value.dtype)
            body.append(Let(name, simplify(value)))
            return name
        for out, matrix in zip(self.outputs, elements(place, keep), strict=True):
            after = self.shape_of[out][len(lead):]
            for row, values in enumerate(matrix):
                for column, value in enumerate(values):
                    at = (*place, *(size(row), size(column))[:len(after)])
                    body.append(Store(out, offset(self.shape_of[out], at), self.cast(value, out.type.dtype)))
        self._parallel(flat, tuple(body), len(body))

    # ------------------------------------------------------------ scattered writes

    def write_rows(self, x: InputRead, at: InputRead, updates: InputRead, axis: int, reduce: str) -> None:
        """x, and then updates[a, i, b] written to [a, at[i], b] for every i in order."""
        self._copy(x)
        outer, inner = x.shape[:axis], x.shape[axis + 1:]
        tiles, lanes, lane = _tiles(product(inner))
        both = Index("tile", product(outer) * tiles.extent)
        first, last = _index(outer, both // size(tiles.extent)), _index(
            inner, both % size(tiles.extent) * size(TILE_LANES) + lane)
        if product(inner) == 1 and at.ndim == 1:
            self._write_at_places(both, at.shape[0], lambda k: self.index(at((k,)), x.shape[axis]),
                                  lambda k, place: self._written((*first, place, *last), updates((*first, k, *last)),
                                                                 reduce))
            return
        numbers = tuple(Index(f"k{n}", extent) for n, extent in enumerate(at.shape))
        place = Local("place", int64)
        write = self._written((*first, place, *last), updates((*first, *numbers, *last)), reduce)
        body: Block = (Let(place, self.index(at(numbers), x.shape[axis])),
                       Loop(lane, lanes(both % size(tiles.extent)), (write,), "vector"))
        for number in reversed(numbers):
            body = (Loop(number, size(number.extent), body),)
        self._parallel(both, body, TILE_LANES * _work(product(at.shape)))

    def write_elements(self, x: InputRead, at: InputRead, updates: InputRead, axis: int, reduce: str) -> None:
        """x, and then updates[a, i, b] written to [a, at[a, i, b], b] for every i in order."""
        self._copy(x)
        outer, inner = at.shape[:axis], at.shape[axis + 1:]
        columns = product(inner)

        def written(first: Sequence[Expr], last: Sequence[Expr], k: Expr, place: Expr) -> Store:
            return self._written((*first, place, *last), updates((*first, k, *last)), reduce)

        def found(first: Sequence[Expr], last: Sequence[Expr], k: Expr) -> Expr:
            return self.index(at((*first, k, *last)), x.shape[axis])
        if isinstance(columns, int) and columns < TOGETHER:
            rest = Index("rest", product((*outer, columns)))
            others = _index((*outer, *inner), rest)
            around = others[:axis], others[axis:]
            self._write_at_places(rest, at.shape[axis], lambda k: found(*around, k),
                                  lambda k, place: written(*around, k, place))
            return
        k, place = Index("k", at.shape[axis]), Local("place", int64)
        tiles, lanes, lane = _tiles(columns)                    # each lane writes to a column of its own
        both = Index("tile", product(outer) * tiles.extent)
        tile = both % size(tiles.extent)
        around = _index(outer, both // size(tiles.extent)), _index(inner, simplify(tile * size(TILE_LANES) + lane))
        body = Let(place, found(*around, k)), written(*around, k, place)
        self._parallel(both, (Loop(k, size(k.extent), (Loop(lane, lanes(tile), body, "vector"),)),),
                       TILE_LANES * _work(at.shape[axis]))

    def _write_at_places(self, index: Index, count: Dim, found: Callable[[Expr], Expr],
                         written: Callable[[Expr, Expr], Store]) -> None:
        """For every index: `written(k, place)` at the place `found(k)` for k < count, in order.

        Whether places are in range is asked of many side by side: one by one it takes longer than writing there.
        """
        if isinstance(count, int) and count == 0:
            return
        tiles, lanes, lane = _tiles(count, SEARCHED_PLACES)
        places, place = Buffer("places", TensorType(int64, (lane.extent,)), "local"), Local("place", int64)
        k = simplify(tiles * size(SEARCHED_PLACES) + lane)
        body = (Loop(lane, lanes(tiles), (Store(places, lane, found(k)),), "vector"),
                Loop(lane, lanes(tiles), (Let(place, Load(places, lane, None)), written(k, place))))
        self._parallel(index, (Loop(tiles, size(tiles.extent), body),), _work(count), (places,))

    def _copy(self, x: InputRead) -> None:
        """x, to write to."""
        (out,) = self.outputs
        loops = tuple(Index(f"i{n}", extent) for n, extent in enumerate(self.shape_of[out]))
        self.nests.append(schedule([StoreTarget(out, loops, offset(self.shape_of[out], loops), x(loops))]))

    def _written(self, index: Sequence[Expr], value: Expr, reduce: str) -> Store:
        (out,) = self.outputs
        where = offset(self.shape_of[out], tuple(index))
        if reduce != "set":
            value = Binary(OPERATION[reduce], Load(out, where, None), value)
        return Store(out, where, value)

    def _parallel(self, index: Index, body: Block, work: int, states: Sequence[Buffer] = ()) -> None:
        grain = size(max(1, GRAIN_ELEMENTS // max(1, work)))
        self.nests.append(Nest((Loop(index, size(index.extent), tuple(body), "parallel", grain),), tuple(states)))


def _tiles(extent: Dim, most: int = TILE_LANES) -> tuple[Index, Callable[[Expr], Expr], Index]:
    """(tiles of neighbours, how many there are in one, their index in it)."""
    width = min(most, extent) if isinstance(extent, int) else most
    tiles = Index("tiles", (extent + (most - 1)) // most)
    whole = isinstance(extent, int) and extent % width == 0

    def lanes(tile: Expr) -> Expr:
        return size(width) if whole else Binary("min", size(width), simplify(size(extent) - tile * size(most)))
    return tiles, lanes, Index("lane", width)


def _index(shape: Shape, flat: Expr) -> tuple[Expr, ...]:
    """The index of a flat, row-major position."""
    found: list[Expr] = []
    for extent in reversed(shape):
        found.insert(0, simplify(flat % size(extent)) if len(found) < len(shape) - 1 else simplify(flat))
        flat = simplify(flat // size(extent))
    return tuple(found)


def _work(extent: Dim) -> int:
    return extent if isinstance(extent, int) else 64
