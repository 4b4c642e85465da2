"""Attention and its gradient in blocks, whose scores stay in the caches: a statement of the loop IR -> LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tenon.backends.cpu.attention.attention_blocks import Blocks
from tenon.backends.cpu.attention.backward import Gradient
from tenon.backends.cpu.attention.decode import Single
from tenon.backends.cpu.attention.forward import Forward
from tenon.dims.symbolic_dim import Dim
from tenon.llvm.target_module import TargetModule
from tenon.loops.expressions import Buffer
from tenon.loops.loop_ir import AttentionGradient, BlockedAttention
from tenon.loops.whole_operators import SINGLE_QUERIES
from tenon.target import Target

# By name: the schedule, and why it is not taken where another one is.
ATTENTION_SCHEDULES: dict[str, tuple[type[Blocks], str]] = {
    "attention_backward": (Gradient, "it is no gradient"),
    "attention_decode": (Single, f"it is a gradient, or there may be more than {SINGLE_QUERIES} queries"),
    "attention_forward": (Forward, f"it is a gradient, or there are no more than {SINGLE_QUERIES} queries")}


def schedule_of(statement: BlockedAttention) -> type[Blocks]:
    """What goes through the scores of this statement."""
    if isinstance(statement, AttentionGradient):
        return Gradient
    rows = statement.row.extent
    return Single if isinstance(rows, int) and rows <= SINGLE_QUERIES else Forward


def emit_attention(module: TargetModule, name: str, statement: BlockedAttention, arguments: Mapping[Buffer, int],
                   pointers: int,
                   symbols: Sequence[str]) -> ir.Function:
    """void name(pointers..., sizes..., thread, threads, scratch)."""
    return schedule_of(statement)(module, name, statement, arguments, pointers, symbols).emit()


def attention_scratch(statement: BlockedAttention, target: Target) -> Dim:
    """Bytes of scratch memory that each thread needs."""
    return schedule_of(statement)(TargetModule(target), "", statement, {}, 0, ()).scratch()
