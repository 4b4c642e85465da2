"""Python's collector of cycles, put off while a function is captured or a graph compiled.

A graph is one large cycle (nodes know their values, values their node), and so are its loop nests and its LLVM IR.
They live until the graph is compiled, so looking for garbage again and again meanwhile finds little, and takes a tenth
of the time.  What has become garbage is freed at the end, by a look at the objects made since; `give_back` hands the
memory on.

Where cycles are collected Python calls finalizers of other code, at any place.  Their operator calls must not become
part of what is recorded, and must not wait for a thread that waits for a lock of the code that they interrupt.  So
nothing is collected while calls are recorded (`graph.op.using`), while something is imported that forks wait for
(`locks.unforked`), or by threads that compile.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock, Thread


class Collector:
    """Python's search for cycles, which rests as long as somebody wants it to: within a `with` of it, too.

    Nothing is called while the lock is held, so no handler of signals runs there: one that waits for a thread that
    compiles would wait for ever.
    """

    def __init__(self) -> None:
        self.lock, self.pauses, self.was_enabled, self.look = RLock(), 0, False, False
        self.resuming = False           # the last pause is over, and the search about to be enabled
        self.resumed = 0                # times that it was

    def pause(self) -> None:
        """Let nothing be collected until `resume`."""
        while True:
            resumed, enabled = self.resumed, gc.isenabled()
            with self.lock:
                if self.pauses or self.resumed == resumed:      # else another thread has enabled it since
                    self.was_enabled = self.was_enabled if self.pauses else enabled or self.resuming
                    self.pauses += 1
                    break
        gc.disable()

    def resume(self, look: bool = False) -> None:
        """Go on as before the first `pause`; with a look at the objects made since, if anybody wants it."""
        with self.lock:
            self.pauses -= 1 if self.pauses else 0      # none are left in a child that was forked meanwhile
            last, wanted = self.pauses == 0 and self.was_enabled, self.look or look
            self.look = wanted and self.pauses > 0
            self.resuming |= last
        if last:
            try:
                if wanted:
                    gc.collect(1)   # before others may: what is made next would have Python look at the youngest first
            finally:
                self._enable()

    def _enable(self) -> None:
        gc.enable()
        with self.lock:
            self.resuming, paused = False, self.pauses > 0
            self.resumed += 1
        if paused:                  # by another thread, meanwhile
            gc.disable()

    def __enter__(self) -> None:
        self.pause()

    def __exit__(self, *error: object) -> None:
        self.resume()


COLLECTOR = Collector()


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """No cycle is looked for before the end of the `with`; where several threads are in one, that of the last.

    >>> import gc
    >>> with collected_at_the_end():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    COLLECTOR.pause()
    try:
        yield
    finally:
        COLLECTOR.resume(look=True)


def collect_young(enough: int = 30_000) -> None:
    """Free what has become garbage since the last look, where that may be much; inside of `collected_at_the_end`.

    >>> with collected_at_the_end():
    ...     collect_young()
    """
    if COLLECTOR.pauses and COLLECTOR.was_enabled and gc.get_count()[0] > enough:
        gc.collect(0)


# nodes or steps of a program that takes so much memory to compile that it is given back at once
LARGE_PROGRAM_STEPS = 100


def give_back(compiler: str = "libllvmlite") -> None:
    """Return to the system what only compiling needs: memory that the C library keeps though it was freed, and the
    pages of the compiler's own code, 40 to 80 MB, which are read again when it is used again.

    >>> give_back()
    """
    import ctypes  # local: slow to load, and here by now where anything was compiled

    if os.name != "posix":
        return
    trim()
    library = ctypes.CDLL(None)
    for start, size in _unchanged_pages(compiler):
        library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), DO_NOT_NEED)


def trim() -> None:
    """Return to the system the memory that the C library keeps though it was freed.

    >>> trim()
    """
    import ctypes  # local: slow to load

    library = ctypes.CDLL(None) if os.name == "posix" else None
    if hasattr(library, "malloc_trim"):     # glibc's alone
        library.malloc_trim(0)              # type: ignore[union-attr]


def give_back_soon() -> None:
    """The same by another thread: Linux takes 10 ms to say what is mapped.  Left, where there can be no more threads.
    """
    with suppress(RuntimeError):
        Thread(target=give_back, name="tenon-give-back").start()


DO_NOT_NEED = 4         # of Linux


def _unchanged_pages(library: str) -> Iterator[tuple[int, int]]:
    """(address, bytes) of what Linux has mapped from the file of a library, cannot be written and never was.

    Where the linker wrote addresses, pages are no longer those of the file: "anonymous", or swapped out.  They are
    "dirty" and "private" only while no child that was forked has them too.
    """
    try:
        with open("/proc/self/smaps") as file:
            text = file.read()
    except OSError:
        return
    at = text.find(library)     # a search for the pattern would go through what hundreds of other files are mapped to
    while at >= 0:
        found = _MAPPING.match(text, text.rfind("\n", 0, at) + 1)
        if found is not None and "w" not in found["rights"] and all(
                re.search(rf"^{name}: +0 kB", found["fields"], re.MULTILINE) for name in ("Anonymous", "Swap")):
            start, end = int(found["start"], 16), int(found["end"], 16)
            yield start, end - start
        at = text.find(library, at + len(library) if found is None else found.end())


_MAPPING = re.compile(r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) (?P<rights>\S+) \S+ \S+ \d+ +/.*\n"
                      r"(?P<fields>(?:[A-Z]\w+:.*\n)+)")


def _after_fork() -> None:
    """A child has none of the threads that compile, and nobody who would open the lock."""
    COLLECTOR.lock, COLLECTOR.resuming = RLock(), False
    if COLLECTOR.pauses:
        COLLECTOR.pauses = 0
        if COLLECTOR.was_enabled:
            gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
