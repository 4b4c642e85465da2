"""The numbers of a capture, and what is computed from them: steps that Python runs in every call, before the graph.

A step computes a number, or is a condition: Python's answer must be the same.  What the graph reads is an argument.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Set
from types import FrameType
from typing import Any

import numpy as np

from tenon.capture.code_monitor import Stack, UnsafeCall, stack_now
from tenon.capture.code_origin import follows
from tenon.capture.counted_loops import CountedLoops, goes_round, place_of
from tenon.capture.guards import is_atom, same_atom
from tenon.capture.size_numbers import SizeNumbers
from tenon.capture.symbolic_numbers import (
    KINDS,
    PYTHON,
    SYMBOLIC,
    SymNumber,
    SymObject,
    SymScalar,
    SymText,
    known,
    value_of,
)
from tenon.dims.symbolic_dim import BY_NUMBER, SMALLEST_SYMBOLIC_SIZE, Dim, PinnedSize, substitute, symbol, symbols
from tenon.errors import user_location
from tenon.graph.build import literal
from tenon.records import dataclass
from tenon.tensor import Tensor, fresh
from tenon.types import DType, TensorType, bool_

MAX_STEPS = 1000
OF_SIZES = (operator.add, operator.sub, operator.mul, operator.neg, operator.pos)    # which give sizes
NEVER_RAISES = frozenset((operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor,
                          operator.neg, operator.pos, operator.abs, operator.invert))


@dataclass(frozen=True, eq=False)
class Computed:
    """`function(*args)`, the value of a number from then on; `kind` is its type where that must be looked at."""

    index: int
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kind: type | None


@dataclass(frozen=True, eq=False)
class Asked:
    """A condition: `function(*args)` is `answer`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    answer: Any


