"""A function as data: graphs, with what they read and what is done with their results, and what a call must look like.

    Function(name, arguments, structure, values, variants)
    Variant(graph, sources, types, output, ...)     one capture: for some sizes, with gradients or without

A variant is what a capture leaves (`tenon.capture.captured`) without the Python that it was made from: the tensors from
outside are the state of the model, by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenon.capture.convert.reachable import OfCapture
from tenon.capture.parameter_sources import GradientOf, Held, Source
from tenon.capture.pytree import Structure
from tenon.capture.result_leaves import FromOutside, OneOf, ResultNest, SharedLeaf
from tenon.dims.size_assumptions import Assumptions
from tenon.graph.ir import Graph
from tenon.records import dataclass, field
from tenon.tensor import Tensor
from tenon.types import TensorType


@dataclass(frozen=True, eq=False)
class Variant:
    """One graph of a function, and what it is right for."""

    graph: Graph
    sources: tuple[Source, ...]                     # of the graph's parameters
    types: tuple[TensorType, ...]                   # of the leaves of the arguments that are tensors
    output: ResultNest
    assigned: tuple[tuple[Source, int, bool], ...] = ()         # tensor <- result, and whether with its gradient
    gradients: tuple[tuple[Source, int | None], ...] = ()       # tensor.grad <- result
    assumptions: Assumptions = field(default_factory=lambda: Assumptions({}))     # what was asked of sizes
    carrying: frozenset[int] = frozenset()          # the results through which gradients flow back
    by_data: tuple[tuple[int, int], ...] = ()       # parameters that get a gradient where a result says so
    failed: int | None = None                       # the result that says that the graph does not hold
    accumulates: bool | None = None                 # whether the gradients that it leaves are there before; None: any
    recording: bool | None = None                   # whether it is for calls that are recorded; None: for all
    raising: tuple[str, ...] = ()                   # what the function raises where the graph does not hold, in words

    @property
    def held(self) -> dict[int, Tensor]:
        """The tensors of the state that it reads, by the places of their parameters."""
        return {k: source.holder for k, source in enumerate(self.sources)
                if isinstance(source, Held) and isinstance(source.holder, Tensor)}

    def all_held(self) -> Iterator[Tensor]:
        """The tensors of the state that it reads, assigns or returns."""
        returned = [x.source for x in leaves_in(self.output) if isinstance(x, FromOutside)]
        for source in (*self.sources, *(x for x, _, _ in self.assigned), *(x for x, _ in self.gradients), *returned):
            inner = source.source if isinstance(source, GradientOf) else source
            if isinstance(inner, Held):
                assert isinstance(inner.holder, Tensor)
                yield inner.holder

    def reads_gradient(self, x: Tensor) -> bool:
        """Whether it reads the `.grad` of this tensor."""
        return any(isinstance(source, GradientOf) and isinstance(source.source, Held) and source.source.holder is x
                   for source in self.sources)

    @property
    def constants(self) -> tuple[int, ...]:
        """The places of the parameters that every call finds as they are and leaves so, such as weights."""
        own = {id(source) for source, _, _ in self.assigned}
        return tuple(k for k, source in enumerate(self.sources) if k in self.held and id(source) not in own)


def leaves_in(nest: ResultNest) -> Iterator[Any]:
    """The leaves of a nest, and of those among which the data choose."""
    for leaf in nest.leaves:
        yield leaf
        if isinstance(leaf, SharedLeaf):
            yield from leaves_in(leaf.nest)
        elif isinstance(leaf, OneOf):
            yield from (x for _, inner in leaf.options for x in leaves_in(inner))


@dataclass(frozen=True, eq=False)
class Function(OfCapture):
    """What a file knows of one function; no state of the user's, where a call of it is captured."""

    name: str
    arguments: tuple[str, ...]                      # the names of the leaves of its arguments
    positional: tuple[str, ...]                     # the names of its positional arguments
    structure: Structure                            # of (positional arguments, keyword arguments)
    values: Mapping[int, Any]                       # the leaves that are no tensors
    variants: tuple[Variant, ...]
    options: Mapping[str, Any] = field(default_factory=dict)    # of `tn.jit`


@dataclass(frozen=True, eq=False)
class Model:
    """All that is in a file: functions, and the tensors that they share, some under several names."""

    functions: Mapping[str, Function]
    state: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor] = field(default_factory=dict)       # `.grad`, which a function adds to
