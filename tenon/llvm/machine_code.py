"""LLVM IR text -> machine code for this machine, in memory and on disk.

    library = compile('define i32 @answer() { ret i32 42 }')
    answer = ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("answer"))

Code is produced as a relocatable object, which is what the disk cache holds, and linked by ORC with JITLink (MCJIT
ends the process when a name is missing).  Every compilation has an LLVM context of its own (`llvm_codegen`).
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import weakref
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tenon.config import config
from tenon.llvm import float16_libcalls
from tenon.llvm.code_cache import CodeCache, make_key
from tenon.llvm.compile_pool import Job
from tenon.llvm.gil_switch_interval import ShortTurns
from tenon.llvm.host_target import host, target_machine
from tenon.llvm.llvm_codegen import ASSEMBLY, OBJECT, CodeError, emitted, optimised_module
from tenon.llvm.shared_functions import PREFIX, needing, needs, parted
from tenon.locks import Lock, unforked
from tenon.observe import emit, span
from tenon.target import Target

MAPPINGS = 3            # of memory that a library takes
OPTIONS = "O2 or O1, loops' vectors, masked groups, unrolling if asked, few passes for plain code, PIC, O0 for drivers"


class Library:
    """Machine code in memory, for as long as this object lives."""

    def __init__(self, data: bytes) -> None:
        if len(_alive) >= most_libraries():
            raise CodeError(f"{len(_alive)} kernels are in memory, and this system has no room for the pages of more",
                            hint="drop compiled programs that are no longer used, or raise vm.max_map_count")
        self.name = f"tenon.{next(_library_numbers)}"
        names, data = needs(data)
        self._pieces = [_piece(name) for name in names]
        builder = llvm.JITLibraryBuilder().add_object_img(data).add_current_process()
        for name, address in _provided.items():
            builder.import_symbol(name, address)
        for name, library in zip(names, self._pieces, strict=True):
            builder.import_symbol(name, library.address(name))
        for name, ours in float16_libcalls.FUNCTIONS.items():
            if name.encode() in data:
                builder.import_symbol(name, _half().address(ours))
        try:
            self._trackers = [builder.link(_linker(), self.name)]   # with the first that goes the linker frees the code
        except RuntimeError as error:
            raise CodeError(f"object code cannot be loaded: {error}") from None
        self._addresses: dict[str, int] = {}
        _alive.add(self)

    def address(self, name: str) -> int:
        """Where the function or global `name` is.  Keep the library as long as you use it."""
        found = self._addresses.get(name)
        if found is None:
            try:
                tracker = _linker().lookup(self.name, name)
            except RuntimeError as error:
                raise CodeError(f"{name}: {error}") from None
            self._trackers.append(tracker)          # also where another thread has asked for the same meanwhile
            found = self._addresses[name] = int(tracker[name])
        return found


@cache
def _half() -> Library:
    """The conversions of float16 that this processor lacks."""
    return compile(float16_libcalls.MODULE)


def provide(functions: Mapping[str, int]) -> None:
    """Let machine code that is linked from now on call these functions, by name, at their addresses."""
    _provided.update(functions)


@cache
def most_libraries() -> int:
    """How many may be in memory.  Linux limits a process's mappings, and the linker ends the process at the limit."""
    try:
        mappings = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return sys.maxsize
    return mappings * 3 // 4 // MAPPINGS


def compile(ir_text: str) -> Library:
    """The library for a module: the one in memory, or from the disk cache, or compiled now."""
    key = make_key(ir_text, *environment())

    def make() -> bytes:
        data = compile_object(ir_text)
        store(key, data)
        return data
    return obtain(key, lambda: stored(key), make)


def obtain(key: str, kept: Callable[[], bytes | None], make: Callable[[], bytes],
           place: str | None = None) -> Library:
    """The library of this name: the one in memory, or of the code that is `kept`, or of the code that `make` makes.

    What is kept lies on disk under `place`, which is the name unless given, and is discarded where it cannot be loaded.
    """
    library = _libraries.get(key)
    if library is None:
        data = kept()
        library = _libraries[key] = (None if data is None else _unless_damaged(place or key, data)) or Library(make())
    return library


def is_loaded(key: str) -> bool:
    """Whether the library of this name is in memory."""
    return key in _libraries


def keeps_code() -> bool:
    """Whether there is a disk cache."""
    return _disk().directory is not None


def stored(key: str) -> bytes | None:
    """What the disk cache holds under this key."""
    return _disk().get(key)


def store(key: str, data: bytes) -> None:
    """Keep code, or what belongs to it, on disk."""
    _disk().put(key, data)


