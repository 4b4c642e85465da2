"""A call -> its record, and the capture that fits it: by key, by guards, or bound from other objects' captures.

A call is reduced to a key: the structure of its arguments, Python values, element types.  Under a key stand captures,
each with the sizes and guards under which it holds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tenon.capture.argument_roots import reference
from tenon.capture.capture_cache import CaptureRecord, Family, Reason, argument_names
from tenon.capture.capture_pattern import rebound
from tenon.capture.captured import Captured
from tenon.capture.class_inspection import StandsFor
from tenon.capture.fast_call_table import FastCallTable, without
from tenon.capture.guard_places import ARGUMENT, CHANGING, GuardPlace, changed
from tenon.capture.guards import same_atom
from tenon.capture.leaf_keys import aliases, leaf_key
from tenon.capture.opened_objects import has_attributes_alone
from tenon.capture.pytree import Structure
from tenon.capture.replay import holds
from tenon.devices import placing
from tenon.eager.grad_mode import modes
from tenon.tensor import Tensor

MAX_RECORDS = 256       # keys of one function; those that come later share one record, and run with graph breaks
MAX_BOUND = 16          # of other objects' captures, for one key


class CaptureLookup(StandsFor):
    """What a function knows of its calls."""

    function: Callable[..., Any]
    __name__: str
    records: dict[Any, CaptureRecord]
    families: dict[Any, Family]
    _fast_calls: FastCallTable

    def _record(self, leaves: Sequence[Any], structure: Structure) -> CaptureRecord:
        key = (structure, (*modes(), placing()), tuple(map(leaf_key, leaves)), aliases(leaves))
        record = self.records.get(key)
        if record is None and len(self.records) >= MAX_RECORDS:    # such as a step number: it would fill the memory
            return self._refused(Reason(
                f"called with more than {MAX_RECORDS} combinations of types and Python values"))
        if record is None:
            gone = partial(_forget, weakref.ref(self), key)
            alive = [reference(x, gone) or x for x in leaves if not isinstance(x, Tensor)]
            classes = tuple([leaf_key(x) if reference(x) is None and not has_attributes_alone(x)
                             and not isinstance(x, Iterator) else type(x) for x in leaves])
            family = self.families.setdefault((structure, (*modes(), placing()), classes, aliases(leaves)), Family())
            if family.refused is not None and family.refuses_all:
                return family.refused
            family.objects += 1
            family.gone += any(reference(x) is None and has_attributes_alone(x) for x in leaves)
            record = self.records.setdefault(key, CaptureRecord(family, alive=alive))
        else:
            record.family.repeats += 1
        return record

    def _refused(self, reason: Reason) -> CaptureRecord:
        """What is known of calls that have no key of their own."""
        return self.records.setdefault(None, CaptureRecord(eager=reason))

    def _refuse_array(self, position: int, structure: Structure) -> CaptureRecord:
        """What is known of calls that change an array among the arguments, which tensors stand for in a graph."""
        name = argument_names(getattr(self.function, "__func__", self.function), structure)[position]
        return self._refused(Reason(f"{name} is an array, which the function changes"))

    def _find(self, record: CaptureRecord, leaves: Sequence[Any],
              containers: Sequence[Any]) -> tuple[Captured | None, Sequence[Any]]:
        """The capture that fits a call, and its arguments with what that capture reads anew."""
        for captured in (*record.captures, *record.bound):
            arguments = captured.arguments(leaves)
            if arguments is not None and holds(captured, arguments, containers):
                return captured, arguments
        return None, leaves

    def _bind(self, record: CaptureRecord, leaves: Sequence[Any],
              containers: Sequence[Any]) -> tuple[Captured | None, Sequence[Any]]:
        """A capture that was made for other objects, bound to those of this call; none where the objects are the same,
        but other tensors are in them, which are inputs of a further capture."""
        fresh = {place.name for captured in last_of(record) for place, before in changes_since(captured, leaves)
                 if type(before) not in CHANGING} - record.unmoved
        for pattern in record.family.patterns:
            captured = pattern.bind(leaves)
            arguments = None if captured is None or not fresh <= captured.moved else captured.arguments(leaves)
            if captured is not None and arguments is not None and holds(captured, arguments, containers):
                record.bind(captured, MAX_BOUND)
                return captured, arguments
        if fresh:
            return None, leaves
        for before in (*record.captures, *record.bound):
            captured = rebound(before, leaves)
            arguments = None if captured is None else captured.arguments(leaves)
            if captured is not None and arguments is not None and holds(captured, arguments, containers):
                record.bind(captured, 1)
                return captured, arguments
        return None, leaves


def _forget(jitted: weakref.ref[CaptureLookup], key: Any, _: Any) -> None:
    """An argument that a key names is gone, and what is known of such calls with it."""
    if (function := jitted()) is not None and (record := function.records.pop(key, None)) is not None:
        record.family.gone += 1
        function._fast_calls = without(function._fast_calls, [c.fast_call for c in (*record.captures, *record.bound)])


def changes_since(captured: Captured, leaves: Sequence[Any]) -> Iterator[tuple[GuardPlace, Any]]:
    """The places where another number or tensor stands than at a capture, and which that was."""
    for k, value in captured.values:
        if type(leaves[k]) in CHANGING and not same_atom(leaves[k], value):
            yield GuardPlace(ARGUMENT, None, k), value
    yield from changed(captured.guards.groups)


def last_of(record: CaptureRecord) -> list[Captured]:
    """The last capture for these objects."""
    return record.captures[-1:] or record.bound[:1]
