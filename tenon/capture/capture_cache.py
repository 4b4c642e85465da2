"""What is known of the calls that one graph could serve: their key, their captures, the sizes that were seen.

    record.captures             # each with the sizes and guards under which it holds
    argument_types(leaves, record)      # sizes that differ from those of the first call are symbols
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import Any

from tenon.capture.capture_pattern import CapturePattern
from tenon.capture.captured import Captured
from tenon.capture.changing_inputs import tensors_in
from tenon.capture.code_monitor import Stack
from tenon.capture.guard_places import GuardPlace, Key
from tenon.capture.lazy_tensors import FunctionParts
from tenon.capture.pytree import Structure
from tenon.dims.symbolic_dim import SMALLEST_SYMBOLIC_SIZE, Dim, substitute, symbol, symbols
from tenon.errors import Location
from tenon.graph.ir import Node
from tenon.records import dataclass, field
from tenon.tensor import Tensor
from tenon.types import Shape, TensorType

MAX_ALIVE = 64          # objects of one family, before those of other calls are opened
MAX_APART = 4           # captures for such objects, since what was captured for one was not right for others
MAX_REFUSED = 3         # objects of one family, none of which could be captured, before others are not tried


@dataclass
class Reason:
    """Why a call was captured again, or was not captured at all."""

    what: str
    where: Location | None = None
    hint: str | None = None
    before: tuple[Node, ...] = ()       # what was captured until then
    stack: Stack | None = None          # where, in all functions that ran; None where nothing is to be split
    bug: bool = False                   # whether it is a mistake of Tenon's, which nobody should have to know of

    def __str__(self) -> str:
        blame = "\n  (a bug of Tenon: please report it)" if self.bug else ""
        return self.what + blame + (f"\n{self.where.excerpt()}" if self.where else "")


@dataclass
class Family:
    """What is known of calls whose arguments are objects of the same classes."""

    patterns: list[CapturePattern] = field(default_factory=list)
    captures: int = 0       # that were made
    objects: int = 0        # combinations of objects that calls have had
    repeats: int = 0        # calls by the slow path with objects that were there before
    gone: int = 0           # combinations of which an object was gone at a later call
    refusals: int = 0       # combinations that run with graph breaks
    refused: CaptureRecord | None = None        # what happened to the last of them

    @property
    def refuses_all(self) -> bool:
        """Whether objects of these classes could never be captured, such as iterators."""
        return not self.captures and self.refusals == self.objects >= MAX_REFUSED

    @property
    def are_made_anew(self) -> bool:
        """Whether most calls have objects of their own."""
        is_seen = self.gone > 0 or self.objects > MAX_ALIVE or self.captures > MAX_APART
        return is_seen and self.repeats < self.objects > 1


@dataclass
class CaptureRecord:
    """What happened to one key: its captures, and the reason for which it runs with graph breaks, if it does."""

    family: Family = field(default_factory=Family)
    captures: list[Captured] = field(default_factory=list)
    bound: list[Captured] = field(default_factory=list)             # captures made for other objects, bound to these
    rebound: int = 0        # bindings in a row of which the one before had served a single call
    sizes: list[tuple[int, ...]] = field(default_factory=list)      # of the tensors of the first call
    exact: set[tuple[int, int]] = field(default_factory=set)        # (tensor, axis) whose size the function needs
    moving: dict[Key, GuardPlace] = field(default_factory=dict)          # where other values stand in other calls
    shapes: dict[Key, Shape] = field(default_factory=dict)    # of the tensors that stood there first
    unmoved: set[Key] = field(default_factory=set)                  # places whose values are part of the capture
    eager: Reason | None = None
    split: bool = False                                             # whether it runs in pieces, where there is a reason
    full: Reason | None = None                                      # why there are no more captures
    number_read: Stack | None = None        # where a number or text that changes had to be itself, at last
    seen: set[Any] = field(default_factory=set)                     # in what calls differed that were not captured
    unlike: Reason | None = None                                    # why not, for the time being
    passed: int = 0                                             # calls that ran with graph breaks, and others need not
    raised: int = 0                     # captures that ended with an error of the function
    as_it_is: int = 0                   # calls without one, before a further capture is tried
    parts: FunctionParts | None = None                                      # of a function that runs with graph breaks
    alive: list[Any] = field(default_factory=list)                  # keeps identities in the key from being reused

    def bind(self, captured: Captured, most: int) -> None:
        """Keep a capture that was bound to other objects, among so many."""
        self.rebound = self.rebound + 1 if self.bound and self.bound[0].calls <= 1 else 0
        self.bound = [captured, *self.bound[:most - 1]]


def argument_types(leaves: Sequence[Any], record: CaptureRecord | None, known: Mapping[str, Dim] = {},
                   places: Sequence[GuardPlace] = (), exact: Set[tuple[int, int]] = frozenset()) -> list[TensorType]:
    """The types to capture with: sizes that differ from the first call of this record are symbols.

    Equal sizes that change together share a symbol; `known` says what some symbols are, in terms of others, and
    `exact` which axes have numbers for sizes in this capture.
    """
    moving = tensors_in(places, leaves)
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    given, tensors = len(tensors), [*tensors, *(x for _, x in moving)]
    shapes = [tuple(x.own.payload.shape) for x in tensors]
    if record is None or not record.captures:
        if record is not None:
            record.sizes = shapes[:given]
        return [x.type for x in tensors]
    names: dict[tuple[Dim, Dim], Dim] = {}
    types = []
    before = record.sizes + [first if len(first := record.shapes.get(place.name, ())) == len(shape) else shape
                             for (place, _), shape in zip(moving, shapes[given:], strict=True)]
    for k, (x, shape, first) in enumerate(zip(tensors, shapes, before, strict=True)):
        dims: list[Dim] = []
        for axis, (size, old) in enumerate(zip(shape, first, strict=True)):
            if size == old or size < SMALLEST_SYMBOLIC_SIZE or (k, axis) in record.exact | exact:
                dims.append(size)
            else:
                dims.append(substitute(names.setdefault((size, old), symbol(f"N{len(names)}")), known))
        types.append(TensorType(x.dtype, tuple(dims)))
    return types


def places(types: Sequence[TensorType], names: Set[str]) -> set[tuple[int, int]]:
    """Which axes of which tensors have a size of this name."""
    return {(k, axis) for k, type in enumerate(types) for axis, dim in enumerate(type.shape)
            if not symbols(dim).isdisjoint(names)}


def argument_names(function: Any, structure: Structure) -> list[str]:
    """A name for every leaf of the arguments: that of its parameter, numbered where it is one of several."""
    names: list[str] = []
    for name, child in _named(function, structure):
        names += [name] if child.kind is None else [f"{name}_{k}" for k in range(child.leaves)]
    return names


def argument_tops(function: Any, structure: Structure) -> list[str]:
    """For every leaf of the arguments the name of its parameter, which is that of `*args` or `**named` for the rest."""
    names = [name for name, child in _named(function, structure) for _ in range(child.leaves)]
    if (code := getattr(function, "__code__", None)) is None:
        return names
    count = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[count:][:bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)]
    given = sum(child.leaves for child in structure.children[0].children)
    own = code.co_varnames[:count]
    return [name if name in own or not rest else rest[0] if k < given else rest[-1] for k, name in enumerate(names)]


def _named(function: Any, structure: Structure) -> list[tuple[str, Structure]]:
    positional, keywords = structure.children
    code = getattr(function, "__code__", None)
    known = code.co_varnames[:code.co_argcount] if code else ()
    tops = [known[k] if k < len(known) else f"x{k}" for k in range(len(positional.children))]
    return list(zip([*tops, *keywords.labels], [*positional.children, *keywords.children], strict=True))
