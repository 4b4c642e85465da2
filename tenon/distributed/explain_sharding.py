"""A compiled step and its arguments -> how it is split over its mesh, and why; nothing is run."""

from __future__ import annotations

from typing import Any

from tenon.capture.jitted import Jitted
from tenon.eager.on_mesh import parts_of
from tenon.errors import ArgumentError
from tenon.runtime.spmd_program import SpmdProgram
from tenon.sharding.sharding_plan import ShardingPlan


def explain(step: Any, *args: Any, **keywords: Any) -> ShardingPlan:
    """How a function that is compiled for a mesh would run with these arguments: the collectives that are put into its
    graph, the bytes that a device sends in each, for what, and the line of the function.

    Its text says so; `.collectives` are the records, `.made` has the sharding of every value of `.graph`.  Nothing of
    the function is run.  Raises ArgumentError for what is not compiled for a mesh, and for a pipeline.

    >>> mesh = tn.distributed.Mesh({"model": 2})
    >>> @tn.jit(mesh=mesh)
    ... def f(x, w):
    ...     return x @ tn.distributed.shard(w, mesh, ("model", None))
    >>> print(tn.distributed.explain(f, tn.ones(2, 4), tn.ones(4, 3)))
    f on Mesh({'model': 2}): 1 collectives, 24 bytes a device
      all_reduce over model: 24 bytes of matmul f32[2, 3], which is returned  # ...
    """
    if not isinstance(step, Jitted) or step.mesh is None:
        raise ArgumentError(f"explain: {step!r} is not compiled for a mesh", hint="@tn.jit(mesh=mesh)")
    captured = step.capture(*args, **keywords)
    given = captured.arguments(captured.leaves_of(args, keywords))
    if given is None or not isinstance(captured.program, SpmdProgram):
        raise ArgumentError(f"explain: {step.__name__} is no one graph for all devices, but a pipeline of stages",
                            hint="step.capture(*args).program.describe() says what each device does")
    return captured.program.plan_for([parts_of(x.own.payload) for x in captured.inputs.holders(given)])
