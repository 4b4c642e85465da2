"""The thread pool: Python threads that live in an emitted wait loop, so that a region starts without Python and locks.

    pool().run(function_address, argument_address)      # void f(ptr argument, i32 thread, i32 threads) on every thread

One caller owns the pool at a time; another that comes meanwhile (or a kernel that calls back) runs its function
alone, as thread 0 of 1, which gives the same bits because kernels cut their work without regard to the number of
threads.  A forked child has no workers and starts its own at its first run.  The workers are daemons, sent home
before the interpreter ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from operator import call

import numpy as np

from tenon.atomic import Store
from tenon.config import MAX_THREADS, config, usable_cores
from tenon.errors import ArgumentError
from tenon.gc_control import COLLECTOR
from tenon.llvm import native_thread_pool as native
from tenon.runtime.arena_planning import aligned_bytes

# Looks at a word before sleeping on it: some 10 us.  More gains nothing on a quiet machine; beside another program
# whoever waits is in the way of whoever works (one of two cores taken: an MLP step takes 5 ms with 2000 looks, 12 with
# 8000, 28 with 30000; two products of matrices 0.40 ms with 2000, 0.24 with 700; a 2-core AVX-512 machine).
SPINS = 700
SPINS_CROWDED = 20  # with more threads than cores, whoever waits is in the way of whoever works


def pool() -> Pool:
    """The pool that compiled programs run on."""
    if _of_threads and (own := _of_threads.get(threading.get_ident())) is not None:
        return own
    return common_pool()


def common_pool() -> Pool:
    """The pool of all threads that have none of their own."""
    if _chosen is None:
        with COLLECTOR, _choosing:      # a finalizer may ask, too
            if _chosen is None:
                _choose(config().threads)
    assert _chosen is not None
    return _chosen


def get_num_threads() -> int:
    """How many threads programs run on: `TENON_THREADS`, or one a usable core, until `set_num_threads` says another.

    >>> import tenon as tn
    >>> tn.get_num_threads() >= 1
    True
    """
    return common_pool().threads


@contextmanager
def on_pool(own: Pool | None) -> Iterator[None]:
    """A block of this thread in which programs run on a pool of its own."""
    thread = threading.get_ident()
    before = _of_threads.pop(thread, None)
    if own is not None:
        _of_threads[thread] = own
    try:
        yield
    finally:
        _of_threads.pop(thread, None)
        if before is not None:
            _of_threads[thread] = before


def set_num_threads(threads: int) -> None:
    """Run programs on so many threads from now on.  Results do not depend on it, to the last bit.

    Raises ArgumentError unless 1 <= threads <= 1024.

    >>> import tenon as tn
    >>> before = tn.get_num_threads()
    >>> tn.set_num_threads(1)
    >>> tn.get_num_threads()
    1
    >>> tn.set_num_threads(before)
    """
    if not 1 <= threads <= MAX_THREADS:
        raise ArgumentError(f"set_num_threads: {threads} is not a whole number from 1 to {MAX_THREADS}")
    with COLLECTOR, _choosing:
        before = _chosen
        if before is None or before.threads != threads:
            _choose(threads)
            if before is not None:
                before.close()


def pool_version() -> tuple[int, int]:
    """(address, word): as long as the word is there the pool is this one, and its workers are alive."""
    return _version.ctypes.data, int(_version[0])


def _choose(threads: int) -> None:
    global _chosen
    _version[0] += 1
    _chosen = (Pool if native.default_sleep() == "futex" else SignalledPool)(threads)


class Pool:
    """`threads` threads, the caller among them.  Workers start at the first run and wait until `close`."""

    sleep = "futex"
    in_c = True         # whether a region is run without Python

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._block = aligned_bytes(native.STATE_BYTES)
        self.state = self._block.ctypes.data  # what `meet` takes for `pool`
        self._native = native.entries(self.sleep)
        self._parallel = self._native.parallel
        self._workers: list[threading.Thread] = []
        self._reset()
        _pools.add(self)

    def run(self, function: int, argument: int) -> None:
        """Call the function at this address on every thread of the pool; return when all calls have."""
        call(*self.region(function, argument))

    def region(self, function: int, argument: int) -> Store:
        """What is called to do so, once; a function in C where `in_c`."""
        if not self._ready:
            self.start()
        return self._parallel, self.state, function, argument

    @property
    def parallel(self) -> int | None:
        """The address of what runs a region; None where that takes Python."""
        return self._native.library.address("parallel")

    def close(self, timeout: float = 1.0) -> None:
        """Send the workers home; later runs use the caller alone.  A region that outlasts the timeout keeps them."""
        with self._starting:
            self._end(timeout)

    def _end(self, timeout: float) -> None:
        if self._workers:
            deadline = time.monotonic() + timeout
            while not self._region(0, 0):
                if time.monotonic() > deadline:
                    return
                time.sleep(0.001)
            for worker in self._workers:
                worker.join(timeout)
            self._workers.clear()
        self._block.view(np.int32)[native.BUSY // 4] = 1
        self._ready = True

    def _region(self, function: int, argument: int) -> int:
        return self._parallel(self.state, function, argument)

    def _serve(self, thread: int) -> None:
        self._native.work(self.state, thread)

    def start(self) -> None:
        """Let the workers wait for regions, if they do not yet.

        Where the system has no more threads, or Python is about to end, the caller does all by itself from now on.
        """
        with COLLECTOR, self._starting:     # a finalizer may run programs
            if not self._ready:
                for thread in range(len(self._workers) + 1, self.threads):
                    worker = threading.Thread(target=self._serve, args=(thread,), daemon=True, name=f"tenon-{thread}")
                    try:
                        worker.start()
                    except RuntimeError:
                        self._block.view(np.int32)[native.THREADS // 4] = thread    # that are there
                        self._end(timeout=1.0)
                        return
                    self._workers.append(worker)
                self._ready = True

    def _reset(self) -> None:
        """No workers, nothing running: a new pool, or that of a forked child, at the same address."""
        self._workers.clear()
        self._block[:] = 0
        words = self._block.view(np.int32)
        words[native.THREADS // 4] = self.threads
        words[native.SPINS // 4] = SPINS if self.threads <= usable_cores() else SPINS_CROWDED
        self._block.view(np.int64)[native.BARRIER // 8] = self._native.barrier
        self._starting = threading.Lock()
        self._ready = self.threads == 1


class SignalledPool(Pool):
    """For systems without futex: workers wait in Python between regions, and yield their core within one."""

    sleep = "switch" if os.name == "nt" else "yield"
    parallel = None
    in_c = False

    def region(self, function: int, argument: int) -> Store:
        if not self._ready:
            self.start()
        return self._region, function, argument

    def _region(self, function: int, argument: int) -> int:
        if self.threads > 1 and self._owned.acquire(blocking=False):
            try:
                for signal in self._signals[: len(self._workers)]:
                    signal.release()
                return self._parallel(self.state, function, argument)
            finally:
                self._owned.release()
        if function:
            _KERNEL(function)(argument, 0, 1)
        return 0

    def _serve(self, thread: int) -> None:
        region = 0
        while self._signals[thread - 1].acquire() and self._native.work_once(self.state, thread, region):
            region += 1

    def _reset(self) -> None:
        super()._reset()
        self._owned = threading.Lock()
        self._signals = [threading.Semaphore(0) for _ in range(1, self.threads)]


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()  # all that are in use; a worker keeps its pool
_chosen: Pool | None = None
_of_threads: dict[int, Pool] = {}       # by their identity: of those that have one of their own
_choosing = threading.Lock()
_version = np.zeros(1, np.int64)


def _after_fork() -> None:
    global _choosing
    _choosing = threading.Lock()
    _version[0] += 1
    _of_threads.clear()
    for one in list(_pools):
        one._reset()


@atexit.register
def _before_exit() -> None:
    for one in list(_pools):
        one.close(timeout=0.2)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
