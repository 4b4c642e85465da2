"""A step as a plan divides it: the rows of its arguments over replicas, what it reads from outside whole or divided.

    found = tn.distributed.plan(step, x, y, devices=4)
    step = tn.jit(step, plan=found)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.capture.capture_cache import CaptureRecord
from tenon.capture.captured import Captured
from tenon.capture.pytree import flatten
from tenon.capture.trace import Held
from tenon.distributed.shard import shard, split_in_place
from tenon.errors import ArgumentError
from tenon.graph.op import current
from tenon.jit import Jitted
from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.step_costs import divided_state
from tenon.sharding.mesh import Mesh
from tenon.tensor import Tensor, asarray


class PlannedStep(Jitted):
    """A function that runs on as many devices as its plan says; state is divided before its first call."""

    def __init__(self, function: Any, sizes: ParallelSizes, **options: Any):
        super().__init__(function, mesh=Mesh({"data": sizes.data}), **options)
        self.sizes, self._is_divided = sizes, sizes.shard == 0

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if current() is not None:       # within a capture: a part of that
            return self.function(*args, **keywords)
        args, keywords = self.as_called(args, keywords)
        if not self._is_divided:
            self._divide_state(args, keywords)
        return super().__call__(*args, **keywords)

    def look(self, *args: Any, **keywords: Any) -> tuple[CaptureRecord, Captured | None]:
        args, keywords = self.as_called(args, keywords)
        return super().look(*args, **keywords)

    def as_called(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The arguments; those that have as many rows as the first tensor among them are divided by rows."""
        leaves, structure = flatten((args, keywords))
        leaves = [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves]
        rows = next((x.shape[0] for x in leaves if isinstance(x, Tensor) and x.ndim), None)
        assert self.mesh is not None
        split = [shard(x, self.mesh, ("data",)) if isinstance(x, Tensor) and x.ndim and x.shape[0] == rows else x
                 for x in leaves]
        return structure.build(split)

    def _divide_state(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        captured = super().capture(*args, **keywords)
        assert self.mesh is not None
        for p, source in zip(captured.graph.params, captured.sources, strict=True):
            sharding = divided_state(p, self.mesh)
            if isinstance(source, Held) and isinstance(source.holder, Tensor) and sharding is not None:
                split_in_place(source.holder, sharding)
        self._is_divided = True


def planned_step(function: Any, sizes: ParallelSizes, options: dict[str, Any]) -> PlannedStep:
    """The function, to run as the sizes say.  Raises ArgumentError where they divide more than rows and state."""
    given = {name: x for name, x in options.items() if name in ("mesh", "pipeline", "place") and x is not None}
    if given:
        raise ArgumentError(f"jit: a plan says where the step runs, and so does {', '.join(given)}=",
                            hint="give one of them")
    if sizes.model > 1 or sizes.stage > 1:
        raise ArgumentError(f"jit: this plan is of a TransformerModel in {sizes.stage} stages and {sizes.model} parts "
                            "of its tensors, which are not found in a step of yours",
                            hint="tn.distributed.shard and Pipeline divide a step so; or plan the step itself: "
                                 "tn.distributed.plan(step, *args)")
    own = function.function if isinstance(function, Jitted) else function
    return PlannedStep(own, sizes, **{name: x for name, x in options.items() if name not in ("mesh", "pipeline",
                                                                                          "place")})
