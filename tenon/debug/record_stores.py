"""A jitted function -> what its compiled calls store and are given, kept while a block lasts.

    with tn.debug.watch(step, "hidden", "loss") as w:
        step(x, y)
    w["hidden"].value, w["hidden"].grad, w["net.fc1.weight"].before
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenon.capture.captured import Captured
from tenon.capture.graph_breaks import Run
from tenon.debug.array_summary import summary_of
from tenon.debug.instrumented_calls import instrumented, jitted_of
from tenon.debug.value_names import Named, Names, span_of
from tenon.debug.watched_values import Array, Watched, WatchedCall, at_line, fits
from tenon.graph.ir import Value
from tenon.ops.graph_calls import fused
from tenon.program.steps import HostStep, KernelStep, LookStep
from tenon.runtime.instrumented_program import copy_of, outputs_of
from tenon.runtime.run_frame import Frame
from tenon.tensor_state import in_memory


@contextmanager
def watch(function: Any, *patterns: str, line: str | None = None, keep: int = 1,
          summaries: bool = False) -> Iterator[Watched]:
    """See values of the compiled calls of a jitted function, by name: variables, paths of modules, parameters and
    optimizer state, or all at a `line` such as "train.py:14".  Patterns are those of file names.

    `keep` calls are kept.  With `summaries`, `w.summaries` has those of all that the program stores of these names in
    the last call, and no arrays are kept.  Raises ArgumentError for a function without `@tn.jit`.

    >>> @tn.jit
    ... def f(x):
    ...     hidden = x * 2
    ...     return (hidden + 1).sum()
    >>> with tn.debug.watch(f, "hidden") as w:
    ...     y = f(tn.tensor([1.0, 2.0]))
    >>> w["hidden"].value
    array([2., 4.], dtype=float32)
    """
    jitted = jitted_of(function, "watch")
    watched = Watched(jitted, patterns or ("*",), line, max(1, keep))
    observer = _Keeper(watched, summaries)

    def around(run: Run, captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> Any:
        call = observer.begin(captured, leaves)
        result = run(captured, leaves, containers)
        observer.end(call, leaves)
        return result
    with instrumented(jitted, (observer,), around, observer.hear_gradients):
        yield watched


class _Keeper:
    """Copies, or sums up, what kernels store at the places of the watched values."""

    def __init__(self, watched: Watched, summaries: bool):
        self.watched, self.summaries, self.keeps = watched, summaries, False
        self.names: dict[Captured, Names] = {}
        self.places: dict[Any, list[Named]] = {}
        self.call: WatchedCall | None = None

    def begin(self, captured: Captured, leaves: Sequence[Any]) -> WatchedCall:
        """A call is about to run."""
        if captured not in self.names:
            self.names[captured] = names = Names(self.watched.jitted, captured)
            for named in names.values:
                if any(fits(named, p) for p in self.watched.patterns) and (key := _place_of(named.value)) is not None:
                    self.places.setdefault(key, []).append(named)
        self.call = WatchedCall(captured, self.names[captured], [] if self.summaries else _given(captured, leaves))
        if self.summaries:
            self.watched.summaries = {}
        return self.call

    def end(self, call: WatchedCall, leaves: Sequence[Any]) -> None:
        """The call is over, and has done what it does."""
        if not self.summaries:
            call.after = [np.asarray(in_memory(x.own.payload)) for x in call.captured.inputs.holders(leaves)]
            self.watched.calls = _kept([*self.watched.calls, call], self.watched.keep, self.watched.jitted.is_split)

    def hear_gradients(self, arrays: Sequence[Array]) -> None:
        """The program of a gradient is run, with these arguments."""
        if self.watched.calls:
            self.watched.calls[-1].gradients.append(list(arrays))

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        return False, any(map(self._is_wanted, _made(step)))

    def _is_wanted(self, x: Value) -> bool:
        return _place_of(x) in self.places or (x.node is not None and not self.summaries
                                               and at_line(x.node, self.watched.line))

    def see(self, frame: Frame, look: LookStep) -> None:
        """A kernel has stored what it makes."""
        if self.call is None:
            return
        for x, array in zip(_made(look.step), outputs_of(frame, look.step), strict=False):
            if not self._is_wanted(x):
                continue
            if self.summaries:
                self._sum_up(self.places[_place_of(x)], array)
            elif x.node is not None and x.node.loc is not None:
                self.call.stored.append((x.node.loc, array.copy()))

    def _sum_up(self, named: Sequence[Named], array: Array) -> None:
        """The first of the names for this place that is free: layers and turns come in order."""
        known = self.watched.summaries
        names = [x.full for x in named] + [f"{named[-1].full} ({k})" for k in range(2, len(known) + 3)]
        known[next(name for name in names if name not in known)] = summary_of(array)


def _kept(calls: Sequence[WatchedCall], count: int, in_pieces: bool) -> list[WatchedCall]:
    """The last calls; of a function that is split the last runs of each capture."""
    if not in_pieces:
        return list(calls[-count:])
    return [call for k, call in enumerate(calls) if sum(x.captured is call.captured for x in calls[k:]) <= count]


def _given(captured: Captured, leaves: Sequence[Any]) -> list[Array]:
    """What a call is given.  What it updates in place is copied: who held it would keep it from being updated there."""
    donated = frozenset(captured.donations)
    return [copy_of(np.asarray(in_memory(x.own.payload))) if k in donated else np.asarray(in_memory(x.own.payload))
            for k, x in enumerate(captured.inputs.holders(leaves))]


def _place_of(x: Value) -> Any:
    """Where a value comes from, and what it is like; None for gradients, which come from where they are asked for."""
    loc = None if x.node is None else x.node.loc
    return None if loc is None or loc.derives is not None else (span_of(loc), x.dtype, x.ndim)


def _made(step: KernelStep | HostStep) -> tuple[Value, ...]:
    """The outputs of a step: of a kernel, as its body makes them."""
    node = step.node
    return node.attrs["body"].results if node.op is fused else node.outputs
