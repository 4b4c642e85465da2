"""A function of operators, on arrays of certain types -> NumPy calls in a row, recorded once.

    recipe = recipe_of(graph)       # None where it has effects, sub-graphs, or users' operators
    results = recipe.run(arrays)

What a definition does in Python (canonical attributes, promotion, shapes) is done when it is recorded, and so are its
constants.  Composites are opened; the values are those of the definition run operator by operator, since the same
references compute them.  NumPy broadcasts by itself, and a ufunc writes where a large input of its own lies that
nobody reads any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tenon.eager.compiled_ops import heavy_program, run_whole
from tenon.eager.errstate import quiet
from tenon.eager.fuse_steps import Fuser
from tenon.eager.tier_up import prepared, warming
from tenon.eager.trace_reference import ReferenceSteps, steps_of
from tenon.graph.build import expansion, types_of
from tenon.graph.interpret import NARROW, as_type, evaluate_op
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.graph.op import OPS
from tenon.ops.placing import MOVES
from tenon.ops.shape import spread
from tenon.runtime.buffer_pool import UNMAPPED_BYTES as LARGE_MEMORY
from tenon.runtime.buffer_pool import filled
from tenon.types import TensorType, as_dtype, broadcast_shapes

MAX_KEPT = 4096         # elements of a constant that is worth keeping
# elements, above which a result is worth writing over an input: machine code makes new ones
MIN_IN_PLACE_ELEMENTS = 1 << 14
Attrs = Sequence[tuple[str, Any]]           # what a function is called with beside arrays; no name: by its place
Step = tuple[Callable[..., Any], Attrs, tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]

natives: dict[Any, Callable[..., Any]] = {}     # ufunc or `reduce` -> the same on small arrays, sooner
fusers: list[Fuser] = []                       # at most one: where there is machine code
_recipes: WeakValueDictionary[int, Recipe] = WeakValueDictionary()      # by identity


class Recipe:
    """The steps; `run` may be called by several threads at once."""

    def __init__(self, writer: _RecipeWriter, results: Sequence[int], name: str):
        self.programs = writer.programs         # whether some steps are machine code
        self.steps = _with_deaths(writer, set(results))
        self.several = len(results) != 1
        self._fixed = writer, results, name
        steps = self._fused()
        self.function = _as_python(writer, self.steps if steps is None else steps, results, name)
        _recipes[id(self)] = self

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The results on arrays of the types it was made for; what NumPy raises passes."""
        out = self.call(*arrays)
        return out if self.several else (out,)

    def call(self, *arrays: Any) -> Any:
        """The result, or the tuple of several."""
        if not self.programs:
            return quiet.run(self.function, *arrays)
        with np.errstate(all="ignore"):         # machine code runs in the context of whoever calls
            return self.function(*arrays)

    def _fused(self) -> list[Step] | None:
        """The steps with those made one that can be; None where there are none."""
        writer, results, name = self._fixed
        if not fusers:
            return None
        steps = fusers[0].fused(self.steps, writer.types, set(results), partial(_Unfused, writer, name))
        return steps if len(steps) < len(self.steps) else None

    def use_natives(self) -> None:
        """Go on with machine code.  The function stays the same object, since others hold it; whoever runs it now goes
        on with the names that it had."""
        steps, names = self._fused(), self.function.__globals__
        if steps is None:
            names.update({name: natives[x] for name, x in names.items() if callable(x) and x in natives})
            return
        writer, results, name = self._fixed
        made = _as_python(writer, steps, results, name, mark="n")
        names.update(made.__globals__)
        self.function.__code__ = made.__code__


class _Unfused:
    """Steps that machine code makes as one, where an array does not lie as is usual: written when they are called."""

    def __init__(self, writer: _RecipeWriter, name: str, steps: Sequence[Step], given: Sequence[int],
                 outs: Sequence[int]):
        self.fixed = writer, steps, outs, name, given
        self.function: Callable[..., Any] | None = None

    def __call__(self, *arrays: Any) -> Any:
        if self.function is None:
            self.function = _as_python(*self.fixed)
        return self.function(*arrays)


