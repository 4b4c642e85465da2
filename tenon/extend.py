"""What users add to Tenon from their own code: kernels, passes, backends.  (`tn.op` adds operators.)

    @tn.kernel(tn.matmul_op, when=lambda a, b: a.dtype is tn.float32)
    def my_matmul(a, b): ...

    @tn.graph_pass(before="fuse")
    def my_pass(graph): ...

    tn.register_backend(Backend("mine", compile=...))

Each gives an `Extension`: `my_pass.remove()` takes it out again, and so does the end of `with tn.graph_pass(f):`.
Programs that are compiled already stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.eager.dispatch import program_of
from tenon.errors import ArgumentError, CompilerDefect
from tenon.graph.ir import Graph
from tenon.graph.kernels import UserKernel, add_kernel, forget_kernel, kernels_of
from tenon.graph.op import OPS, Op
from tenon.program.backend_interface import Backend
from tenon.runtime.open_devices import add_devices, remove_devices

DEVICES = ("cpu",)


class Extension:
    """What was added to Tenon: `remove()` takes it out again, and so does the end of a `with` block.

    One that decorates a function is called as that function.

    >>> def my_sinh(x):
    ...     return (np.exp(x) - np.exp(-x)) / 2
    >>> with tn.kernel("sinh")(my_sinh):
    ...     tn.sinh(tn.tensor(0.0))
    tensor(0.)
    """

    def __init__(self, name: str, remove: Callable[[], None], function: Callable[..., Any] | None = None):
        self.__name__, self._remove, self.__wrapped__ = name, remove, function
        self.__doc__ = None if function is None else function.__doc__

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if self.__wrapped__ is None:
            raise ArgumentError(f"{self!r} is no function")
        return self.__wrapped__(*args, **keywords)

    def remove(self) -> None:
        """Take it out; nothing happens where it is out already."""
        self._remove()

    def __enter__(self) -> Extension:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<extension {self.__name__}>"


def _function(x: Any) -> Any:
    """What an extension decorates; anything else as it is."""
    return x.__wrapped__ if isinstance(x, Extension) else x


def kernel(op: Op | str, device: str = "cpu", when: Callable[..., bool] = lambda *types, **attrs: True) -> Any:
    """Decorate a function of arrays: it computes `op` on `device` wherever `when(*types, **attrs)` holds.

    It is called as `run(*arrays, **attrs)` and returns the output array, or a tuple of them; eager calls and compiled
    programs use it, the reference backend does not.  Raises ArgumentError for an unknown operator or device.

    >>> @tn.kernel("sinh", when=lambda x: x.dtype is tn.float64)
    ... def my_sinh(x):
    ...     return (np.exp(x) - np.exp(-x)) / 2
    >>> tn.sinh(tn.tensor(1.0, dtype=tn.float64))
    tensor(1.1752, dtype=float64)
    >>> tn.remove_kernel("sinh", my_sinh)
    """
    found = OPS.get(op) if isinstance(op, str) else op
    if not isinstance(found, Op):
        raise ArgumentError(f"tn.kernel: no operator named {op!r}")
    if device not in DEVICES:
        raise ArgumentError(f"tn.kernel: no device named {device!r}", hint=f"one of {', '.join(DEVICES)}")

    def register(run: Callable[..., Any]) -> Extension:
        run = _function(run)
        add_kernel(UserKernel(found, device, run, when))
        program_of.cache_clear()
        return Extension(getattr(run, "__name__", found.name), lambda: remove_kernel(found, run, device), run)
    return register


def remove_kernel(op: Op | str, run: Callable[..., Any], device: str = "cpu") -> None:
    """Let a function that `kernel` registered compute the operator no longer."""
    found = OPS.get(op) if isinstance(op, str) else op
    for registered in kernels_of(found, device) if isinstance(found, Op) else ():
        if registered.run is _function(run):
            forget_kernel(registered)
    program_of.cache_clear()


def graph_pass(function: Any = None, *, before: str = "fuse") -> Any:
    """Decorate a function from graph to graph: it becomes a pass of the pipeline, run before the pass named.

    `tenon opt --passes` knows it by the function's name.  Raises ArgumentError for a name that is taken or unknown.
    What it returns must be a graph with the same types of parameters and results, else InvalidPass is raised; where
    TENON_CHECK=passes asks for it, what both compute is compared.
    """
    if function is None:
        return lambda decorated: graph_pass(decorated, before=before)
    from tenon import pipeline  # local: the compiler is loaded only where it is used

    function = _function(function)
    name = function.__name__
    if name in pipeline.PASSES:
        raise ArgumentError(f"tn.graph_pass: a pass named {name!r} exists already")
    if before not in pipeline.OPTIMIZE:
        raise ArgumentError(f"tn.graph_pass: no pass named {before!r}", hint=f"one of {', '.join(pipeline.OPTIMIZE)}")
    added = pipeline.PASSES[name] = _of_one_type(name, function)
    pipeline.OPTIMIZE.insert(pipeline.OPTIMIZE.index(before), name)
    program_of.cache_clear()

    def remove() -> None:
        if pipeline.PASSES.get(name) is added:
            remove_pass(name)
    return Extension(name, remove, function)


class InvalidPass(CompilerDefect):
    """A pass of a user that returns something else than a function of the same type."""


def _of_one_type(name: str, function: Callable[[Graph], Any]) -> Callable[[Graph], Graph]:
    """The pass, which must return a function of the type that it was given."""
    def run(graph: Graph) -> Graph:
        found = function(graph)
        if not isinstance(found, Graph):
            raise InvalidPass(f"the pass {name} returned {type(found).__name__} for the graph {graph.name}",
                              hint="return the new graph, or the one that was given")
        before, after = _signature(graph), _signature(found)
        if before != after:
            raise InvalidPass(f"the pass {name} made {after} of {before}, the graph {graph.name}",
                              hint="the types of parameters and results must stay what they were")
        return found
    return run


def _signature(graph: Graph) -> str:
    params, results = (", ".join(str(x.type) for x in values) for values in (graph.params, graph.results))
    return f"({params}) -> ({results})"


def remove_pass(added: str | Callable[..., Any]) -> None:
    """Take a pass that `graph_pass` added, or its name, out of the pipeline again.  Raises ArgumentError for others."""
    from tenon import pipeline  # local: as above

    name = added if isinstance(added, str) else getattr(added, "__name__", repr(added))
    if name not in pipeline.PASSES or name in pipeline.OWN_PASSES:
        users = [x for x in pipeline.OPTIMIZE if x not in pipeline.OWN_PASSES]
        raise ArgumentError(f"tn.remove_pass: {name!r} is no pass that tn.graph_pass added",
                            hint=f"added are: {', '.join(users) or 'none'}")
    pipeline.OPTIMIZE.remove(name)
    del pipeline.PASSES[name]
    program_of.cache_clear()


def register_backend(backend: Backend) -> Extension:
    """Make a backend known by its name, to `compile(graph, backend=name)` and TENON_BACKEND."""
    from tenon import pipeline  # local: as above

    if backend.name in pipeline.BACKENDS or backend.name == "python":
        raise ArgumentError(f"a backend named {backend.name!r} exists already")
    if backend.devices and backend.open is None:
        raise ArgumentError(f"the backend {backend.name!r} has devices, and nothing that opens them",
                            hint="open=lambda number: ..., which gives a DeviceRuntime")
    pipeline.BACKENDS[backend.name] = backend
    add_devices(backend)

    def remove() -> None:
        if pipeline.BACKENDS.get(backend.name) is backend:
            remove_backend(backend.name)
    return Extension(backend.name, remove)


def remove_backend(name: str) -> None:
    """Forget a backend that `register_backend` added, and its devices."""
    from tenon import pipeline  # local: as above

    if name not in pipeline.BACKENDS or name in ("cpu", "reference"):
        raise ArgumentError(f"remove_backend: no backend named {name!r} was registered")
    del pipeline.BACKENDS[name]
    remove_devices(name)
    program_of.cache_clear()