class Numbers:
    """The numbers of a capture: its inputs, what is computed from them, what was asked, what the graph reads."""

    converting = False
    ended = False           # whether the capture is over

    def __init__(self) -> None:
        self.inputs: list[SymNumber] = []
        self.places: dict[int, Any] = {}    # of the inputs
        self.steps: list[Computed | Asked] = []
        self.specialized: set[int] = set()  # those whose value was asked for: they are no numbers that change
        self.read: dict[tuple[int, DType | None], tuple[SymNumber, TensorType, Tensor]] = {}    # by the graph
        self.made: dict[int, Computed] = {}             # the steps that compute numbers
        self.exact: Set[str] = frozenset()              # the names of symbols that have to be numbers
        self.told: Mapping[str, Dim] = {}               # what some symbols are, in terms of others
        self.learn: Callable[[Dim, int], Any] | None = None     # notes a size; None where no number is one
        self.declare: Callable[[Tensor, int, TensorType], None] = _undeclared
        self.lengths: dict[int, tuple[Any, int]] = {}   # of lists: as at first, where it is a number that changes
        self.counted: set[int] = set()                  # those that were asked for their length
        self.asked_at: Stack | None = None              # where a number or text had to be itself, at last
        self.loops: CountedLoops | None = None          # which may run as often as one of these says
        self.in_graph: Callable[[Any], Any] = known     # what the graph compares, where it is to
        self.sizes = SizeNumbers(self.read)
        self._count = 0

    def input(self, value: Any, place: Any = None) -> SymNumber:
        """A number that is given to every call."""
        self.inputs.append(self._new(value, None))
        self.places[self.inputs[-1].index] = place
        return self.inputs[-1]

    def end(self) -> None:
        """The capture is over; what it was is not kept."""
        self.ended, self.declare, self.learn, self.sizes.make = True, _undeclared, None, None

    def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`, of arguments some of which are such numbers."""
        value = self._value(function, args)
        if type(value) not in KINDS:    # such as of `math.isinf`, or the type of a number of NumPy's
            return self.ask(function, *args) if is_atom(value) else function(*map(known, args))
        roots = frozenset().union(*(x.roots for x in args if type(x) in SYMBOLIC))
        found = self._new(value, roots)
        made = Computed(found.index, function, args, type(value) if function is operator.pow else None)
        self._note(made)
        self.made[found.index] = made
        return found

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """What `function(*args)` gives now, which it must give in every call."""
        answer = self._value(function, args)
        self._note(Asked(function, args, answer))
        return answer

    def counts_iterations(self, frame: FrameType, *compared: Any) -> bool:
        """Whether a comparison by the user's code says if a loop goes on, and the graph may say it."""
        place = place_of(frame)
        if self.loops is None or not follows(frame.f_code) or not goes_round(place) or \
                all(self.is_specialized(x) for x in compared if type(x) is SymNumber) or not self.loops.tries(place):
            return False
        if not self.converting:
            raise UnsafeCall("a loop runs as often as a number says that changes", where=user_location(),
                             convertible=True)
        return True

    def _value(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """What it gives now; where it raises, other numbers may not: the capture is for these alone."""
        try:
            return function(*map(value_of, args))
        except Exception:
            for x in args:
                known(x)
            raise

    def scalar(self, x: SymNumber, dtype: DType) -> Tensor:
        """A number as a tensor from outside, an argument of the graph."""
        if (x.index, dtype) not in self.read:
            self._read(x, dtype, TensorType(dtype, ()), self._value(scalar, (x, dtype)))
        return self.read[x.index, dtype][-1]

    def _read(self, x: SymNumber, key: DType | None, type: TensorType, value: np.ndarray) -> None:
        self.read[x.index, key] = x, type, fresh(value)
        self.declare(self.read[x.index, key][-1], len(self.read) - 1, type)

    def dim(self, x: SymNumber) -> Dim:
        """A number as a size: an expression of symbols that arguments of the graph have for sizes."""
        if x.index in self.sizes.inputs:
            return self.sizes.inputs[x.index]
        made = self.made.get(x.index)
        if made is not None and made.function in OF_SIZES and all(
                type(part) is int or (type(part) is SymNumber and part.kind is int) for part in made.args):
            found: Dim = made.function(*(part if type(part) is int else self.dim(part) for part in made.args))
            return found
        name = f"{BY_NUMBER}{x.index}"
        found = substitute(symbol(name), self.told)
        if self.learn is None or self.is_specialized(x) or x.value < SMALLEST_SYMBOLIC_SIZE or \
                not symbols(found).isdisjoint(self.exact):
            return int(self.know(x))
        if (x.index, None) not in self.read:
            self.learn(found, x.value)
            self._read(x, None, TensorType(bool_, (found,)), np.empty(x.value, bool))
        return found

    def length(self, x: Any, here: Any) -> Any:
        """The length of a container that is `here` in this call; of a list whose length changes from call to call
        that, and what was added."""
        first, count = self.lengths.get(id(x), (0, 0))
        self.counted.add(id(x))
        return first + (here - count)

    def know(self, x: SymNumber) -> Any:
        """The number itself, which it must be in every call."""
        if x.index in self.sizes.inputs:
            raise PinnedSize(self.sizes.inputs[x.index])
        if not self.is_specialized(x):
            self.asked_at = stack_now()
            self.specialized.add(x.index)
            if x.roots != {x.index}:
                self.ask(same_as(x.value), x)
        return x.value

    def is_specialized(self, x: SymNumber) -> bool:
        """Whether a number is the same in all calls for which the capture holds."""
        return x.index in self.specialized or x.roots <= self.specialized

    def _note(self, step: Computed | Asked) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise UnsafeCall(f"more than {MAX_STEPS} operations on numbers that change", where=user_location())
        self.steps.append(step)

    def _new(self, value: Any, roots: frozenset[int] | None) -> SymNumber:
        index, self._count = self._count, self._count + 1
        kind = SymNumber if type(value) in PYTHON else SymText if type(value) is str else SymScalar if isinstance(
            value, np.generic) else SymObject
        return kind(self, index, value, frozenset((index,)) if roots is None else roots)


def _undeclared(tensor: Tensor, number: int, type: TensorType) -> None:
    """Outside of a capture."""


def scalar(value: Any, dtype: DType) -> np.ndarray:
    """A Python number as eager code gives it to an operator."""
    return np.array(literal(value, dtype).value, dtype.numpy)


def same_as(value: Any) -> Callable[[Any], bool]:
    """Whether a number is this one."""
    def same(x: Any) -> bool:
        return same_atom(x, value)
    return same