def _as_python(writer: _RecipeWriter, steps: Sequence[Step], results: Sequence[int], name: str,
               params: Sequence[int] | None = None, mark: str = "") -> Callable[..., Any]:
    """The steps as one Python function, a line each: names take less time than places in a list."""
    params = range(writer.params) if params is None else params
    names: dict[str, Any] = {"array": np.ndarray, "as_type": as_type}
    for k, held in enumerate(writer.held):
        if held is not None:
            names[f"v{k}"] = held
    lines = [f"def recipe({', '.join(f'v{k}' for k in params)}):"]
    for n, (function, attrs, places, outs, into, dead) in enumerate(steps):
        given = [f"v{k}" for k in places]
        if into >= 0:
            function, given = partial(_over, function), [f"v{into}", *given]
        elif _fills_large(writer, places, outs):
            function = partial(filled, function, writer.types[outs[0]].dtype.numpy)
        for k, (attribute, value) in enumerate(attrs):
            names[f"a{mark}{n}_{k}"] = value
            given.append(f"{attribute}=a{mark}{n}_{k}" if attribute else f"a{mark}{n}_{k}")
        names[f"f{mark}{n}"] = natives.get(function, function)
        lines.append(f"    {', '.join(f'v{k}' for k in outs)} = f{mark}{n}({', '.join(given)})")
        for k in outs:
            names[f"type{k}"], names[f"dtype{k}"] = writer.types[k], writer.types[k].dtype.numpy
            lines.append(f"    if type(v{k}) is not array or v{k}.dtype is not dtype{k}: v{k} = as_type(v{k}, type{k})")
        lines += [f"    del v{k}" for k in dead if writer.held[k] is None]
    lines.append("    return " + (f"v{results[0]}" if len(results) == 1 else
                                  f"({''.join(f'v{k}, ' for k in results)})"))
    exec(compile("\n".join(lines), f"<recipe of {name}>", "exec"), names)
    made: Callable[..., Any] = names["recipe"]
    return made


def _over(ufunc: Callable[..., Any], target: Any, *arrays: Any) -> Any:
    """The result in the place of an input, where that lies as a new one would: sums go along memory."""
    if all(x.flags.c_contiguous for x in arrays) or all(x.strides == target.strides for x in arrays if x.ndim):
        return ufunc(*arrays, out=target)
    return ufunc(*arrays)


def use_natives(found: Mapping[Any, Callable[..., Any]], fuser: Fuser) -> None:
    """Let recipes call these in the place of ufuncs, and make steps one, those that are written already too."""
    natives.update(found)
    fusers[:] = [fuser]
    for reference in _recipes.valuerefs():      # a copy made at once: other threads go on to make recipes
        if (recipe := reference()) is not None:
            recipe.use_natives()


class CannotWrite(Exception):
    """The function does something that arrays and references do not tell."""


def recipe_of(graph: Graph) -> Recipe | None:
    """The recipe of a graph of known sizes; None where it has none."""
    writer = _RecipeWriter()
    try:
        places = {p: writer.place(p.type) for p in graph.params}
        writer.params = len(places)
        writer.add(graph, places)
        return Recipe(writer, [writer.copied(writer.forced(places[r])) for r in graph.results], graph.name)
    except CannotWrite:
        return None


