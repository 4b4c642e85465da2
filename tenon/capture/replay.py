"""A call that a capture fits: `holds` compares them, `run` does what the function did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.autodiff import call
from tenon.capture.captured import Captured, holder_of
from tenon.capture.donation import are_alone, move_to_lines
from tenon.capture.guards import same_atom
from tenon.capture.parameter_sources import Argument, GradientOf, Source
from tenon.capture.residuals import recorded_call
from tenon.capture.store_results import OfMesh, OnDevices, OnTape, ResultStores, RunResults, Stopped, fits
from tenon.config import ConfigError
from tenon.eager.grad_mode import enable_grad
from tenon.eager.on_device import at_hand
from tenon.eager.on_mesh import OnMesh, parts_of
from tenon.errors import CommunicationError, CompilerDefect, DevicePlanError, OverBudget, TenonError
from tenon.graph.ir import DEVICES, Value
from tenon.graph.value_devices import ANYWHERE
from tenon.in_place import Loans
from tenon.ops.deferred_output import hearing
from tenon.runtime.forks import FORKING, RunPhase
from tenon.tensor import Tensor
from tenon.tensor_state import last_change
from tenon.types import DType


def holds(captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> bool:
    """Whether this capture is right for a call with these leaves in these containers."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    pairs = [(type, x.own.payload.shape) for type, x in zip(captured.types, tensors, strict=True)]
    return (all(same_atom(leaves[k], value) for k, value in captured.values)
            and all(fits(type, shape, sizes) for type, shape in pairs)
            and (not sizes or all(fits(type, shape, sizes) for type, shape in pairs))   # all symbols are known now
            and captured.assumptions.hold(sizes)
            and not any(id(x) in captured.outside for x in tensors)
            and not any(leaves[k].own.node is not None for k in captured.leaves_of_tape)
            and all(leaves[k] is x for k, x in captured.same)
            and captured.apart.isdisjoint(map(id, containers)) and not captured.meets(containers)
            and captured.guards.hold()
            and (captured.checked is last_change() or held_tensors_hold(captured, leaves)))


def held_tensors_hold(captured: Captured, leaves: Sequence[Any]) -> bool:
    """Whether the tensors held have the types and flags that they had; remembered until one of any changes."""
    now = last_change()
    for x, requires_grad, without_grad, type, device in captured.held:
        own = x.own
        if own.requires_grad is not requires_grad or without_grad is (own.grad is not None) or \
                own.payload.shape != type.shape or not _is_of(own.payload, type.dtype, device):
            return False
    places = captured.graph.notes.get(DEVICES) or (None,) * len(captured.sources)
    if not all(map(source_holds, captured.sources, captured.graph.params, repeat(leaves), places)):
        return False
    if not any(isinstance(s, GradientOf) or isinstance(getattr(s, "holder", None), np.ndarray)
               for s in captured.sources):
        captured.checked = now
    return True


def _is_of(payload: Any, dtype: DType, device: str | None) -> bool:
    """Whether the elements still have the type that they had, and are where they were."""
    if device is None or device == ANYWHERE:
        return bool(payload.dtype == dtype.numpy) or (isinstance(payload, OnMesh) and payload.dtype is dtype)
    return payload.dtype is dtype and payload.device == device


def source_holds(source: Source, param: Value, leaves: Sequence[Any], device: str | None = None) -> bool:
    """Whether a tensor held by the capture still has the type it had, and lies on this device."""
    if isinstance(source, Argument):
        return True
    array = read(source, leaves)
    return array is not None and _is_of(array, param.dtype, device) and \
        (isinstance(source, GradientOf) or array.shape == param.shape)


def read(source: Source, leaves: Sequence[Any]) -> Any:
    """The array of a source now."""
    holder = holder_of(source, leaves)
    return holder.own.payload if isinstance(holder, Tensor) else holder


def run(captured: Captured, leaves: Sequence[Any], containers: Sequence[Any] = ()) -> Any:
    """Run the graph, and do what the function did: assignments, gradients, effects, the returned value.

    Raises Stopped where the graph fails, since the function may catch the error, or have done things before it.
    """
    holders = captured.inputs.holders(leaves)
    result_stores = ResultStores(captured, leaves, captured.changes, containers)
    try:
        captured.program        # noqa: B018    is compiled now, if it was not
    except (ConfigError, CommunicationError, CompilerDefect, DevicePlanError):      # it is not the function's fault
        raise
    except Exception as error:
        raise Stopped(error, broken=True) from error
    donated: tuple[int, ...] = ()
    loans: Loans | None = None
    try:
        if captured.differentiable:         # in `enable_grad` too, where the call stands in `no_grad`
            parts = captured.halves
            with hearing() as result_stores.heard:
                if parts is None:
                    with enable_grad():
                        out = call(*holders, body=captured.graph)
                else:
                    out = recorded_call(captured.graph, parts, holders, captured.by_data)
            results: RunResults = OnTape([out] if isinstance(out, Tensor) else out)
        else:
            arrays: Any = [x.own.payload for x in holders]
            given = captured.donations
            if captured.places is not None:
                with hearing() as result_stores.heard:
                    results = OnDevices(captured.program.run(list(map(at_hand, arrays))), captured.places)
            elif captured.mesh is not None:
                with hearing() as result_stores.heard:
                    results = OfMesh(captured.program.run([parts_of(x) for x in arrays]))
            elif given and not FORKING[0] and are_alone(holders, arrays, given):
                donated = given
                move_to_lines(holders, arrays, given)
                loans = Loans([holders[k].own for k in given])
                with hearing() as result_stores.heard:
                    captured.program.run(arrays, given, partial(_stores, result_stores, loans))
            else:
                with hearing() as result_stores.heard:
                    results = RunResults(captured.program.run(arrays))
    except (ConfigError, CompilerDefect, DevicePlanError, CommunicationError, OverBudget, Stopped):
        raise
    except Exception as error:
        if donated and not isinstance(error, TenonError):
            raise               # what was in their memory may be gone
        raise Stopped(error) from error
    finally:
        if loans is not None and loans.out:         # it failed, before it wrote
            at_once(loans.taken_back())
    if not donated:
        at_once(result_stores.stores(results) or ())
    return result_stores.value()


def _stores(result_stores: ResultStores, loans: Loans, made: list[np.ndarray],
            phase: RunPhase | None) -> Iterator[Any]:
    """What is done where a run ends that updates tensors in their memory; until then others see loans of them."""
    stores = result_stores.stores(RunResults(made)) or ()
    if phase is None:       # it has written nowhere but in memory of its own
        return iter(stores)
    return chain(loans.begin(phase), stores)
