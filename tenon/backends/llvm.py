"""LLVM IR text -> machine code for this machine, in memory and on disk.

    library = compile('define i32 @answer() { ret i32 42 }')
    answer = ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("answer"))

Code is produced as a relocatable object, which is what the disk cache holds, and linked by ORC with JITLink (MCJIT
ends the process when a name is missing).  Every compilation has an LLVM context of its own, and the two long calls go
round llvmlite's process-wide lock, so that Python threads compile in parallel.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tenon.backends import half
from tenon.backends.code_cache import CodeCache, make_key
from tenon.backends.pieces import PREFIX, needing, needs, parted
from tenon.backends.plain import cut
from tenon.backends.turns import ShortTurns
from tenon.config import config
from tenon.errors import TenonError
from tenon.locks import Lock, unforked
from tenon.observe import emit, span

ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18      # of Linux on x86-64
MAPPINGS = 3            # of memory that a library takes
OPTIONS = "O2 or O1, loops' vectors, masked groups, unrolling if asked, few passes for plain code, PIC, O0 for drivers"
FEW_LOOPS = 4           # of a module, for which less of LLVM does as well


class CodeError(TenonError, RuntimeError):
    """LLVM refuses a module: a bug in the code that emitted it, or a function that is nowhere to be found."""


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
        for name, ours in half.FUNCTIONS.items():
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
    return compile(half.MODULE)


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
    return needing(list(pieces), _compile(text, _EMIT_OBJECT))


def assembly(ir_text: str) -> str:
    """The machine code of a module and of the pieces that it calls as text, to be read."""
    text, pieces = parted(ir_text)
    return "\n".join(_compile(x, _EMIT_ASSEMBLY).decode() for x in (text, *pieces.values()))


def optimised(ir_text: str) -> str:
    """The module after LLVM's passes, to be read."""
    return str(_optimised(parted(ir_text)[0], _target_machine()))


def _make_piece(name: str, text: str) -> None:
    """Compile a piece, unless that was done, or somebody is doing so."""
    with _starting:
        if name in _pieces:
            return
        made = _pieces[name] = Future()
    try:
        code = stored(_piece_key(name))
        if code is None:
            code = _compile(text, _EMIT_OBJECT)
            store(_piece_key(name), code)
        made.set_result(code)
    except BaseException as error:
        del _pieces[name]
        made.set_exception(error)
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
    for name in [name for name, made in _pieces.items() if not made.done()]:
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


def _compile(ir_text: str, form: int) -> bytes:
    with span("llvm.compile", text=ir_text), short_turns:
        machine = _target_machine()
        module = _optimised(ir_text, machine)
        _require_known_functions(ir_text)
        return _emit(machine, module, form)


def _optimised(ir_text: str, machine: Any) -> Any:
    """The module after LLVM's passes: all of them for loops over scalars, a few for the functions that have none."""
    context, parts = llvm.create_context(), cut(ir_text)
    if parts is None:
        return _optimise(_parse(ir_text, machine, context), machine, *_effort(ir_text))
    module = _parse(parts.plain, machine, context)
    if parts.others:
        others = _optimise(_parse(parts.others, machine, context), machine, *_effort(parts.others))
        for name in parts.inlined:
            others.get_function(name).add_function_attribute("alwaysinline")
        module.link_in(others)
    for name in parts.hidden:
        module.get_function(name).linkage = llvm.Linkage.internal
    left = _run_few(module, parts.names, machine)
    for name in left.keys() & set(parts.drivers):   # emission in a third of the time
        for attribute in ("noinline", "optnone"):
            left[name].add_function_attribute(attribute)
    return module


def _parse(ir_text: str, machine: Any, context: Any) -> Any:
    try:
        module = llvm.parse_assembly(ir_text, context)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CodeError(f"LLVM refuses the module: {error}") from None
    return module


def _effort(ir_text: str) -> tuple[int, bool]:
    """(how much LLVM optimises, whether it looks for vectors outside of loops).

    Of 99 modules of three networks, none of which unrolls loops, all are the same code without the latter, and those of
    few loops with -O1 too.
    """
    unrolls = "llvm.loop.unroll.full" in ir_text
    return 1 if not unrolls and ir_text.count(" = phi ") <= FEW_LOOPS else 2, unrolls


