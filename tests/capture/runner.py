"""A program -> its verdict: what it does eagerly and captured, call by call, and how the two compare.

One graph: right, and the system said that all of it is one graph.  Fell back: right otherwise.  Refused: an error that
the eager program does not raise.  Different: another value, effect or exception, without a word.  Hang: over the limit.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import signal
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from capture.adapters import System
from capture.corpus import Program, Raised, V, load

ONE_GRAPH, FELL_BACK, REFUSED, DIFFERENT, HANG, CRASH = "one graph", "fell back", "refused", "different", "hang", "crash"
UNFIT = "not for it"        # the system cannot run the program eagerly
VERDICTS = (ONE_GRAPH, FELL_BACK, REFUSED, DIFFERENT, CRASH, HANG, UNFIT)
CLOSE = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}


@dataclass(frozen=True)
class Verdict:
    """What became of a program, and the first thing that says so."""

    word: str
    detail: str = ""

    @property
    def right(self) -> bool:
        """Whether every call did what the eager program does."""
        return self.word in (ONE_GRAPH, FELL_BACK)


@dataclass(frozen=True)
class Observation:
    """What a call left behind, in plain values: its result and arguments, what it printed, the globals of the file."""

    result: Any
    printed: str
    globals: dict[str, Any]


def judge(program: Program, system: System, seconds: float = 60.0) -> Verdict:
    """The verdict of a program under a system: by its strictest decorator that is right."""
    found, refusal = Verdict(UNFIT), ""
    try:
        with limit(seconds):
            eager = observe(program, system, lambda f: f)
            broken = next((o.result for o in eager if isinstance(o.result, Failure)), None)
            if broken is not None:
                return Verdict(UNFIT, f"eagerly: {broken}")
            for word, jit in zip((ONE_GRAPH, FELL_BACK), system.jits, strict=False):
                found = compare(eager, observe(program, system, jit), word)
                if found.word != REFUSED:
                    break
                refusal = refusal or found.detail
    except Hang:
        return Verdict(HANG, f"after {seconds:g} s")
    return Verdict(found.word, found.detail or refusal)


def observe(program: Program, system: System, jit: Callable[..., Any]) -> list[Observation]:
    """Run a fresh copy of the program; what each of its steps left behind."""
    system.begin()
    programs, table = load(program.category, system.operations)
    steps, seen = programs[program.name].run(jit), []
    for _ in range(100):
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                result = next(steps)
        except StopIteration:
            break
        except Exception as error:
            seen.append(Observation(Failure(error), printed.getvalue(), {}))
            break
        plain = Plain(system)
        seen.append(Observation(plain(result), printed.getvalue(), plain.globals(table)))
    return seen


class Failure(str):
    """The exception that ended a program for good."""

    def __new__(cls, error: BaseException) -> Failure:
        return super().__new__(cls, f"{type(error).__name__}: {first_line(error)}")


# ---------------------------------------------------------------- plain values

class Plain:
    """Anything -> numbers, text, arrays and tuples of them, which can be compared and outlive the program."""

    def __init__(self, system: System):
        self.system = system
        self.within: set[int] = set()

    def globals(self, table: dict[str, Any]) -> dict[str, Any]:
        """The data among the globals of a file of programs, and the data of its classes."""
        found = {name: self(value) for name, value in table.items()
                 if not name.startswith("__") and name not in ("T", "INPUTS") and not callable(value)
                 and not isinstance(value, (types.ModuleType, V))}
        for name, value in table.items():
            if isinstance(value, type) and value.__module__ == table["__name__"]:
                found[name] = self({k: v for k, v in vars(value).items() if not k.startswith("_") and is_data(v)})
        return found

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return value
        if isinstance(value, Raised):
            return ("raised", type(value.error).__name__, first_line(value.error))
        if isinstance(value, (np.ndarray, np.generic)):
            return np.array(value)
        try:
            array = self.system.array(value)
        except Exception as error:      # such as a tensor of a capture that is over
            return f"unreadable: {type(error).__name__}"
        if array is not None:
            return np.array(array)
        if id(value) in self.within:
            return "itself"
        self.within.add(id(value))
        try:
            return self._nest(value)
        finally:
            self.within.discard(id(value))

    def _nest(self, value: Any) -> Any:
        name = type(value).__name__
        if isinstance(value, dict):
            return (name, *[(self(k), self(v)) for k, v in value.items()])
        if isinstance(value, (list, tuple, deque)):
            return (name, *map(self, value))
        if isinstance(value, (set, frozenset)):
            return (name, *sorted(map(repr, map(self, value))))
        if callable(value) or isinstance(value, types.ModuleType):
            return getattr(value, "__name__", name)
        slots = {s: getattr(value, s) for s in getattr(type(value), "__slots__", ()) if hasattr(value, s)}
        return (name, *[(k, self(v)) for k, v in (getattr(value, "__dict__", {}) | slots).items()])


def is_data(value: Any) -> bool:
    """Whether a member of a class is something other than code."""
    return not callable(value) and not hasattr(value, "__get__")


def first_line(error: BaseException) -> str:
    """What an exception says, without the place that Tenon's add."""
    return str(error.args[0] if error.args else "").partition("\n")[0]


