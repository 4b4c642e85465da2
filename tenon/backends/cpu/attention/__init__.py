"""Attention and its gradient in blocks, whose scores stay in the caches: a statement of the loop IR -> LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llvmlite import ir

from tenon.backends.cpu.attention.forward import Forward
from tenon.backends.cpu.attention.gradient import Gradient
from tenon.backends.cpu.attention.parts import Blocks
from tenon.dims import Dim
from tenon.loops.expressions import Buffer
from tenon.loops.ir import Attention, AttentionGradient, Pairs

SCHEDULES: dict[type[Pairs], type[Blocks]] = {Attention: Forward, AttentionGradient: Gradient}


def emit_attention(module: ir.Module, name: str, statement: Pairs, arguments: Mapping[Buffer, int], pointers: int,
                   symbols: Sequence[str]) -> ir.Function:
    """void name(pointers..., sizes..., thread, threads, scratch)."""
    return SCHEDULES[type(statement)](module, name, statement, arguments, pointers, symbols).emit()


def attention_scratch(statement: Pairs) -> Dim:
    """Bytes of scratch memory that each thread needs."""
    return SCHEDULES[type(statement)](ir.Module(), "", statement, {}, 0, ()).scratch()
