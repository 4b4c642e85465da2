"""A step as a plan divides it: rows of its arguments over "data", tensors that it holds over "model", or over both.

    found = tn.distributed.plan(step, x, y, devices=4)
    step = tn.jit(step, plan=found)
    step = tn.jit(step, plan="auto")            # planned at its first call, for this machine
"""

from __future__ import annotations

from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.config import usable_cores
from tenon.devices import device_count
from tenon.distributed.world import size
from tenon.errors import ArgumentError
from tenon.planning.calibrate import calibrate
from tenon.planning.divided_step import by_first, divide
from tenon.planning.make_plan import mesh_of, plan_step
from tenon.planning.plan import Plan
from tenon.planning.search_plans import divisors
from tenon.planning.state_groups import CapturedStep
from tenon.planning.step_division import Division
from tenon.planning.training_step import StepEstimate
from tenon.sharding.mesh import Mesh


class PlannedStep(Jitted):
    """A function that runs on as many devices as its plan says.  Where that does not say how tensors are split, as that
    of a `TransformerModel`, or nothing, this is found at the first call."""

    def __init__(self, function: Any, meshes: list[Mesh], best: StepEstimate | None = None, **options: Any):
        super().__init__(function, mesh=meshes[0], **options)
        self.meshes, self.best = meshes, best
        self.plan: Plan | None = None

    def _note_mesh(self, captured: Captured) -> None:
        step = CapturedStep(self, captured)
        if self.best is None:
            self.plan = Plan.from_json(by_first(lambda: plan_step(
                step, self.meshes, calibrate(self.meshes[0].size)).to_json()))
            self.best = self.plan.best
        if len(self.meshes) > 1:
            self.mesh = mesh_of(self.best.sizes.data, self.best.sizes.model)
        assert self.mesh is not None
        super()._note_mesh(captured)
        rows = "data" if "data" in self.mesh.axes else None
        if self.division is None:
            self.division = Division(rows, self.best.splits, rows if self.best.sizes.shard else None)
            self.division.check(step)
        divide(step, self.mesh, self.division)

    def _divide(self, captured: Captured) -> None:
        """The plan does."""


def planned_step(function: Any, best: StepEstimate, options: dict[str, Any]) -> PlannedStep:
    """The function, to run as an estimated step is divided.  Raises ArgumentError where that is in stages."""
    given = [name for name in ("mesh", "pipeline", "place") if options[name] is not None]
    if given:
        raise ArgumentError(f"jit: a plan says where the step runs, and so does {', '.join(given)}=",
                            hint="give one of them")
    sizes = best.sizes
    if sizes.stage > 1:
        raise ArgumentError(f"jit: this plan has {sizes.stage} stages, and stages of your step are cut by Pipeline",
                            hint=f"tn.jit(step, pipeline=tn.distributed.Pipeline(stages={sizes.stage}, micro_batches="
                                 f"..., schedule={sizes.schedule!r})), with a mesh for the rest of the plan")
    known = best if sizes.model == 1 or best.splits else None
    return PlannedStep(_own(function), [mesh_of(sizes.data, sizes.model)], known, **_others(options))


def auto_planned_step(function: Any, options: dict[str, Any]) -> PlannedStep:
    """The function, to be planned at its first call: over a mesh, over all processes, or over the devices of this one.
    Raises ArgumentError for a mesh with other axes than "data" and "model"."""
    mesh = options["mesh"]
    given = [name for name in ("pipeline", "place") if options[name] is not None]
    if given or (mesh is not None and not {*mesh.axes} <= {"data", "model"}):
        what = f"{given[0]}=" if given else repr(mesh)
        raise ArgumentError(f'jit: plan="auto" divides rows over "data" and tensors over "model", and {what} is given',
                            hint='mesh=tn.distributed.Mesh({"data": 2, "model": 2}), or nothing')
    here = device_count() if device_count() > 1 else usable_cores()
    count = size() if size() > 1 else here
    meshes = [mesh] if mesh is not None else [mesh_of(count // parts, parts) for parts in divisors(count)]
    return PlannedStep(_own(function), meshes, **_others(options))


def _own(function: Any) -> Any:
    return function.function if isinstance(function, Jitted) else function


def _others(options: dict[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in options.items() if name not in ("mesh", "pipeline", "place")}
