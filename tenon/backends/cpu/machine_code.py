"""Kernels -> libraries: from memory, from the disk, or compiled now, by several threads at once.

`start` hands a kernel to a thread while others are still being lowered: LLVM does not hold Python's lock.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from tenon.backends import llvm
from tenon.backends.code_cache import make_key
from tenon.backends.cpu.unit import Unit
from tenon.backends.cpu.unit_cache import code_of, keep
from tenon.config import config


def threads() -> ThreadPoolExecutor:
    """A pool that compiles; it starts no thread before it is given work."""
    return ThreadPoolExecutor(config().threads, thread_name_prefix="tenon-compile")


def start(unit: Unit, pool: ThreadPoolExecutor) -> None:
    """Find the code of the kernel, or let the pool make it."""
    if unit.code is None and not llvm.is_loaded(name := _name(unit)):
        unit.code = llvm.stored(name) if unit.key is None else code_of(unit.key)
        unit.code = unit.code or pool.submit(_compile, unit, unit.ir)


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
        return unit.code.result() if isinstance(unit.code, Future) else _compile(unit, unit.ir)

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
