"""What is known of the machine that code is made for: a value that is handed down from the edge to every chooser.

    >>> target("x86-64-v3").vector_bytes, target("riscv64").registers
    (32, 32)
    >>> target("x86-64-v3").has("avx2"), target("aarch64-linux").has("avx2")
    (True, False)

Two machines may have the same code, never the other way round: whatever a chooser or an emitter asks is a field here.
The number of threads is none, since a kernel is the same code, with the same bits, for any number of them.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2
from typing import Literal

from tenon.errors import ArgumentError
from tenon.records import dataclass

LINE_BYTES = 64         # bytes that caches fetch at once, on every machine that there is code for: no field
WAY_BYTES = 4096        # bytes after which lines of memory compete for the same place of the first cache
MAX_TEXTS = 64          # texts of features, taken apart


def round_up(size: int, multiple: int) -> int:
    """The least multiple that is no smaller.

    >>> round_up(17, 16)
    32
    """
    return -(-size // multiple) * multiple


@dataclass(frozen=True)
class Target:
    """Widths and sizes of one processor, in bytes but for the number of vector registers; then its names in LLVM's
    words."""

    vector_bytes: int
    registers: int
    l2_bytes: int = 512 << 10
    l1_bytes: int = 32 << 10
    pairs: Literal["registers", "vectors"] | None = None     # where pairs of bfloat16 are multiplied, if they are
    has_stream_prefetcher: bool = True  # fetches long runs of memory by itself as fast as they can be read
    # lines of memory have their places in the second cache however far they are apart
    hashes_l2_sets: bool = False
    separate_add_ports: bool = False    # additions have units of their own, beside those of multiply-adds
    triple: str = ""
    cpu: str = ""
    features: str = ""                  # "+avx2,-avx512f": what it has beside, or less than, what its name says

    @property
    def streams(self) -> int:
        """How many runs of memory are read side by side at best: what is fetched ahead of more may compete for places
        of the first cache.

        >>> Target(64, 32, l1_bytes=32 << 10).streams, Target(64, 32, l1_bytes=48 << 10).streams
        (8, 16)
        """
        return 1 << round(log2(self.l1_bytes / WAY_BYTES))

    def has(self, feature: str) -> bool:
        """Whether it has what LLVM calls by this name."""
        return feature in _features(self.features)

    @property
    def masks_lanes(self) -> bool:
        """Whether vectors of any element are read and written behind masks."""
        return self.has("avx512bw")

    def __str__(self) -> str:
        return (f"{self.cpu} ({self.triple}): {self.registers} vectors of {self.vector_bytes} bytes, caches of "
                f"{self.l1_bytes >> 10} and {self.l2_bytes >> 10} KiB, pairs of bfloat16: {self.pairs or 'none'}")


@lru_cache(MAX_TEXTS)
def _features(text: str) -> frozenset[str]:
    return frozenset(word[1:] for word in text.split(",") if word.startswith("+"))


_X86_V3 = "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave"
_X86_V4 = f"{_X86_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit"

GENERIC = Target(32, 16)     # what loops are made for where nobody names a machine

# Machines that code can be made for anywhere, with the usual caches of their kind.
TARGETS = {
    "x86-64-v3": Target(32, 16, triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features=_X86_V3),
    "x86-64-v4": Target(64, 32, 1 << 20, triple="x86_64-unknown-linux-gnu", cpu="x86-64-v4", features=_X86_V4),
    "aarch64-linux": Target(16, 32, 1 << 20, 64 << 10, triple="aarch64-unknown-linux-gnu", cpu="neoverse-n1",
                            features="+neon,+fullfp16"),
    "riscv64": Target(16, 32, triple="riscv64-unknown-linux-gnu", cpu="generic-rv64",
                      features="+m,+a,+f,+d,+c,+v,+zvl128b"),
}


def target(name: str) -> Target:
    """The machine of this name.  Raises ArgumentError for another one."""
    if name not in TARGETS:
        raise ArgumentError(f"no target is named {name!r}", hint=f"the targets are {', '.join(TARGETS)}")
    return TARGETS[name]