class _RecipeWriter:
    """Steps and the places of their values, as a graph is gone through."""

    def __init__(self) -> None:
        self.types: list[TensorType] = []
        self.held: list[Any] = []               # what is known now
        self.steps: list[tuple[Callable[..., Any], Attrs, tuple[int, ...], tuple[int, ...]]] = []
        self.fresh: set[int] = set()            # what a ufunc has made
        self.wider: dict[int, int] = {}         # broadcast value -> what it is made of, until somebody needs it whole
        self.params = 0
        self.programs = False

    def place(self, type: TensorType, held: Any = None) -> int:
        """A new place."""
        self.types.append(type)
        self.held.append(held)
        return len(self.types) - 1

    def add(self, graph: Graph, places: dict[Value, int]) -> None:
        """Write the nodes of a graph; `places` of its parameters, and afterwards of all its values."""
        for node in graph.nodes:
            if node.op.effect or node.op.data_dependent or node.op in MOVES or not node.op.is_own \
                    or _holds_graphs(node):
                raise CannotWrite
            inputs = [None if x is None else self._literal(x) if isinstance(x, Literal) else places[x]
                      for x in node.inputs]
            places.update(zip(node.outputs, self._node(node, inputs), strict=True))

    def _literal(self, x: Literal) -> int:
        return self.place(x.type, np.asarray(x.value, x.dtype.numpy))

    def _node(self, node: Node, inputs: list[int | None]) -> list[int]:
        op, types = node.op, types_of(node.inputs)
        outputs = [x.type for x in node.outputs]
        if op is OPS["broadcast_to"] and inputs[0] is not None:
            place = self.place(outputs[0])
            self.wider[place] = self.wider.get(inputs[0], inputs[0])
            return [place]
        if op is OPS["cast"] and types[0] == outputs[0] and inputs[0] is not None:
            return [inputs[0]]
        if (known := self._known(node, inputs, outputs)) is not None:
            return known
        if op.elementwise and isinstance(op.ref, np.ufunc) and not node.attrs and not _narrow(types):
            given = [self.wider.get(k, k) for k in inputs if k is not None]
            if broadcast_shapes(*(self.types[k].shape for k in given)) != outputs[0].shape:
                given = [self.forced(k) for k in inputs if k is not None]
            outs = self._step(op.ref, given, outputs)
            self.fresh.update(outs)
            return outs
        given = [self.forced(k) for k in inputs if k is not None]
        whole = len(given) == len(inputs)
        program = heavy_program(op, types, outputs, node.attrs) if not isinstance(op.ref, np.ufunc) else None
        if program is not None:
            self.programs = True
            return self._step(partial(run_whole, program), given, outputs)
        if op.expand is not None and op.ref is None:
            return self._opened(node, types, inputs)
        if whole and op.ref is not None and not _narrow(types):
            if (warm := warming(op, types, outputs, node.attrs)) is not None:
                self.programs = True
                return self._step(warm, given, outputs)
            if (call := prepared(op, types, node.attrs)) is not None:
                return self._step(call[0], given, outputs, [("", x) for x in call[1]])
            if (steps := steps_of(op.ref, types, node.attrs)) is not None and [steps.type] == outputs:
                return [self._stepped(steps, given)]
            return self._step(op.ref, given, outputs, tuple(node.attrs.items()))
        return self._step(partial(_evaluated, node, [k is None for k in inputs], outputs), given, outputs)

    def _opened(self, node: Node, types: Sequence[TensorType | None], inputs: list[int | None]) -> list[int]:
        body = expansion(node.op, tuple(types), node.attrs)
        places = dict(zip(body.params, (k for k in inputs if k is not None), strict=True))
        self.add(body, places)
        return [places[r] for r in body.results]

    def _known(self, node: Node, inputs: Sequence[int | None], outputs: Sequence[TensorType]) -> list[int] | None:
        """The places of what depends on nothing but constants, which is computed now; None where it does, or is large.
        """
        held: list[Any] = [None if k is None else self.held[self.wider.get(k, k)] for k in inputs]
        if any(k is not None and x is None for k, x in zip(inputs, held, strict=True)) \
                or any(int(type.size) > MAX_KEPT for type in outputs):
            return None
        arrays = [x if k is None else spread(x, self.types[k].shape) for k, x in zip(inputs, held, strict=True)]
        found = evaluate_op(node.op, arrays, node.attrs, outputs)
        return [self.place(type, x) for type, x in zip(outputs, found, strict=True)]

    def _step(self, function: Callable[..., Any], given: Sequence[int], outputs: Sequence[TensorType],
              attrs: Attrs = ()) -> list[int]:
        outs = [self.place(t) for t in outputs]
        self.steps.append((function, attrs, tuple(given), tuple(outs)))
        return outs

    def _stepped(self, steps: ReferenceSteps, given: Sequence[int]) -> int:
        """The place of what steps give; the results of ufuncs are new memory."""
        places = list(given)
        for row in steps.rows:
            read = [self.place(TensorType(as_dtype(x.dtype), x.shape), x) if isinstance(x, np.ndarray) else places[x]
                    for x in row.given]
            places += self._step(row.function, read, [row.type], row.behind)
            if isinstance(row.function, np.ufunc):
                self.fresh.add(places[-1])
        return places[steps.result]

    def forced(self, place: int) -> int:
        """The place of a value with all its elements."""
        if place not in self.wider:
            return place
        source, type = self.wider.pop(place), self.types[place]
        self.steps.append((spread, [("", type.shape)], (source,), (place,)))
        return place

    def copied(self, place: int) -> int:
        """The place of a result: a number is copied, since who gets it may write to it."""
        if self.held[place] is None:
            return place
        return self._step(np.copy, [place], [self.types[place]])[0]


def _holds_graphs(node: Node) -> bool:
    listed = [x for value in node.attrs.values() for x in (value if isinstance(value, tuple) else (value,))]
    return any(isinstance(x, Graph) for x in listed)


def _narrow(types: Sequence[TensorType | None]) -> bool:
    """Whether references are computed in float32."""
    return any(t is not None and t.dtype in NARROW for t in types)


def _evaluated(node: Node, missing: Sequence[bool], types: Sequence[TensorType], *arrays: Any) -> Any:
    rest = iter(arrays)
    out = evaluate_op(node.op, [None if gone else next(rest) for gone in missing], node.attrs, types)
    return out if len(out) > 1 else out[0]


def _fills_large(writer: _RecipeWriter, places: Sequence[int], outs: Sequence[int]) -> bool:
    """Whether a ufunc fills so much memory that it should be some that was used before."""
    type = writer.types[outs[0]]
    return outs[0] in writer.fresh and int(type.size) * type.dtype.itemsize >= LARGE_MEMORY \
        and all(writer.types[k].dtype is type.dtype for k in places)


def _with_deaths(writer: _RecipeWriter, results: set[int]) -> list[Step]:
    """The steps, each with the place that it may write over and with those that nobody reads after it."""
    last = {k: n for n, (_, _, places, _) in enumerate(writer.steps) for k in places}
    seen = {k for _, _, places, outs in writer.steps if outs[0] not in writer.fresh for k in places}
    own = writer.fresh - seen               # of those made here, whose memory no view shows
    found: list[Step] = []
    for n, (function, attrs, places, outs) in enumerate(writer.steps):
        dead = tuple({k for k in places if last[k] == n and k not in results and k >= writer.params})
        type = writer.types[outs[0]]
        large = outs[0] in writer.fresh and int(type.size) > MIN_IN_PLACE_ELEMENTS
        into = next((k for k in dead if large and k in own and writer.types[k] == type), -1)
        found.append((function, attrs, places, outs, into, dead))
    return found
