"""The processor at hand -> what it has, in LLVM's words, and the target that code is made for."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from tenon.config import config
from tenon.locks import unforked

# What begins so is for longer vectors than those of so many bits; matrix registers come with the longest.
LONGER = {512: (), 256: ("avx512", "avx10", "amx"), 128: ("avx", "amx", "fma", "f16c", "vaes", "vpclmul", "xop")}
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18      # of Linux on x86-64

_of_thread = threading.local()


@cache
def target() -> tuple[Any, str, str]:
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
        found = llvm.Target.from_triple(llvm.get_process_triple())
        return found, llvm.get_host_cpu_name(), features()


def target_machine() -> Any:
    """One for each thread, between which they may not be shared."""
    machine = getattr(_of_thread, "machine", None)
    if machine is None:
        found, processor, features = target()
        machine = _of_thread.machine = found.create_target_machine(processor, features, opt=2, reloc="pic",
                                                                   codemodel="small", jit=True)
    return machine


def features() -> str:
    """What this processor has, for LLVM.

    Unless told, it takes vectors of 256 bits even where there are longer ones, and reads and writes vectors of elements
    that are apart by one instruction, which on AMD's processors takes longer than doing so one by one.
    """
    found = available()
    text = ",".join(f"{'+' if there else '-'}{name}" for name, there in sorted(found.items()))
    text += ",-prefer-256-bit" if found.get("avx512f") else ""
    text += ",+prefer-no-gather,+prefer-no-scatter" if found.get("clzero") else ""      # an instruction of theirs alone
    return text if has_matrix_registers() else text.replace("+amx-", "-amx-")


@cache
def available() -> Mapping[str, bool]:
    """What this processor has, by LLVM's names, as far as TENON_VECTORS lets it be used."""
    longer = LONGER[config().vectors]
    return {name: there and not name.startswith(longer) for name, there in llvm.get_host_cpu_features().items()}


@cache
def has_feature(name: str) -> bool:
    """Whether this processor has what LLVM calls by this name."""
    return available().get(name, False)


@cache
def has_matrix_registers() -> bool:
    """Whether this process may use the processor's matrix registers (AMX), for which Linux has to be asked."""
    found = available()
    if sys.platform != "linux" or not (found.get("amx-tile") and found.get("amx-bf16")):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)
