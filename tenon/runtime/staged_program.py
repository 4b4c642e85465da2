"""A graph in which the data decide sizes -> an executable: stages run one after the other, each of ordinary size.

    program = StagedProgram(graph, compile)
    (chosen,) = program.run([x])        # x[x > 0], however many there are

Where a size is 0 or 1 the stage has a program of its own, as ordinary symbols have captures of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.dims.size_assumptions import answers_hold
from tenon.dims.symbolic_dim import symbols
from tenon.errors import ShapeError
from tenon.graph.interpret import evaluate_op, learn_shape
from tenon.graph.ir import SIZES, Graph, Literal, Node, Value
from tenon.graph.size_stages import of_sizes, small_sizes, stages_of
from tenon.locks import Lock
from tenon.program.backend_interface import Array, Executable, Then


class StagedProgram:
    """What runs such a graph."""

    def __init__(self, graph: Graph, compile: Callable[[Graph], Executable]):
        self.graph, self.stages, self.compile = graph, stages_of(graph), compile
        answers = dict(graph.notes.get(SIZES) or {})
        self.conditions = [(key, answer, symbols(key[0]) | symbols(key[2])) for key, answer in answers.items()]
        self._programs: dict[Any, Executable] = {}
        self._lock = Lock()
        for k, stage in enumerate(self.stages):
            if stage.made:
                self.program(k, {})

    def program(self, k: int, sizes: Mapping[str, int]) -> Executable:
        """What runs a stage where these are its sizes of 0 and 1, and the others larger."""
        key = k, tuple(sorted(sizes.items()))
        found = self._programs.get(key)
        if found is None:
            with self._lock:
                graph = self.stages[k].graph
                found = self._programs.get(key) or self.compile(of_sizes(graph, sizes) if sizes else graph)
                self._programs[key] = found
        return found

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results, in memory of their own; what `then` says is stored when all are there."""
        values: dict[Value, Array] = dict(zip(self.graph.params, map(np.asarray, arrays), strict=True))
        sizes: dict[str, int] = {}
        for value, array in values.items():
            learn_shape(value, array, sizes)
        self._check(sizes, frozenset())
        for k, stage in enumerate(self.stages):
            if stage.made:
                small = small_sizes({new: sizes[old] for old, new in stage.names.items() if old in sizes})
                out = self.program(k, small).run([values[x] for x in stage.reads])
                values.update(zip(stage.made, out, strict=True))
            known = frozenset(sizes)
            for node in stage.after:
                self._do(node, values, sizes)
            self._check(sizes, known)
        results = self._own(values)
        if then is not None:
            at_once(then(results, None) or ())
        return results

    def _do(self, node: Node, values: dict[Value, Array], sizes: dict[str, int]) -> None:
        """An operator that says a size."""
        inputs = [np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal) else None if x is None else values[x]
                  for x in node.inputs]
        for x, array in zip(node.outputs, evaluate_op(node.op, inputs, {"size": None}), strict=True):
            learn_shape(x, array, sizes)
            values[x] = array

    def _check(self, sizes: Mapping[str, int], before: frozenset[str]) -> None:
        """Raise where something else is true of the sizes that are known now than when the graph was captured."""
        for key, answer, names in self.conditions:
            if sizes.keys() >= names and not before >= names and not answers_hold({key: answer}, sizes):
                raise ShapeError(f"{self.graph.name}: {key[0]} {key[1]} {key[2]} is {not answer} for these data")

    def _own(self, values: Mapping[Value, Array]) -> list[Array]:
        """The results; what is an argument, or a result twice, is copied."""
        seen = set(self.graph.params)
        results = []
        for value in self.graph.results:
            results.append(values[value].copy() if value in seen else values[value])
            seen.add(value)
        return results
