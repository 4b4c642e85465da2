"""How the arguments and the state of a step are divided over a mesh, as data, and for a capture of it.

    division = Division("data", (("net.*.weight", (None, "model")),))
    division.shardings(step, mesh)          # of every parameter of the graph
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.parameter_sources import Argument, Held
from tenon.eager.on_mesh import OnMesh
from tenon.errors import ArgumentError
from tenon.graph.ir import Value
from tenon.planning.state_groups import CapturedStep
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Sharding, Spec, entry_axes
from tenon.tensor import Tensor


@dataclass(frozen=True)
class Division:
    """The mesh axis that rows of arguments are split over; how groups of state are split (`state_groups`), others are
    whole; the mesh axis that all state is divided over besides."""

    rows: str | None = None
    splits: tuple[tuple[str, Spec], ...] = ()
    besides: str | None = None

    def check(self, step: CapturedStep) -> None:
        """Raise ArgumentError where it splits what the step does not hold."""
        if missing := [name for name, _ in self.splits if name not in step.groups]:
            raise ArgumentError(f"plan: it splits {missing[0]}, and {step.jitted.__name__} holds no such tensors",
                                hint=f"they are {', '.join(list(step.groups)[:8]) or 'none'}; plan this step: "
                                     "tn.distributed.plan(step, *args)")

    def shardings(self, step: CapturedStep, mesh: Mesh) -> list[Sharding | None]:
        """Of every parameter of the graph; None is whole.  What is split over this mesh already stays so."""
        captured, splits = step.captured, dict(self.splits)
        spec_of: dict[Value, Spec] = {}
        for name, group in (step.groups if splits else {}).items():
            spec_of.update(dict.fromkeys(group.members, splits.get(name, ())))
        rows, found = rows_of(captured), list[Sharding | None]()
        for p, source in zip(captured.graph.params, captured.sources, strict=True):
            if isinstance(source, Argument):
                is_split = self.rows is not None and p.ndim > 0 and p.shape[0] == rows
                found.append(Sharding(mesh, (self.rows,)) if is_split else None)
            elif isinstance(source, Held) and _is_over(mesh, already := sharding_of(source.holder)):
                found.append(already)
            else:
                found.append(besides(p, spec_of.get(p, ()), self.besides, mesh))
        return found


BY_ROWS = Division("data")


def rows_of(captured: Captured) -> Any:
    """The rows of the first argument that has some."""
    return next((p.shape[0] for p, source in zip(captured.graph.params, captured.sources, strict=True)
                 if isinstance(source, Argument) and p.ndim), None)


def _is_over(mesh: Mesh, sharding: Sharding | None) -> bool:
    return sharding is not None and sharding.mesh == mesh


def sharding_of(holder: Any) -> Sharding | None:
    """How a tensor is split that lies in parts."""
    payload = holder.own.payload if isinstance(holder, Tensor) else None
    return payload.parts.sharding if isinstance(payload, OnMesh) else None


def besides(p: Value, spec: Sequence[Any], axis: str | None, mesh: Mesh) -> Sharding | None:
    """A spec, with the first free axis of a value that divides evenly split over one more mesh axis; None: whole."""
    entries = [entry_axes(entry) for entry in spec] + [()] * (p.ndim - len(spec))
    if axis is not None and (parts := mesh.axis_size(axis)) > 1:
        for k, size in enumerate(p.shape):
            if not entries[k] and isinstance(size, int) and size >= parts and size % parts == 0:
                entries[k] = (axis,)
                break
    return Sharding(mesh, tuple(entries)) if any(entries) else None