def _optimise(module: Any, machine: Any, level: int, looks_everywhere: bool) -> Any:
    """The passes of -O2, or -O1, and those that make loops vectors."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = looks_everywhere
    tuning.loop_unrolling = False   # but where the emitter says so: copies of long bodies take a third of the time
    builder = llvm.create_pass_builder(machine, tuning)
    _run_module(builder.getModulePassManager(), module, builder)
    return module


def _run_few(module: Any, names: Sequence[str], machine: Any) -> dict[str, Any]:
    """Inline what has to be, then clean up one by one, and return, those of the functions that somebody still calls.
    """
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    inline = llvm.create_new_module_pass_manager()
    inline.add_always_inliner_pass()
    inline.add_global_dead_code_eliminate_pass()
    _run_module(inline, module, builder)
    left = {function.name: function for function in module.functions if function.name in names}
    each = llvm.create_new_function_pass_manager()
    each.add_sroa_pass()
    each.add_instruction_combine_pass()
    each.add_simplify_cfg_pass()
    try:
        for function in left.values():
            _unlocked(ffi.lib.LLVMPY_RunNewFunctionPassManager)(each, function, builder)
    finally:
        ffi.lib.LLVMPY_DisposeNewFunctionPassManger(each)
        each.detach()
    return left


def _run_module(passes: Any, module: Any, builder: Any) -> None:
    try:
        _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(passes, module, builder)
    finally:
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)   # llvmlite forgets it: 70 kB for every compilation
        passes.detach()


def _require_known_functions(ir_text: str) -> None:
    """The linker would only say that something is missing; say what."""
    _linker()  # opens this process's own symbols, which LLVM searches only then
    missing = [name for name in _DECLARED.findall(ir_text) if not name.startswith(("llvm.", PREFIX))
               and name not in _provided and llvm.address_of_symbol(name) is None]
    if missing:
        raise CodeError(f"the module calls {', '.join(missing)}, which this process does not have")


_DECLARED = re.compile(r'^declare [^@\n]*@"?([^"(\n]+)', re.MULTILINE)
_EMIT_ASSEMBLY, _EMIT_OBJECT = 0, 1


def _emit(machine: Any, module: Any, form: int) -> bytes:
    with ffi.OutputString() as error:
        buffer = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, form, error)
        if not buffer:
            raise CodeError(f"LLVM cannot emit the module: {error}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _unlocked(function: Any) -> Callable[..., Any]:
    """llvmlite holds one lock around every call; LLVM needs none between contexts, so long calls go without it."""
    return getattr(function, "_cfn", function)  # type: ignore[no-any-return]


@cache
def _target() -> tuple[Any, str, str]:
    """(target, name of the processor, its features); the first use makes LLVM ready for this machine."""
    with unforked:
        if has_feature("avx512bw"):     # groups of elements some apart are shuffled behind masks too, not gathered
            llvm.set_option("tenon", "--enable-masked-interleaved-mem-accesses")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        if sys.platform == "linux":  # so that exp() and its kin are found where Python itself was not linked to them
            with suppress(OSError):
                ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
        target = llvm.Target.from_triple(llvm.get_process_triple())
        return target, llvm.get_host_cpu_name(), features()


def features() -> str:
    """What this processor has, for LLVM.

    Unless told, it takes vectors of 256 bits even where there are longer ones, and reads and writes vectors of elements
    that are apart by one instruction, which on AMD's processors takes longer than doing so one by one.
    """
    found = llvm.get_host_cpu_features()
    text = str(found.flatten()) + (",-prefer-256-bit" if found.get("avx512f") else "")
    text += ",+prefer-no-gather,+prefer-no-scatter" if found.get("clzero") else ""      # an instruction of theirs alone
    return text if has_matrix_registers() else text.replace("+amx-", "-amx-")


@cache
def has_feature(name: str) -> bool:
    """Whether this processor has what LLVM calls by this name."""
    return bool(llvm.get_host_cpu_features().get(name))


@cache
def has_matrix_registers() -> bool:
    """Whether this process may use the processor's matrix registers (AMX), for which Linux has to be asked."""
    found = llvm.get_host_cpu_features()
    if sys.platform != "linux" or not (found.get("amx-tile") and found.get("amx-bf16")):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)


def _target_machine() -> Any:
    """One for each thread, between which they may not be shared."""
    machine = getattr(_of_thread, "machine", None)
    if machine is None:
        target, processor, features = _target()
        machine = _of_thread.machine = target.create_target_machine(processor, features, opt=2, reloc="pic",
                                                                    codemodel="small", jit=True)
    return machine


def _linker() -> Any:
    """The one linker of the process.  Never closed: other threads may still run its code while the interpreter ends."""
    with unforked:      # two threads must not make two: a library is known only to the one that it was given to
        return _make_linker()


@cache
def _make_linker() -> Any:
    _target()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


@cache
def _disk() -> CodeCache:
    return CodeCache(config().cache_dir)


@cache
def environment() -> tuple[str, ...]:
    """All that decides, beside the text, what the machine code is; Tenon's version shows in the text."""
    target, processor, features = _target()
    return (OPTIONS, llvmlite.__version__, str(llvm.llvm_version_info), target.triple, processor, features)


_starting = Lock()
_of_thread = threading.local()
_provided: dict[str, int] = {}
_pieces: dict[str, Future[bytes]] = {}      # compiled by this process, or being compiled
short_turns = ShortTurns()
_alive: weakref.WeakSet[Library] = weakref.WeakSet()
_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
_library_numbers = itertools.count()
if hasattr(ffi.lib, "_lock"):
    unforked.wait_for(ffi.lib._lock)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_unfinished)
