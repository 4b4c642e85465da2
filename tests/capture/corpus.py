"""What a file of programs is written with: `T`, the operations; `program` and `session`, what a program is.

    @program
    def halved_when_large(x):               # called with x, y of INPUTS, one after the other
        return x / 2 if T.sum(x) > 1 else x

    @program([V(1, 2), 3], [V(3, 4), 5])    # called with these arguments
    def scaled(x, n):
        return x * n

    @session                                # calls by itself, and yields what it saw
    def a_global_changes(jit):
        ...
        yield f(x)

`T` is a library's few operations under the names of `adapters.py`, so that every library runs the same programs.  A
program is run in a fresh copy of its file, so that what it leaves behind in globals and classes is its own.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "programs"
T: Any = None       # the operations of the copy that is being loaded
_loaded: list[Program] = []


class V:
    """Data of a tensor: f32 numbers, or what `elements` says; made into a tensor of `T` for every call anew."""

    def __init__(self, *elements: Any, dtype: str = "float32"):
        self.elements = elements[0] if len(elements) == 1 and isinstance(elements[0], list) else list(elements)
        self.dtype = dtype

    @staticmethod
    def random(*shape: int, seed: int = 0) -> V:
        """Normal numbers."""
        return V(np.random.default_rng(seed).standard_normal(shape).round(3).tolist())


def scalar(number: float) -> V:
    """Data of a tensor without axes."""
    data = V()
    data.elements = number      # type: ignore[assignment]
    return data


# Calls that go down different paths, and again, since a warm call goes another way than a first one.
INPUTS = [
    {"x": V(1.0, -2.0, 3.0, 0.5), "y": V([[.1, .2, .3, .4], [-1., 0., 1., 2.], [2., -3., .5, 1.]])},
    {"x": V(-1.0, -2.0, 0.25, -3.5), "y": V([[.5, -.2, .3, .1], [1., 0., 1., -2.], [-2., 3., .5, 1.]])},
    {"x": V(4.0, 3.0, 2.0, 1.0), "y": V([[-.1, .2, -.3, .4], [1., 1., 1., 1.], [0., 0., .5, -1.]])},
] * 2


@dataclass(frozen=True)
class Program:
    """`run(jit)` calls the program several times, decorated by `jit`, and yields what is to be compared."""

    name: str
    category: str
    run: Callable[[Callable[..., Any]], Iterator[Any]]
    line: int
    not_one_graph: str      # the reason for which no system can make it one graph, if there is one

    @property
    def path(self) -> str:
        """What it is called in lists: `category/name`."""
        return f"{self.category}/{self.name}"


@dataclass(frozen=True)
class Raised:
    """A call that ended in an exception."""

    error: BaseException


def attempt(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """The result of a call, or what it raised."""
    try:
        return function(*args, **keywords)
    except Exception as error:
        return Raised(error)


def program(*calls: Any, not_one_graph: str = "") -> Any:
    """Add a plain function to the corpus: one call for each list of arguments, or those of INPUTS."""
    if len(calls) == 1 and inspect.isfunction(calls[0]):
        return program()(calls[0])

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        names = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        chosen = [list(call) for call in calls] or [[values[name] for name in names] for values in INPUTS]

        def run(jit: Callable[..., Any]) -> Iterator[Any]:
            jitted = jit(function)
            for arguments in chosen:
                made = [tensors(x) for x in arguments]
                yield attempt(jitted, *made), made
        _add(function, run, not_one_graph)
        return function
    return add


def session(run: Any = None, *, not_one_graph: str = "") -> Any:
    """Add a generator to the corpus that takes `jit`, calls what it decorates, and yields what it sees."""
    if run is None:
        return lambda run: session(run, not_one_graph=not_one_graph)
    _add(run, run, not_one_graph)
    return run


def _add(function: Callable[..., Any], run: Callable[..., Iterator[Any]], not_one_graph: str) -> None:
    code = function.__code__
    _loaded.append(Program(function.__name__, Path(code.co_filename).stem, run, code.co_firstlineno, not_one_graph))


def tensors(nest: Any) -> Any:
    """The nest with data made into tensors."""
    if isinstance(nest, V):
        return T.tensor(nest.elements, nest.dtype)
    if isinstance(nest, (list, tuple)):
        return type(nest)(map(tensors, nest))
    return {k: tensors(v) for k, v in nest.items()} if isinstance(nest, dict) else nest


def load(category: str, operations: Any) -> tuple[dict[str, Program], dict[str, Any]]:
    """A fresh copy of a file of programs: the programs by name, and the globals of the copy."""
    global T
    T = operations
    _loaded.clear()
    name = f"capture_programs_{category}"
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{category}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {one.name: one for one in _loaded}, vars(module)


def categories() -> list[str]:
    """The files of programs."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def everything(operations: Any) -> Iterable[Program]:
    """All programs of the corpus."""
    return [one for category in categories() for one in load(category, operations)[0].values()]
