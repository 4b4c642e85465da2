"""A script -> where its time goes, without a change of it: what `tenon profile script.py` prints.

Calls of jitted functions are timed as they are made.  When the script is over, the steps of the programs that took
most are timed one by one, for the arguments of their last call.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from runpy import run_path
from typing import Any

from tenon.capture.jitted import Jitted
from tenon.debug.chrome_trace import Trace, trace
from tenon.debug.console import plain_table
from tenon.debug.cost_tables import ms
from tenon.debug.profiler import Profile, profile
from tenon.debug.stage_texts import blaming
from tenon.errors import TenonError
from tenon.graph.op import at_once
from tenon.records import dataclass

MAX_TIMED_FUNCTIONS = 3  # functions whose steps are timed


@dataclass(eq=False)
class Calls:
    """The calls of one jitted function: how many, the seconds of the first and of all others, the last arguments."""

    function: Jitted
    count: int = 0
    first: float = 0.0
    others: float = 0.0
    args: tuple[Any, ...] = ()
    keywords: Any = None

    @property
    def seconds(self) -> float:
        """Of all calls."""
        return self.first + self.others

    def profile(self) -> Profile:
        """The steps of the last call."""
        return profile(self.function, *self.args, **(self.keywords or {}))


@dataclass(eq=False)
class Recorded:
    """What was seen of a script."""

    seconds: float
    calls: list[Calls]

    def table(self) -> str:
        """The functions that were called, those that took most first."""
        rows = [[c.function.__name__, c.count, ms(c.first), ms(c.others / (c.count - 1)) if c.count > 1 else "",
                 ms(c.seconds), f"{c.seconds / self.seconds:.1%}"] for c in self.calls]
        if not rows:
            return f"{ms(self.seconds)}; no jitted function was called"
        return plain_table(f"{ms(self.seconds)}, of which in jitted functions:",
                           ["function", "calls", "first", "others", "all", "share"],
                           [[str(x) for x in row] for row in rows])


@contextmanager
def recorded_calls(heard: Trace | None = None) -> Iterator[dict[int, Calls]]:
    """The calls of jitted functions in the block, by the function's identity.

    What stands in the place of `Jitted.__call__` costs half a microsecond a call.
    """
    calls: dict[int, Calls] = {}
    whole = Jitted.__call__

    def timed_call(self: Jitted, *args: Any, **keywords: Any) -> Any:
        if not at_once():                       # a part of a capture
            return whole(self, *args, **keywords)
        seen = calls.get(id(self))
        if seen is None:
            seen = calls[id(self)] = Calls(self)
        started = time.perf_counter()
        try:
            return whole(self, *args, **keywords)
        finally:
            taken = time.perf_counter() - started
            if seen.count:
                seen.others += taken
            else:
                seen.first = taken
            seen.count += 1
            seen.args, seen.keywords = args, keywords
            if heard is not None:
                heard.add(self.__name__, started, taken)
    _replace_call(timed_call)
    try:
        yield calls
    finally:
        _replace_call(whole)


def _replace_call(call: Callable[..., Any]) -> None:
    setattr(Jitted, "__call__", call)  # noqa: B010  # a method is not assigned to, says mypy


def record_script(script: str, arguments: Sequence[str], trace_to: str | None = None) -> Recorded:
    """Run a script as `python script arguments` would, and take note of its jitted calls; `trace_to` gets a trace.

    A script that fails is told of where it fails, with what was seen until then lost.
    """
    argv, path = sys.argv[:], sys.path[:]
    sys.argv, sys.path[:0] = [script, *arguments], [str(Path(script).resolve().parent)]
    started = time.perf_counter()
    try:
        with trace(trace_to) if trace_to else nullcontext() as heard, recorded_calls(heard) as calls, blaming(script):
            try:
                run_path(script, run_name="__main__")
            except SystemExit as stop:
                if stop.code not in (None, 0):
                    raise TenonError(f"{script} left with {stop.code!r}") from None
    finally:
        sys.argv, sys.path[:] = argv, path
    seconds = time.perf_counter() - started
    return Recorded(seconds, sorted(calls.values(), key=lambda c: -c.seconds))


def report(recorded: Recorded, tables: Sequence[str]) -> Iterator[str]:
    """The text of `tenon profile`: functions, then the steps of those that take most."""
    yield recorded.table()
    for calls in recorded.calls[:MAX_TIMED_FUNCTIONS]:
        try:
            found = calls.profile()
        except TenonError as error:
            yield f"\n{calls.function.__name__}: no steps: {error.what}"
            continue
        yield (f"\n{calls.function.__name__}: {len(found.steps)} steps, {ms(found.seconds)}; "
               f"by threads {ms(found.shared)}")
        for name in tables:
            yield f"\n{found.source() if name == 'source' else str(found) if name == 'step' else found.table(name)}"
