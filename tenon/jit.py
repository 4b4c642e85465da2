"""`@tn.jit`: capture + guards + pipeline + cache.  Delete the line and nothing changes but speed."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tenon.capture.jitted import Jitted
from tenon.errors import ArgumentError
from tenon.sharding.mesh import Mesh

if TYPE_CHECKING:
    from tenon.pipelining.pipelined import Pipeline
    from tenon.planning.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])
NOT_FUNCTIONS = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def _innermost(function: Any) -> Any:
    """What is behind partial functions and caches, or the `__call__` of an object."""
    while not isinstance(function, (type, types.FunctionType, types.MethodType)):
        called = getattr(type(function), "__call__", None)  # noqa: B004
        inner = function.func if isinstance(function, functools.partial) else \
            getattr(function, "__wrapped__", None) or (called if isinstance(called, types.FunctionType) else None)
        if inner is None:
            return function
        function = inner
    return function


def _planned(plan: Plan | str, options: dict[str, Any]) -> Callable[[Any], Any]:
    """What makes a function that runs as a plan says; "auto" says one at the first call."""
    if not isinstance(plan, str):
        return functools.partial(plan.applied, options=options)
    above = import_module("tenon.planning.planned_step")       # by name: it stands above
    return functools.partial(above.auto_planned_step, options=options)


@overload
def jit(function: F, *, fullgraph: bool = ..., memory_budget: float | None = ..., constants: bool = ...,
        autotune: bool = ..., background: bool = ..., pipeline: Pipeline | None = ...,
        place: Sequence[str] | str | None = ..., mesh: Mesh | None = ..., plan: Plan | str | None = ...) -> F: ...


@overload
def jit(function: None = None, *, fullgraph: bool = ..., memory_budget: float | None = ..., constants: bool = ...,
        autotune: bool = ..., background: bool = ..., pipeline: Pipeline | None = ...,
        place: Sequence[str] | str | None = ..., mesh: Mesh | None = ...,
        plan: Plan | str | None = ...) -> Callable[[F], F]: ...


def jit(function: Any = None, *, fullgraph: bool = False, memory_budget: float | None = None,
        constants: bool = True, autotune: bool = False, background: bool = False,
        pipeline: Pipeline | None = None, place: Sequence[str] | str | None = None,
        mesh: Mesh | None = None, plan: Plan | str | None = None) -> Any:
    """Run a function as one compiled graph: forward, backward and the optimizer's update included.

    Works on functions and methods, with arguments nested in containers; tensors among them are inputs of the graph,
    Python values are part of what it is compiled for, but numbers that change become inputs.  Whatever the function
    reads is guarded, whatever it assigns is assigned by every call.  `fullgraph=True` raises CaptureError where it
    would otherwise run with graph breaks.
    `memory_budget` is how many bytes may lie between kernels, beside arguments and results: values are computed again
    instead of being kept, the cheapest first, until that holds.  Where nothing helps, the call raises OverBudget, as it
    does where that which loops keep of their iterations for gradients does not fit; 0 asks for as little as can be.
    Without a budget, a large graph computes again what is done element by element, as long as that takes at most a
    hundredth or two of its time.
    Where no gradient is recorded, what depends on tensors from outside alone (weights) is computed once, and again when
    they change; `constants=False` saves the memory that this takes.
    `autotune=True` measures, where several schedules claim a product, which is the fastest on this machine, once: it is
    remembered beside the code, so that later runs are the same to the bit.
    `background=True` lets another thread compile: until that is done, calls run eagerly.  What goes wrong there is told
    by the call that comes then.
    `pipeline=tn.distributed.Pipeline(stages=2, micro_batches=8)` cuts a training step in stages, each on a device of
    its own, through which parts of the batch go one after the other; with a mesh, these are along its axis "pipe".
    `place="auto"` lets parts of the graph run on several logical devices at once, where a model of costs, measured on
    this machine, says that this is sooner than one device with all threads; `place=("cpu", "cpu:1")` names them, and
    `place="processes"` does the same over the processes of `tenon launch`, all of which have the results.
    With a `mesh`, the graph runs on all its devices: what `tn.distributed.shard` has split is, and collectives are put
    where they have to be (`tn.distributed.explain` says which); a pipeline's stages are its axis "pipe".  All that the
    function does is one graph then, backward pass included.  A `plan` of `tn.distributed.plan(step, *args)` chooses the
    mesh: rows of the arguments are divided over it, and weights with what an optimizer keeps, as its best has them.
    `plan="auto"` makes one at the first call: over a mesh of axes "data" and "model", or over what there is.

    >>> @tn.jit
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(tn.tensor([1.0, 2.0]))
    tensor([3., 5.])
    """
    options: dict[str, Any] = {"fullgraph": fullgraph, "memory_budget": memory_budget, "constants": constants,
                               "autotune": autotune, "background": background, "pipeline": pipeline, "place": place,
                               "mesh": mesh}
    if isinstance(memory_budget, float) and memory_budget.is_integer():        # 8e9
        options["memory_budget"] = memory_budget = int(memory_budget)
    if memory_budget is not None and (isinstance(memory_budget, bool) or not isinstance(memory_budget, int)
                                      or memory_budget < 0):
        raise ArgumentError(f"jit: memory_budget is a number of bytes, not {memory_budget!r}")
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ArgumentError(f"jit: mesh is a Mesh, not {type(mesh).__name__}", hint='tn.distributed.Mesh({"data": 2})')
    if pipeline is not None and not hasattr(pipeline, "mesh_for"):      # its class is not loaded for others
        raise ArgumentError(f"jit: pipeline is a Pipeline, not {type(pipeline).__name__}",
                            hint="tn.distributed.Pipeline(stages=2, micro_batches=8)")
    if (mesh is not None or pipeline is not None) and place is not None:
        raise ArgumentError("jit: a mesh or a pipeline is not combined with places yet", hint="give one of them")
    if (mesh is not None or pipeline is not None) and background:
        raise ArgumentError("jit: background=True is for one device; a mesh waits for its programs")
    if plan is not None and plan != "auto" and not hasattr(plan, "applied"):       # its class is not loaded for others
        raise ArgumentError(f"jit: plan is a Plan or \"auto\", not {type(plan).__name__}",
                            hint="tn.distributed.plan(step, *args)")
    if function is None:
        return functools.partial(jit, plan=plan, **options)
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(jit(function.__func__, plan=plan, **options))
    if not callable(function):
        raise ArgumentError(f"jit takes a function, not {type(function).__name__}",
                            hint="it decorates functions, methods, and objects that can be called")
    if any(kind(_innermost(function)) for kind in NOT_FUNCTIONS):
        name = getattr(_innermost(function), "__qualname__", repr(function))
        raise ArgumentError(f"jit: {name} is a generator or a coroutine, which has no single result",
                            hint="jit a function that does one step, and call it from there")
    make: Callable[[Any], Any] = _planned(plan, options) if plan is not None else lambda whole: Jitted(whole, **options)
    if isinstance(function, types.MethodType):
        return types.MethodType(make(function.__func__), function.__self__)
    return make(function)