def compile_object(ir_text: str) -> bytes:
    """Relocatable object code for this machine's processor; the pieces that it calls are compiled too, once."""
    text, pieces = parted(ir_text)
    for name, piece in pieces.items():
        _make_piece(name, piece)
    return needing(list(pieces), _compile(text, OBJECT, host()))


def assembly(ir_text: str, target: Target | None = None) -> str:
    """The machine code of a module and of the pieces that it calls as text, to be read, for this machine unless another
    is named; kept on disk as code is."""
    text, pieces = parted(ir_text)
    return "\n".join(_assembly(x, target or host()) for x in (text, *pieces.values()))


def _assembly(ir_text: str, target: Target) -> str:
    key = make_key("assembly", ir_text, *environment(target))
    try:
        return zlib.decompress(stored(key) or b"").decode()
    except (zlib.error, UnicodeDecodeError):        # it is not there, or damaged
        made = _compile(ir_text, ASSEMBLY, target)
        store(key, zlib.compress(made, 1))
        return made.decode()


def optimised(ir_text: str) -> str:
    """The module after LLVM's passes, to be read."""
    return str(optimised_module(parted(ir_text)[0], target_machine(host()), host().masks_lanes))


def _make_piece(name: str, text: str) -> None:
    """Compile a piece, unless that was done, or somebody is doing so."""
    def make() -> bytes:
        code = stored(_piece_key(name))
        if code is None:
            code = _compile(text, OBJECT, host())
            store(_piece_key(name), code)
        return code

    with _starting:
        if name in _pieces:
            return
        made = _pieces[name] = Job(make)
    made.run()
    try:
        made.result()
    except BaseException:
        del _pieces[name]
        raise


def _piece(name: str) -> Library:
    """The library of a piece, which was made before by this process, or by an earlier one."""
    def make() -> bytes:
        raise CodeError(f"{name}, which a kernel calls, is neither in memory nor on disk")

    def kept() -> bytes | None:
        made = _pieces.get(name)
        return stored(_piece_key(name)) if made is None else made.result()
    return obtain(name, kept, make, _piece_key(name))


def _forget_unfinished() -> None:
    """After a fork nobody finishes what other threads were compiling."""
    for name in [name for name, made in _pieces.items() if not made.done]:
        del _pieces[name]
    short_turns.forked()


def _piece_key(name: str) -> str:
    """Under which a piece is on disk."""
    return make_key(name, *environment())


def _unless_damaged(key: str, data: bytes) -> Library | None:
    try:
        library = Library(data)
    except CodeError as error:  # written whole, and yet nothing that this LLVM can load
        emit("code_cache.damaged", key=key, error=str(error))
        _disk().discard(key)
        return None
    emit("code_cache.hit", key=key)
    return library


def _compile(ir_text: str, form: int, target: Target) -> bytes:
    with span("llvm.compile", text=ir_text), short_turns:
        machine = target_machine(target)
        module = optimised_module(ir_text, machine, target.masks_lanes)
        if target is host():
            _require_known_functions(ir_text)
        return emitted(machine, module, form)


def _require_known_functions(ir_text: str) -> None:
    """The linker would only say that something is missing; say what."""
    _linker()  # opens this process's own symbols, which LLVM searches only then
    missing = [name for name in _DECLARED.findall(ir_text) if not name.startswith(("llvm.", PREFIX))
               and name not in _provided and llvm.address_of_symbol(name) is None]
    if missing:
        raise CodeError(f"the module calls {', '.join(missing)}, which this process does not have")


_DECLARED = re.compile(r'^declare [^@\n]*@"?([^"(\n]+)', re.MULTILINE)


def _linker() -> Any:
    """The one linker of the process.  Never closed: other threads may still run its code while the interpreter ends."""
    with unforked:      # two threads must not make two: a library is known only to the one that it was given to
        return _make_linker()


@cache
def _make_linker() -> Any:
    host()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


@cache
def _disk() -> CodeCache:
    return CodeCache(config().cache_dir)


@cache
def environment(target: Target | None = None) -> tuple[str, ...]:
    """All that decides, beside the text, what the code for a machine is, for the host's unless named; Tenon's version
    shows in the text."""
    target = target or host()
    checks = ",".join(sorted(config().check & {"bounds"}))
    return (OPTIONS, llvmlite.__version__, str(llvm.llvm_version_info), *map(repr, vars(target).values()), checks)


_starting = Lock()
_provided: dict[str, int] = {}
_pieces: dict[str, Job[bytes]] = {}      # compiled by this process, or being compiled
short_turns = ShortTurns()
_alive: weakref.WeakSet[Library] = weakref.WeakSet()
_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
_library_numbers = itertools.count()
if hasattr(ffi.lib, "_lock"):
    unforked.wait_for(ffi.lib._lock)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_unfinished)