# ---------------------------------------------------------------- comparison

def compare(eager: list[Observation], captured: list[Observation], right: str) -> Verdict:
    """`right`, or the first difference."""
    for number, (want, got) in enumerate(itertools.zip_longest(eager, captured), 1):
        if got is None or want is None:
            return Verdict(DIFFERENT, f"step {number} is {'missing' if got is None else 'one too many'}")
        place = next(differences(want.result, got.result, "result"), "")
        if refusal := next(raised(want.result, got.result), None):
            return Verdict(REFUSED, f"step {number}: {refusal}")
        place = place or next(differences(want.printed, got.printed, "printed"), "")
        place = place or next(differences(want.globals, got.globals, "globals"), "")
        if place:
            return Verdict(DIFFERENT, f"step {number}: {place}")
    return Verdict(right)


def raised(want: Any, got: Any) -> Iterator[str]:
    """The exceptions in what a captured program gave where the eager one has none of this kind."""
    if isinstance(got, Failure):
        yield str(got)
    elif isinstance(got, tuple) and got[:1] == ("raised",):
        if not (isinstance(want, tuple) and want[:2] == got[:2]):
            yield f"{got[1]}: {got[2]}"
    elif isinstance(got, tuple):
        matching = want if isinstance(want, tuple) else ()
        for a, b in itertools.zip_longest(matching, got):
            yield from raised(a, b)


def differences(want: Any, got: Any, path: str) -> Iterator[str]:
    """Where two plain values differ.  A number and a tensor without axes may stand for each other."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in want.keys() | got.keys():
            yield from differences(want.get(key, "absent"), got.get(key, "absent"), f"{path}.{key}")
    elif isinstance(want, tuple) and isinstance(got, tuple) and len(want) == len(got):
        for k, (a, b) in enumerate(zip(want, got, strict=True)):
            yield from differences(a, b, f"{path}[{k}]")
    elif not same(want, got):
        yield f"{path} is {short(got)}, eagerly {short(want)}"


def same(want: Any, got: Any) -> bool:
    """Equality of leaves, up to rounding."""
    numbers = (bool, int, float, complex, np.ndarray)
    if isinstance(want, numbers) and isinstance(got, numbers):
        a, b = np.asarray(want), np.asarray(got)
        return a.shape == b.shape and a.dtype.kind == b.dtype.kind and bool(np.allclose(b, a, **CLOSE))
    return type(want) is type(got) and bool(want == got)


def short(value: Any) -> str:
    """A value in a few words."""
    return " ".join(repr(value).split())[:90]


# ---------------------------------------------------------------- time

class Hang(BaseException):
    """A program that did not come back."""


@contextlib.contextmanager
def limit(seconds: float) -> Iterable[None]:
    """End the block with `Hang` once it has computed for so long; only in the main thread.

    It is the time of the processor, so that a busy machine does not count.
    """
    def stop(*_: Any) -> None:
        raise Hang
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
