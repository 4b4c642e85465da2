"""What a captured function left behind, leaf by leaf: results of the graph, containers, things from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tenon.capture.effects import MISSING
from tenon.capture.output_effects import Text
from tenon.capture.parameter_sources import Source
from tenon.capture.pytree import Structure
from tenon.dims.symbolic_dim import Dim, SymbolicDim
from tenon.locks import cached_property
from tenon.records import dataclass


@dataclass(frozen=True)
class FromGraph:
    """A leaf of the returned nest that is a result of the graph."""

    index: int
    requires_grad: bool
    released: bool      # it requires a gradient, and backward() has been through its tape
    name: int | None = None     # of a tensor that is left in several places, and is one tensor in all of them
    number: bool = False        # a Python number
    kind: type | None = None    # of a tensor: a class that inherits from it
    is_leaf: bool = False       # a gradient ends there
    grad: FromGraph | FromOutside | None = None     # what backward() left on it
    within: bool = False        # it requires a gradient, which goes no further than to leaves that the call made


@dataclass(frozen=True)
class OneOf:
    """A leaf that is one of several things: the first whose condition, a result of the graph, holds."""

    options: tuple[tuple[Any, ResultNest], ...]


@dataclass(frozen=True)
class SharedLeaf:
    """A leaf that is a container left in several places, one of them only where the data decide so."""

    name: int
    nest: ResultNest


@dataclass(frozen=True)
class RowsOf:
    """A leaf that is the first rows of results of the graph: a tensor of them, or elements of the list around it."""

    rows: tuple[Any, ...]
    count: Any
    form: Any = None        # of an element


@dataclass(frozen=True)
class FromOutside:
    """A leaf that is an outside tensor itself, or its gradient."""

    source: Source


@dataclass(frozen=True)
class FromArguments:
    """A leaf that is a number computed before the graph runs: that argument, behind the call's own."""

    position: int


@dataclass(frozen=True)
class FromContainers:
    """A leaf that is a container among the arguments, by its number."""

    number: int


@dataclass(frozen=True)
class FromSize:
    """A leaf that is a size, which may be another number in every call."""

    size: SymbolicDim
    axes: tuple[Dim, ...] | None = None     # of what it is the number of elements


@dataclass(frozen=True, eq=False)
class Written:
    """A leaf that is text: a form, and what belongs into its holes."""

    form: Text
    leaves: tuple[Any, ...]


@dataclass(frozen=True)
class ResultNest:
    """A nest of leaves that are filled in after a run."""

    structure: Structure
    leaves: tuple[Any, ...]
    apart: bool = False         # the outermost tuple is none of the program's

    @cached_property
    def undecided(self) -> bool:
        """Whether the data decide how many elements containers have."""
        return self.structure.kind is not None and any(isinstance(x, RowsOf) or (isinstance(x, OneOf) and any(
            nest.leaves == (MISSING,) for _, nest in x.options)) for x in self.leaves)

    def build(self, fill: Callable[[Any], Any]) -> Any:
        return self.structure.build(map(fill, self.leaves), self._those_there if self.undecided else None)

    def _those_there(self, structure: Structure, children: list[Any]) -> Structure:
        """What a container is with the elements that are there, and with all the rows that a loop left."""
        if self.apart and structure is self.structure:
            return structure
        labels = structure.labels
        if len(labels) == len(children):
            labels = tuple([label for label, x in zip(labels, children, strict=True) if x is not MISSING])
        children[:] = [y for x in children if x is not MISSING for y in (x if type(x) is ListRows else (x,))]
        return Structure(structure.kind, labels)


class ListRows(list[Any]):
    """Elements of the list around it."""


def is_decided_by_data(leaf: Any) -> bool:
    """Whether a leaf cannot be made before the elements of results are known."""
    if isinstance(leaf, SharedLeaf):
        return any(map(is_decided_by_data, leaf.nest.leaves))
    return isinstance(leaf, (OneOf, RowsOf, Written)) or (isinstance(leaf, FromGraph) and leaf.number)


def all_leaves(leaf: Any) -> Iterator[Any]:
    """A leaf, and those that it is made of, as the data decide."""
    yield leaf
    inner: tuple[Any, ...] = ()
    if isinstance(leaf, SharedLeaf):
        inner = leaf.nest.leaves
    elif isinstance(leaf, OneOf):
        inner = tuple([x for p, nest in leaf.options for x in (p, *nest.leaves)])
    elif isinstance(leaf, Written):
        inner = leaf.leaves
    elif isinstance(leaf, RowsOf):
        inner = *leaf.rows, leaf.count
    for x in inner:
        yield from all_leaves(x)


def results_in(leaf: Any) -> Iterator[int]:
    """The results of the graph that a leaf, or what it is made of, stands for."""
    for x in all_leaves(leaf):
        if isinstance(x, int) and not isinstance(x, bool):
            yield x
        elif isinstance(x, FromGraph):
            yield x.index
            yield from results_in(x.grad)
