"""Functions, one a device -> their results, computed side by side: the caller does the first, threads do the others.

    first, second = run_side_by_side([lambda: 1, lambda: 2], on_failure=print)

Threads are kept for the next time.  Compiled code runs without Python's lock, so that devices do run at once; each has
its share of the threads of the pool.  When one fails, `on_failure` wakes those that wait for it, and what failed first
is raised in the caller when all have come to an end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from tenon.runtime.thread_pool import Pool, get_num_threads, on_pool

Job = Callable[[], Any]
MAX_PATIENCE = {False: 1.0, True: 30.0}         # seconds, after Ctrl-C and after an error


def run_side_by_side(jobs: Sequence[Job], on_failure: Callable[[BaseException], None]) -> list[Any]:
    """What each job returns, in order; raises what the first that failed raised."""
    run = _Run(len(jobs), on_failure)
    pools = _pools_for(len(jobs))
    workers = [_take_worker() for _ in jobs[1:]]
    for k, worker in enumerate(workers, 1):
        worker.jobs.put((copy_context().run, run.do, k, jobs[k], pools[k], worker))
    run.do(0, jobs[0], pools[0])
    run.wait()
    if run.failures:
        raise run.failures[0]
    return run.results


class _Run:
    """The jobs of one call: their results, who failed first, and how many still run."""

    def __init__(self, count: int, on_failure: Callable[[BaseException], None]):
        self.results: list[Any] = [None] * count
        self.failures: list[BaseException] = []
        self.on_failure = on_failure
        self._others = threading.Semaphore(0)
        self._running = count - 1

    def do(self, k: int, job: Job, pool: Pool | None, worker: _Worker | None = None) -> None:
        try:
            with on_pool(pool):
                self.results[k] = job()
        except BaseException as error:      # KeyboardInterrupt too: nobody waits for who is gone
            self.fail(error)
        finally:
            if worker is not None:
                _idle.append(worker)
                self._others.release()

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.on_failure(error)

    def wait(self) -> None:
        """Until the others have ended; Ctrl-C meanwhile ends them.

        Where one has failed, a loop without end on another, which no signal reaches, is not waited for: its thread is
        left to itself, with memory of its own.
        """
        while self._running:
            try:
                patience = None if not self.failures else MAX_PATIENCE[isinstance(self.failures[0], Exception)]
                if not self._others.acquire(timeout=patience):
                    return
                self._running -= 1
            except BaseException as error:
                self.fail(error)


# ---------------------------------------------------------------- the threads

class _Worker:
    """A thread that does what it is sent."""

    def __init__(self, number: int) -> None:
        self.jobs: SimpleQueue[Any] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, daemon=True, name=f"tenon-device-{number}")
        self.thread.start()

    def _serve(self) -> None:
        while True:
            function, *arguments = self.jobs.get()
            function(*arguments)
            del function, arguments     # they keep arrays alive


_idle: list[_Worker] = []
_shares: dict[tuple[int, int], list[Pool]] = {}     # (threads in all, devices) -> a pool a device
_busy = threading.Lock()


def _take_worker() -> _Worker:
    """One that has nothing to do, or a new one: runs may be nested, and several threads may start one."""
    try:
        return _idle.pop()
    except IndexError:
        return _Worker(threading.active_count())


def _pools_for(devices: int) -> Sequence[Pool | None]:
    """For each device the pool that has its share of the threads."""
    threads = get_num_threads()
    key = threads, devices
    if key not in _shares:
        with _busy:
            if key not in _shares:
                for old in [key for key in _shares if key[0] != threads]:
                    for pool in _shares.pop(old):
                        pool.close()
                _shares[key] = [Pool(threads // devices + (k < threads % devices) or 1) for k in range(devices)]
    return _shares[key]


def _after_fork() -> None:
    global _busy
    _busy = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

