"""The processor at hand -> its `Target`; a target -> LLVM's target machine."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from tenon.config import config
from tenon.locks import unforked
from tenon.target import Target

# What begins so is for longer vectors than those of so many bits; matrix registers come with the longest.
LONGER = {512: (), 256: ("avx512", "avx10", "amx"), 128: ("avx", "amx", "fma", "f16c", "vaes", "vpclmul", "xop")}
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18      # of Linux on x86-64

# These look for checksums along all paths through a loop's body: 2^36 of them where 36 maxima follow each other.
LLVMS_THAT_SEEK_CHECKSUMS, SEEK_NONE = (21, 22), "--disable-loop-idiom-hashrecognize"

_of_thread = threading.local()


@cache
def host() -> Target:
    """The processor that this runs on; the first use makes LLVM ready for it."""
    found = available()
    with unforked:
        if found.get("avx512bw"):   # groups of elements some apart are shuffled behind masks too, not gathered
            llvm.set_option("tenon", "--enable-masked-interleaved-mem-accesses")
        if llvm.llvm_version_info[0] in LLVMS_THAT_SEEK_CHECKSUMS:      # another would end the process
            llvm.set_option("tenon", SEEK_NONE)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
        if sys.platform == "linux":  # so that exp() and its kin are found where Python itself was not linked to them
            with suppress(OSError):
                ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    if found.get("avx512f"):
        width, registers = 64, 32
    elif found.get("avx2"):
        width, registers = 32, 16
    else:
        width, registers = 16, 32 if platform.machine().lower() in ("arm64", "aarch64") else 16
    amd = found.get("clzero", False)        # an instruction of theirs alone
    return Target(width, registers, _cache(2) or Target.l2_bytes, _cache(1) or Target.l1_bytes,
                  pairs="registers" if has_matrix_registers() else "vectors" if found.get("avx512bf16") else None,
                  has_stream_prefetcher=not amd, hashes_l2_sets=amd, separate_add_ports=amd,
                  triple=llvm.get_process_triple(), cpu=llvm.get_host_cpu_name(), features=features())


def target_machine(target: Target) -> Any:
    """LLVM's machine for a target: one for each thread, between which they may not be shared."""
    machines = _of_thread.__dict__.setdefault("machines", {})
    machine = machines.get(target)
    if machine is None:
        if target is not host():
            _prepare_all()
        found = llvm.Target.from_triple(target.triple)
        machine = machines[target] = found.create_target_machine(target.cpu, target.features, opt=2, reloc="pic",
                                                                 codemodel="small", jit=True)
    return machine


@cache
def _prepare_all() -> None:
    """Make LLVM ready to write code for every machine that it knows."""
    with unforked:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


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
def has_matrix_registers() -> bool:
    """Whether this process may use the processor's matrix registers (AMX), for which Linux has to be asked."""
    found = available()
    if sys.platform != "linux" or not (found.get("amx-tile") and found.get("amx-bf16")):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)


def _cache(wanted: int) -> int:
    """Bytes of the first core's first or second data cache as Linux or macOS tells, or 0."""
    with suppress(OSError, ValueError):     # a container may show none of this
        for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if int(level) == wanted and kind != "Instruction":
                return int(size.removesuffix("K")) << 10
    if sys.platform == "darwin":
        found, length = ctypes.c_uint64(), ctypes.c_size_t(8)
        name = b"hw.l2cachesize" if wanted == 2 else b"hw.l1dcachesize"
        if ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(found), ctypes.byref(length), None, 0) == 0:
            return found.value
    return 0
