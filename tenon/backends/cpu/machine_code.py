"""Kernels -> libraries: from memory, from the disk, or compiled now, by several threads at once.

`start` hands a kernel to a thread while others are still being lowered: LLVM does not hold Python's lock.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from weakref import WeakSet, WeakValueDictionary

from tenon.backends import llvm
from tenon.backends.code_cache import make_key
from tenon.backends.cpu.driver import driver
from tenon.backends.cpu.unit import Unit
from tenon.backends.cpu.unit_cache import code_of, keep
from tenon.backends.threads import default_sleep, entries
from tenon.config import config


def threads() -> ThreadPoolExecutor:
    """A pool that compiles; it starts no thread before it is given work."""
    return ThreadPoolExecutor(config().threads, thread_name_prefix="tenon-compile")


def prepare() -> None:
    """Let other threads make, or find, what every program is run by."""
    pool = threads()
    for make in (driver, partial(entries, default_sleep())):
        pool.submit(make)
    pool.shutdown(wait=False)


def start(unit: Unit, pool: ThreadPoolExecutor) -> None:
    """Find the code of the kernel, or let the pool make it."""
    if unit.code is None and not llvm.is_loaded(name := _name(unit)):
        unit.code = llvm.stored(name) if unit.key is None else code_of(unit.key)
        unit.code = unit.code or _in_the_making.get(name) or pool.submit(_compile, unit, unit.ir)
        if isinstance(unit.code, Future):
            _in_the_making[name] = unit.code


def libraries(units: Collection[Unit]) -> list[llvm.Library]:
    """The machine code of kernels, in memory."""
    with threads() as pool:
        for unit in units:
            start(unit, pool)
        return [_library(unit) for unit in units]


def _library(unit: Unit) -> llvm.Library:
    def kept() -> bytes | None:
        return unit.code if isinstance(unit.code, bytes) else None

    def make() -> bytes:
        if isinstance(unit.code, Future) and unit.code not in _lost:
            return unit.code.result()
        return _compile(unit, unit.ir)

    library = llvm.obtain(_name(unit), kept, make)
    unit.forget()
    return library


def _name(unit: Unit) -> str:
    """Equal for kernels that are the same code."""
    return unit.key or make_key(unit.ir, *llvm.environment())


def _compile(unit: Unit, text: str) -> bytes:
    code = llvm.compile_object(text)
    if unit.key is not None:
        keep(unit.key, unit.facts, code)
    else:
        llvm.store(_name(unit), code)
    return code


_in_the_making: WeakValueDictionary[str, Future[bytes]] = WeakValueDictionary()      # while a kernel waits for it
_lost: WeakSet[Future[bytes]] = WeakSet()       # which nobody makes any more


def _after_fork() -> None:
    """A child has none of the threads that compile."""
    _lost.update(_in_the_making.values())
    _in_the_making.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
