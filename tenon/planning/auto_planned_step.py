"""A step that nobody has planned -> the same, planned at its first call, for this machine.

    step = tn.jit(step, plan="auto")
"""

from __future__ import annotations

import functools
from typing import Any

from tenon.config import usable_cores
from tenon.devices import device_count
from tenon.distributed.world import gather_texts, rank, size
from tenon.errors import ArgumentError
from tenon.graph.op import current
from tenon.jit import Jitted
from tenon.planning.make_plan import plan
from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.plan import Plan
from tenon.planning.planned_step import PlannedStep


class AutoPlannedStep(PlannedStep):
    """A function that is planned at its first call, for this machine and the arguments of that call."""

    def __init__(self, function: Any, devices: int, **options: Any):
        super().__init__(function, ParallelSizes(data=devices), **options)
        self.plan: Plan | None = None

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self.plan is None and current() is None:
            self.plan = self._chosen(args, keywords)
            self.sizes = self.plan.sizes
            self._is_divided = self.sizes.shard == 0
        return super().__call__(*args, **keywords)

    def _chosen(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Plan:
        """The plan; of several processes the first one makes it for all."""
        text = ""
        if rank() == 0:
            text = plan(functools.partial(self.function, **keywords), *args, devices=self.sizes.data).to_json()
        return Plan.from_json(gather_texts(text)[0])


def auto_planned_step(function: Any, options: dict[str, Any]) -> AutoPlannedStep:
    """The function, to be planned at its first call: over the places of its mesh, over all processes, or over the
    devices of this one.  Raises ArgumentError for a mesh of several axes."""
    mesh = options["mesh"]
    given = [name for name in ("pipeline", "place") if options[name] is not None]
    if given or (mesh is not None and mesh.axes != ("data",)):
        what = f"{given[0]}=" if given else repr(mesh)
        raise ArgumentError(f'jit: plan="auto" divides rows and state over one axis, "data", and {what} is given',
                            hint='mesh=tn.distributed.Mesh({"data": 4}), or nothing')
    here = device_count() if device_count() > 1 else usable_cores()
    devices = mesh.size if mesh is not None else size() if size() > 1 else here
    own = function.function if isinstance(function, Jitted) else function
    return AutoPlannedStep(own, devices, **{name: x for name, x in options.items() if name not in (
        "mesh", "pipeline", "place")})
