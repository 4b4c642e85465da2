"""Graph breaks: calls that one graph cannot hold -> pieces of the function with graphs of their own, or eager code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.capture.capture_cache import CaptureRecord, Reason, argument_tops
from tenon.capture.capture_lookup import CaptureLookup
from tenon.capture.captured import Captured
from tenon.capture.lazy_tensors import FunctionParts
from tenon.capture.pytree import Structure
from tenon.errors import CaptureError
from tenon.locks import unforked
from tenon.observe import emit

if TYPE_CHECKING:
    from tenon.capture.split.breaks import FunctionPart

MAX_UNLIKE = 10         # calls in a row that are like none before, before the line that makes them so is split off
CALLS_AS_IT_IS = 63     # of a function that never was a graph, before its arguments are looked at again
Run = Callable[[Captured, Sequence[Any], Sequence[Any]], Any]
Instead = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
Around = Callable[[Run, Captured, Sequence[Any], Sequence[Any]], Any]


class GraphBreaks(CaptureLookup):
    """A function whose calls may run in pieces."""

    fullgraph: bool
    constants: bool
    autotune: bool
    background: bool
    memory_budget: int | None
    place: tuple[str, ...] | None
    part: FunctionPart | None
    is_piece: bool
    _around: tuple[Around, ...]
    _as_it_is: int
    _bound_as: Callable[..., Any]
    _is_whole: bool
    _plainly: Callable[..., Any]
    _unlike: int

    def _with_graph_breaks(self, record: CaptureRecord, args: Any, keywords: Any) -> Any:
        if record.eager is not None:
            self._say_no(record.eager)
        driver = self._driver() if record.split else None
        if driver is not None:
            self._run_plainly(driver)
            return driver(*args, **keywords)
        if record.parts is None:
            record.parts = FunctionParts(self.__name__)
        if record.parts.eager:
            self._run_plainly(self.function)
        return record.parts.run(lambda: self.function(*args, **keywords))

    def _run_plainly(self, function: Callable[..., Any]) -> None:
        """Make the next calls without a look at their arguments, where all so far ran in pieces, or as eager code, or
        the last ones did and were like none before."""
        if self.fullgraph:
            return
        if (self._unlike >= MAX_UNLIKE and not self._fast_calls) or all(
                record.eager is not None and (record.split or (record.parts is not None and record.parts.eager))
                for record in self.records.values()):
            self._plainly, self._as_it_is = function, CALLS_AS_IT_IS

    @property
    def is_split(self) -> bool:
        """Whether calls that one graph cannot hold run in pieces."""
        return self._driver() is not None

    def _driver(self) -> Callable[..., Any] | None:
        """What runs the function in pieces."""
        driver = None if self.part is None else self.part.driving()
        return None if driver is None else self._bound_as(driver)

    def _split_at(self, reason: Reason) -> bool:
        """Split the function where a capture stopped; whether that can be."""
        if reason.stack is None or (part := self._to_split()) is None:
            return False
        return part.note(reason) or part.split.version > 0

    def _split_at_all(self, reasons: Sequence[Reason]) -> bool:
        """The same for several places; whether that can be at any."""
        done = [self._split_at(reason) for reason in reasons]
        return any(done)

    def _to_split(self) -> FunctionPart | None:
        """The function as a part that can be split; None where it has to be whole."""
        if self.fullgraph or self._is_whole:
            return None
        if self.part is None:
            with unforked:
                from tenon.capture.split.breaks import split_of  # local: as below
            if (found := split_of(self.function, self._piece)) is None:
                self._is_whole = True
                return None
            self.part, self._bound_as = found
        return self.part

    def _left_to_numpy(self, leaves: Sequence[Any], structure: Structure) -> Callable[..., Any] | None:
        """What runs a piece whose variables hold arrays that NumPy computes with; None where a graph may."""
        if not any(isinstance(x, np.ndarray) for x in leaves):
            return None
        names = argument_tops(getattr(self.function, "__func__", self.function), structure)
        part = self._to_split()
        plain: Callable[..., Any] = self.function
        if part is None:
            return plain
        arrays = frozenset(name for name, x in zip(names, leaves, strict=True) if isinstance(x, np.ndarray))
        if part.leave_arrays(arrays):
            return self._driver() or plain
        return None

    def _piece(self, function: Callable[..., Any], part: FunctionPart | None) -> Any:
        """A piece of this function, or a function that it calls, as graphs of its own."""
        make: Any = type(self)
        piece = make(function, memory_budget=self.memory_budget, constants=self.constants, autotune=self.autotune,
                     background=self.background, place=self.place)
        piece.part, piece.is_piece, piece._around = part, True, self._around
        return piece

    def _refuse(self, record: CaptureRecord, reason: Reason) -> None:
        """Let calls like this one run with graph breaks, or say that they cannot be one graph."""
        record.eager = reason
        record.family.refusals += 1
        record.family.refused = record
        self._tell(reason)
        record.split = self._split_at(reason)

    def _tell(self, reason: Reason) -> None:
        """Say that calls run with graph breaks; raises where they must not."""
        emit("fallback", function=self.__name__, reason=reason.what)
        self._say_no(reason)

    def _say_no(self, reason: Reason) -> None:
        """With `fullgraph=True`, every call that would run with graph breaks is an error."""
        if self.fullgraph:
            raise CaptureError(reason.what, where=reason.where, hint=reason.hint) from None
