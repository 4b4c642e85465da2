"""Kernels -> libraries: from memory, from the disk, or compiled now, by several threads at once.

`start` hands a kernel to a thread while others are still being lowered: LLVM does not hold Python's lock.  One core is
left to who lowers them, until it waits: else there would be nothing to compile while it goes through passes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Condition
from weakref import WeakSet, WeakValueDictionary

from tenon.config import config
from tenon.llvm import machine_code
from tenon.llvm.code_cache import make_key
from tenon.llvm.compile_pool import Job, Workers
from tenon.llvm.native_thread_pool import default_sleep, entries
from tenon.locks import Lock
from tenon.program.kernel import CompiledKernel
from tenon.program.kernel_cache import code_of, store_kernel
from tenon.program.step_executor import driver


def threads() -> Workers:
    """Threads that compile, the same for all, so that the largest kernels of all come first; there are none before they
    are given work."""
    global _workers
    with _starting:
        if _workers is None or _workers.most != config().threads:
            _workers = Workers(config().threads, "tenon-compile", _places)
        return _workers


def prepare() -> None:
    """Let other threads make, or find, what every program is run by."""
    pool = threads()
    for make in (driver, partial(entries, default_sleep())):
        pool.submit(make)


def start(unit: CompiledKernel, pool: Workers) -> None:
    """Find the code of the kernel, or let the pool make it."""
    if unit.code is None and not machine_code.is_loaded(name := _name(unit)):
        unit.code = machine_code.stored(name) if unit.key is None else code_of(unit.key)
        unit.code = unit.code or _in_the_making.get(name) or pool.submit(partial(_compile, unit, unit.ir), len(unit.ir))
        if isinstance(unit.code, Job):
            _in_the_making[name] = unit.code


def libraries(units: Collection[CompiledKernel]) -> list[machine_code.Library]:
    """The machine code of kernels, in memory."""
    pool = threads()
    for unit in units:
        start(unit, pool)
    with _places.one_more():
        return [_library(unit) for unit in units]


def _library(unit: CompiledKernel) -> machine_code.Library:
    def kept() -> bytes | None:
        return unit.code if isinstance(unit.code, bytes) else None

    def make() -> bytes:
        if isinstance(unit.code, Job) and unit.code not in _lost:
            return unit.code.result()
        with _places:
            return _compile(unit, unit.ir)

    library = machine_code.obtain(_name(unit), kept, make)
    unit.forget()
    return library


def _name(unit: CompiledKernel) -> str:
    """Equal for kernels that are the same code."""
    return unit.key or make_key(unit.ir, *machine_code.environment())


def _compile(unit: CompiledKernel, text: str) -> bytes:
    with machine_code.short_turns:
        code = machine_code.compile_object(text)
        if unit.key is not None:
            store_kernel(unit.key, unit.facts, code)
        else:
            machine_code.store(_name(unit), code)
        return code


class Places:
    """For threads that compile: one fewer than there may be threads, or as many while another one waits for them."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken = 0
        self._waiting = 0

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._taken < max(1, config().threads - (not self._waiting)))
            self._taken += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._taken -= 1
            self._changed.notify_all()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """While the calling thread has nothing else to do."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, threads: int) -> None:
        with self._changed:
            self._waiting += threads
            self._changed.notify_all()


_starting = Lock()
_workers: Workers | None = None
_places = Places()
_in_the_making: WeakValueDictionary[str, Job[bytes]] = WeakValueDictionary()      # while a kernel waits for it
_lost: WeakSet[Job[bytes]] = WeakSet()       # which nobody makes any more


def _after_fork() -> None:
    """A child has none of the threads that compile."""
    global _places, _starting, _workers
    _places, _starting, _workers = Places(), Lock(), None
    _lost.update(_in_the_making.values())
    _in_the_making.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
