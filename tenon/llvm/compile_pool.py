"""Functions -> what they return, made by other threads, as long as there are any.

`concurrent.futures` does not serve: once the main thread has ended it takes no more work, and cannot even be loaded,
while other threads of the program go on.  These threads end when there is nothing left to do, so nobody has to see to
it; where no thread can be started any more, who asks for something does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from tenon.gc_control import COLLECTOR
from tenon.locks import Lock

T = TypeVar("T")


class Job(Generic[T]):
    """A call that another thread makes."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call, self._done = call, Event()
        self._made: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call."""
        with COLLECTOR:     # a finalizer that compiles would wait for what this call has locked
            try:
                self._made = self._call()
            except BaseException as error:      # which is raised where the result is wanted
                self._error = error
            finally:
                self._done.set()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._done.is_set()

    def result(self) -> T:
        """What the call returned, once it has; raises what it raised.

        >>> Workers(1, "example").submit(lambda: 6 * 7).result()
        42
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
        made: T = self._made
        return made


class Workers:
    """At most so many threads, each of which takes a `place` for every call."""

    def __init__(self, most: int, name: str, place: AbstractContextManager[object] | None = None) -> None:
        self.most, self.name, self._place = most, name, place or nullcontext()
        self._lock, self._jobs, self._working = Lock(), list[tuple[float, Job[Any]]](), 0

    def submit(self, call: Callable[[], T], size: float = math.inf) -> Job[T]:
        """Let a thread make this call; of those that wait the largest comes first, so that none is left to the end."""
        job = Job(call)
        with self._lock:
            self._jobs.append((size, job))
            more = self._working < self.most
            self._working += more
        if more:
            thread = Thread(target=self._work, name=self.name)
            try:
                thread.start()
            except RuntimeError:        # the system has no more, or Python is about to end
                self._work()
            except BaseException:       # an interrupt: the next job starts a thread, or all would wait for ever
                with self._lock:
                    self._working -= thread.ident is None
                raise
        return job

    def _work(self) -> None:
        while True:
            with self._place:       # taken before a call is, which would wait for it while others are begun
                job = self._next()
                if job is None:
                    return
                job.run()

    def _next(self) -> Job[Any] | None:
        with self._lock:
            if not self._jobs:
                self._working -= 1
                return None
            self._jobs.sort(key=itemgetter(0), reverse=True)    # not `max`, which a program may have put another in
            return self._jobs.pop(0)[1]
